"""Fan-outs under attack: what goes wrong for one recipient, in the middle, or at the wrong moment."""

import asyncio

import pytest

from streamkit import (
    Add,
    App,
    Delete,
    Entity,
    Inserted,
    Modified,
    Policy,
    Put,
    Query,
    Send,
    Set,
    Table,
)
from streamkit.kinds.fan_out import broadcasting
from streamkit.kinds.fan_out.broadcasting import AHEAD
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.fan_outs import Audiences, cancel_fan_out, list_fan_outs
from streamkit.operate.redrive import redrive
from streamkit.operate.rewind import RewindRefused, rewind
from streamkit.operate.status import read_status
from streamkit.worker.automatic_retries import AT_ONCE
from tests.simulation.memory import Memory
from tests.simulation.watchers import (
    Deal,
    Note,
    Seen,
    Watch,
    make_app,
    notes,
    users,
    watch,
    watchers,
)


def with_aws(harness, ask):
    """Call a public function beside the worker."""
    return harness._run(ask(harness._aws))


def begun(harness, count=300, deal="1"):
    """Let a slow fan-out get under way."""
    watch(harness, count)
    harness.settle()
    harness.put(Deal(deal=deal, brand="acme"))
    harness.advance("3s")
    assert 0 < len(notes(harness)) < count


def see(change: Inserted[Deal]) -> Put[Seen]:
    return Put(Seen(deal=change.new.deal))


# -- one recipient ---------------------------------------------------------------------------------


def test_a_recipient_that_failed_is_tried_again_on_its_own(harness_of):
    failing = {"u0003"}
    harness = harness_of(make_app(failing=failing, inline=0))
    watch(harness, 10)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert [parked.error for parked in harness.parked()] == ["ValueError"]
    failing.clear()
    harness.advance("1m")
    assert notes(harness) == users(10)
    assert not harness.parked()


def test_a_poison_recipient_who_is_met_twice_stops_nobody(harness_of):
    def twice(change: Inserted[Deal]) -> list[Query[Watch]]:
        return [Watch.query(brand="acme"), Watch.query(brand="acme"), Watch.query(brand="late")]

    harness = harness_of(make_app(audience=twice, poison={"u0003"}, inline=0))
    watch(harness, 60)
    harness.put(Watch(brand="late", user="zoe"))
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == [user for user in users(60) if user != "u0003"] + ["zoe"]
    assert len(harness.parked()) == 1


@pytest.mark.parametrize("inline", [0, 50])
def test_a_recipient_that_cannot_be_read_holds_up_only_itself(harness_of, inline):
    harness = harness_of(make_app(inline=inline))
    watch(harness, 20)
    wire = {"PK": {"S": "WATCH#acme"}, "SK": {"S": "USER#u0005x"}, "brand": {"S": "acme"}}
    wire["user"] = {"BOOL": True}  # what stands in the item wins over what its key says
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Deals", "Item": wire})
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(20)
    assert [parked.error for parked in harness.parked()] == ["DecodeError"]


@pytest.mark.parametrize("otherwise", ["skip", "park", "omit"])
def test_a_condition_that_fails_concerns_its_own_recipient_even_inline(harness_of, otherwise):
    harness = harness_of(make_app(otherwise=otherwise))
    watch(harness, 10)
    harness.put(Note(user="u0003", deal="1", text="mine"))
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(10)
    assert harness.get(Note.key(user="u0003", deal="1")).text == "mine"
    assert len(harness.parked()) == (otherwise == "park")


def test_a_failing_recipient_is_skipped_alone_where_the_policy_says_so(harness_of):
    for inline in (0, 50):
        harness = harness_of(make_app(failing={"u0003"}, inline=inline, on_failure="skip"))
        watch(harness, 10)
        harness.put(Deal(deal="1", brand="acme"))
        harness.settle()
        assert notes(harness) == [user for user in users(10) if user != "u0003"]
        assert not harness.parked()


def test_two_recipients_who_share_an_item_are_both_served(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch, Seen])

    @app.fan_out(watchers)
    def tell(change: Inserted[Deal], to: Watch) -> list[Put | Delete | Set]:
        """Delete and then update one item: two effects that cannot be one."""
        counted = Seen.key(deal="all")
        effect = Delete(counted) if to.user == "u0000" else Set(counted, deal="all")
        return [effect, Put(Note(user=to.user, deal=change.new.deal))]

    harness = harness_of(app)
    watch(harness, 10)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(10)
    assert not harness.parked()


class Tally(Entity, pk="TALLY#{deal}", sk="TALLY#{deal}"):
    deal: str
    told: int = 0
    last: str = ""


def test_recipients_who_read_and_write_one_item_each_see_what_the_one_before_has_made(harness_of):
    app = App("deals", table="Deals", entities=[Watch, Tally])

    @app.fan_out(watchers, inline=0)
    async def tell(change: Inserted[Deal], to: Watch, table: Table) -> Put[Tally]:
        there = await table.get(Tally.key(deal=change.new.deal))
        told = 0 if there is None else there.told
        return Put(Tally(deal=change.new.deal, told=told + 1, last=to.user))

    harness = harness_of(app)
    watch(harness, 30)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert harness.get(Tally.key(deal="1")).told == 30
    assert not harness.parked()


@pytest.mark.parametrize("on_failure", ["park", "skip"])
def test_what_cannot_be_stored_for_one_recipient_is_parked_or_skipped_as_its_policy_says(
    harness_of, on_failure
):
    policy = Policy(on_failure=on_failure)
    app = App("deals", table="Deals", entities=[Watch, Note, Tally], policy=policy)

    @app.fan_out(watchers, inline=0)
    def tell(change: Inserted[Deal], to: Watch) -> list[Put | Add]:
        written = [Put(Note(user=to.user, deal=change.new.deal))]
        return [*written, Add(Tally.key(deal="odd"), told=1)] if to.user == "u0003" else written

    harness = harness_of(app)
    watch(harness, 10)
    odd = {"PK": {"S": "TALLY#odd"}, "SK": {"S": "TALLY#odd"}, "told": {"S": "no number"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Deals", "Item": odd})
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == [user for user in users(10) if user != "u0003"]
    assert len(harness.parked()) == (on_failure == "park")


# -- many recipients -------------------------------------------------------------------------------


def test_a_bad_release_stops_a_fan_out_and_does_not_park_everybody(harness_of):
    failing = set(users(400))
    harness = harness_of(make_app(failing=failing, inline=0, attempts=1))
    watch(harness, 400)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    (parked,) = harness.parked()
    assert (parked.error, parked.to) == ("ValueError", "")
    failing.clear()
    harness.advance("30m")
    assert notes(harness) == users(400)


def test_no_more_than_a_thousand_recipients_of_a_fan_out_are_parked(harness_of):
    harness = harness_of(make_app(poison=set(users(1100)), inline=0))
    watch(harness, 1100)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    parked = harness.parked()
    assert 1000 <= len(parked) <= 1100
    assert sum(not change.to for change in parked) == 1, "the fan-out itself waits for a person"


# -- its queue --------------------------------------------------------------------------------------


def test_a_fan_out_goes_on_while_its_shard_splits_and_its_item_changes(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch])

    def all_watchers(change: Inserted[Deal] | Modified[Deal]) -> Query[Watch]:
        return Watch.query(brand=change.new.brand)

    @app.fan_out(all_watchers, inline=0, rate=100)
    def retell(change: Inserted[Deal] | Modified[Deal], to: Watch) -> Set[Note]:
        return Set(Note.key(user=to.user, deal=change.new.deal), text=change.new.title)

    harness = harness_of(app)
    watch(harness, 200)
    harness.settle()
    harness.put(Deal(deal="1", brand="acme", title="one"))
    harness.advance("1s")
    harness.split()
    harness.put(Deal(deal="1", brand="acme", title="two"))
    harness.advance("1s")
    harness.split()
    harness.crash()
    harness.put(Deal(deal="1", brand="acme", title="three"))
    harness.settle()
    assert {note.text for note in harness.scan(Note)} == {"three"}
    assert len(harness.scan(Note)) == 200
    assert not harness.parked()


def waiting():
    """Generate those that have no note yet: the token after each page is the same."""
    place = {}

    async def generated(change: Inserted[Deal], after: str | None):
        there = set(notes(place["harness"]))
        for number, user in enumerate(u for u in users(300) if u not in there):
            yield str(number), user

    return place, generated


@pytest.mark.parametrize("tokens", ["places", "repeated"])
def test_of_two_who_serve_one_audience_each_page_is_served_by_one(harness_of, monkeypatch, tokens):
    """As after a split, when two workers hold one queue; here two people redrive it."""
    monkeypatch.setattr(broadcasting, "AHEAD", 40 if tokens == "repeated" else AHEAD)
    app, (place, generated) = make_app(rate=50, inline=0, otherwise=None), waiting()
    if tokens == "repeated":
        app = App("deals", table="Deals", entities=[Note, Watch])

        @app.fan_out(generated, inline=0, rate=40)
        def tell(change: Inserted[Deal], to: str) -> Put[Note]:
            return Put(Note(user=to, deal=change.new.deal))

    harness = place["harness"] = harness_of(app)
    begun(harness)
    harness.crash()
    written = []

    def saw(call):
        if call.operation == "TransactWriteItems" and call.status == 200:
            puts = [item["Put"]["Item"] for item in call.payload["TransactItems"] if "Put" in item]
            written.extend(item["user"]["S"] for item in puts if "user" in item)

    async def both(aws):
        await asyncio.gather(redrive(harness.app, aws), redrive(harness.app, aws))

    before = len(notes(harness))
    harness.world.engine.observers.append(saw)
    with_aws(harness, both)
    assert notes(harness) == users(300)
    assert len(written) == len(set(written)) == 300 - before


def test_a_cancelled_fan_out_stops_and_the_next_change_of_its_item_is_next(harness_of):
    harness = harness_of(make_app(rate=50, inline=0))
    begun(harness)
    (found,) = with_aws(harness, lambda aws: list_fan_outs(harness.app, aws))
    assert (found.state, found.waiting) == ("serving", 0)
    harness.delete(Deal.key(deal="1"))
    harness.put(Deal(deal="1", brand="none"))
    harness.advance("1s")
    assert with_aws(harness, lambda aws: cancel_fan_out(harness.app, aws, found.queue))
    served = len(notes(harness))
    harness.advance("5s")
    assert len(notes(harness)) <= served + 50
    assert not harness.parked(), "the next one's turn has come at once"
    assert not with_aws(harness, lambda aws: cancel_fan_out(harness.app, aws, found.queue))


def looked(harness):
    clock = harness.world.clock
    (found,) = with_aws(harness, lambda aws: list_fan_outs(harness.app, aws, clock=clock))
    return found


def test_one_look_tells_how_much_of_a_fan_out_is_done_and_how_long_the_rest_takes(harness_of):
    harness = harness_of(make_app(rate=50, inline=0))
    begun(harness)
    found = looked(harness)
    assert found.share == found.served / 300
    assert found.speed == pytest.approx(50, rel=0.5)
    assert found.left == pytest.approx((300 - found.served) / found.speed)
    harness.advance(f"{found.left + 5:.0f}s")
    assert notes(harness) == users(300)


def test_how_long_a_fan_out_takes_is_not_guessed_where_nothing_was_measured(harness_of):
    async def generated(change: Inserted[Deal], after: str | None):
        for user in users(300):
            if after is None or user > after:
                yield user, Watch(brand="acme", user=user)

    harness = harness_of(make_app(rate=50, inline=0, audience=generated))
    harness.settle()
    harness.put(Deal(deal="1", brand="acme"))
    harness.advance("3s")
    found = looked(harness)
    assert (found.state, found.share, found.left) == ("serving", None, None)
    assert found.speed > 0
    later = harness_of(make_app(rate=50, inline=0))
    begun(later)
    later.delete(Deal.key(deal="1"))
    later.put(Deal(deal="1", brand="acme"))
    later.advance("6s")
    found = looked(later)
    assert (found.waiting, found.speed, found.left) == (0, None, None)
    assert found.share == found.served / 300


def test_an_audience_is_counted_once_however_often_somebody_looks(harness_of):
    harness = harness_of(make_app(rate=50, inline=0))
    begun(harness)
    counted = []
    count = lambda call: counted.extend(  # noqa: E731
        [call.payload] if call.payload.get("Select") == "COUNT" else []
    )
    harness.world.engine.observers.append(count)

    async def look_twice(aws):
        audiences = Audiences(harness.app, aws)
        for _ in range(2):
            status = await read_status(
                harness.app, aws, clock=harness.world.clock, audiences=audiences
            )
            assert status.fan_outs[0].share
        return status

    with_aws(harness, look_twice)
    assert len(counted) == 1


def test_a_fan_out_whose_handler_is_gone_waits_and_goes_on_where_it_was(harness_of):
    """A release without the handler sets the fan-out aside; one with it finishes it."""
    harness = harness_of(make_app(rate=50, inline=0))
    begun(harness)
    harness.crash()
    served = len(notes(harness))
    whole, harness.app = harness.app, App("deals", table="Deals", entities=[Note, Watch])
    harness.app.on(see)
    harness.advance("10s")
    harness.settle()
    assert len(notes(harness)) == served
    assert [parked.error for parked in harness.parked()] == ["HandlerMissing"]
    harness.crash()
    harness.app = whole
    harness.redrive()
    assert notes(harness) == users(300)
    assert not harness.parked()


def test_an_audience_that_has_become_another_one_fails_the_fan_out_and_not_the_worker(harness_of):
    index = []

    def changing(change: Inserted[Deal]) -> Query[Watch]:
        if index:
            return Watch.query(index=Watch.everyone, user="u0001")
        return Watch.query(brand=change.new.brand)

    harness = harness_of(make_app(audience=changing, rate=50, inline=0))
    begun(harness)
    index.append(True)
    harness.put(Deal(deal="2", brand="none"))
    harness.settle()
    (parked,) = harness.parked()
    assert parked.error == "ValidationException"
    assert harness.get(Seen.key(deal="2")), "the worker lives"


def test_an_audience_that_does_not_come_holds_up_no_other_queue(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch])
    hanging = {str(number) for number in range(AT_ONCE)}

    async def generated(change: Inserted[Deal], after: str | None):
        for number in range(0 if after is None else int(after) + 1, 12):
            if number == 6 and change.new.deal in hanging:
                await asyncio.Event().wait()
            yield str(number), f"u{number:04}"

    @app.fan_out(generated, inline=5)
    def tell(change: Inserted[Deal], to: str) -> Put[Note]:
        return Put(Note(user=to, deal=change.new.deal))

    harness = harness_of(app)
    harness.settle()
    harness.put(*(Deal(deal=deal, brand="acme") for deal in sorted(hanging)))
    harness.advance("2m")
    harness.put(Deal(deal="last", brand="acme"))
    harness.advance("5m")
    assert notes(harness, "last") == users(12)
    assert notes(harness, "0") == users(6), "as far as they came"
    assert {parked.error for parked in harness.parked()} == {"TimeoutError"}
    hanging.clear()
    harness.advance("1h")
    assert [notes(harness, str(number)) for number in range(AT_ONCE)] == [users(12)] * AT_ONCE
    assert not harness.parked()


def test_a_fan_out_keeps_its_change_whole_whatever_is_stored_of_others(harness_of):
    harness = harness_of(make_app(rate=0.0001, inline=0, payload="keys", poison={"u0001"}))
    watch(harness, 10)
    harness.settle()
    harness.put(Deal(deal="1", brand="acme"))
    harness.advance("24h")
    assert len(notes(harness)) < 9
    harness.advance("5h")
    assert notes(harness) == [user for user in users(10) if user != "u0001"]
    (parked,) = harness.parked()
    assert (parked.payload, parked.to != "") == ("keys", True)


def test_a_consumer_is_deleted_with_its_fan_outs_and_their_parked_recipients(harness_of):
    harness = harness_of(make_app(rate=50, inline=0, poison={"u0003", "u0004"}))
    begun(harness)
    status = with_aws(harness, lambda aws: read_status(harness.app, aws))
    assert status.parked == {"notify": 3}
    assert [fan_out.served for fan_out in status.fan_outs] == [len(notes(harness)) + 2]
    with pytest.raises(RewindRefused, match=r"changes are parked \(queues: 3\)"):
        with_aws(harness, lambda aws: rewind(harness.app, aws, None, allow=["notify", "see"]))
    harness.stop()
    with_aws(harness, lambda aws: delete_consumer(aws, "Deals", "deals"))
    left = [item["PK"]["S"] for item in harness.world.items("Deals")]
    assert [key for key in left if key.startswith("_sk#")] == ["_sk##consumers#index"]


def test_a_worker_that_stops_does_not_wait_for_the_end_of_a_fan_out(harness_of):
    harness = harness_of(make_app(rate=10, inline=0))
    begun(harness)
    before = harness.world.clock.time()
    harness.stop()
    assert harness.world.clock.time() - before < 5
    assert len(notes(harness)) < 100
    harness.settle()
    assert notes(harness) == users(300)


# -- what is sent ----------------------------------------------------------------------------------


def sending(sink, *, inline=50, **policy):
    app = App("deals", table="Deals", entities=[Watch], policy=Policy(**policy))
    app.sink(sink)

    @app.fan_out(watchers, inline=inline)
    def mail(change: Inserted[Deal], to: Watch) -> Send:
        return Send(sink, {"to": to.user})

    return app


def test_recipients_are_delivered_side_by_side_under_names_of_their_own(harness_of):
    sink = Memory(items=10)
    harness = harness_of(sending(sink))
    watch(harness, 60)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert sorted(d.body["to"] for d in sink.got) == users(60)
    assert max(sink.batches) == 10
    for name in ("key", "group", "id"):
        assert len({getattr(d, name) for d in sink.got}) == 60


def test_the_keys_of_deliveries_are_the_same_inline_and_in_the_queue(harness_of):
    """A sink that turns slow in the middle of an inline audience leaves the rest to the queue."""
    sink = Memory(items=1, calls=1)
    sink.trouble = lambda ds: (
        30.0 if ds[0].body["to"] == "u0004" and len(sink.batches) < 9 else None
    )
    harness = harness_of(sending(sink, timeout_seconds=60))
    watch(harness, 8)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    keys = {}
    for delivery in sink.got:
        keys.setdefault(delivery.body["to"], set()).add(delivery.key)
    assert sorted(keys) == users(8)
    assert len(sink.got) > 8, "some were delivered twice"
    assert all(len(found) == 1 for found in keys.values())


def test_waiting_for_its_turn_does_not_use_up_a_deliverys_time(harness_of):
    sink = Memory(items=1, calls=2)
    sink.trouble = lambda _: 2.0
    harness = harness_of(sending(sink, inline=0, timeout_seconds=5, attempts=1))
    watch(harness, 40)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert sorted(d.body["to"] for d in sink.got) == users(40), "nobody twice"
    assert not harness.parked()


def test_a_sink_that_answers_for_others_fails_its_deliveries_and_not_the_worker(harness_of):
    sink = Memory()
    sink.trouble = lambda ds: [None] * (len(ds) + 1)
    harness = harness_of(sending(sink, retry_limit=1))
    watch(harness, 3)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert {parked.error for parked in harness.parked()} == {"TypeError"}


class SlowQueries:
    """Each page of an audience takes most of a second."""

    async def intercept(self, call, apply):
        if call.operation == "Query":
            await asyncio.sleep(0.7)
        return apply()


def scattered(change: Inserted[Deal]) -> list[Query[Watch]]:
    return [Watch.query(brand=brand) for brand in (*map(str, range(12)), change.new.brand)]


def test_a_stretch_without_recipients_that_takes_longer_than_a_turn_is_got_over(harness_of):
    """A fan-out goes on behind the pages that it has passed over, and not before them again."""
    harness = harness_of(make_app(audience=scattered, inline=1))
    watch(harness, 3)
    harness.settle()
    harness.worker.ensure().faults = SlowQueries()
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(3)


def test_a_recipient_of_a_generator_that_fails_holds_up_the_rest_until_it_succeeds(harness_of):
    """It could not be found again, so it is never parked apart."""
    failing = {"u0001"}

    async def people(change: Inserted[Deal], after: str | None):
        for user in users(4):
            if after is None or user > after:
                yield user, user

    app = App("deals", table="Deals", policy=Policy(retry_limit=3))

    @app.fan_out(people, inline=0)
    def tell(change: Inserted[Deal], to: str) -> Put[Note]:
        if to in failing:
            raise ValueError("not now")
        return Put(Note(user=to, deal=change.new.deal))

    harness = harness_of(app)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    (parked,) = harness.parked()
    assert (parked.to, notes(harness)) == ("", users(1))
    failing.clear()
    harness._run(redrive(app, harness._aws))
    assert (harness.parked(), notes(harness)) == ([], users(4))

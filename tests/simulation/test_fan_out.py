"""Fan-outs: every recipient is served once, beside the shard, whatever happens."""

import pytest

from streamkit import App, Entity, Inserted, Key, Modified, Policy, Put, Query, Scan, Set, Table
from streamkit.errors import DeclarationError
from streamkit.settings import Settings
from streamkit.testing import every_crash
from tests.rigs import Rig
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


def test_a_small_audience_is_served_in_the_changes_own_commit(harness_of):
    harness = harness_of(make_app())
    calls = []
    harness.world.engine.observers.append(lambda call: calls.append(str(call.payload)))
    watch(harness, 20)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(20)
    assert not any("#lane#" in payload for payload in calls)


def test_a_large_audience_is_served_beside_the_shard(harness_of):
    harness = harness_of(make_app(rate=100))
    watch(harness, 400)
    harness.settle()
    harness.put(Deal(deal="1", brand="acme"))
    harness.put(Deal(deal="2", brand="other"))
    harness.advance("2s")
    assert harness.get(Seen.key(deal="2")), "the shard goes on"
    assert 0 < len(notes(harness)) < 400
    harness.settle()
    assert notes(harness) == users(400)
    assert not harness.parked()


def test_a_fan_out_begins_within_a_second_and_keeps_to_its_rate(harness_of):
    harness = harness_of(make_app(rate=50, inline=0))
    watch(harness, 200)
    harness.settle()
    harness.put(Deal(deal="1", brand="acme"))
    while not harness.get(Seen.key(deal="1")):
        harness.advance("0.2s")
    harness.advance("1s")
    begun = len(notes(harness))
    assert begun > 0
    harness.advance("2s")
    assert len(notes(harness)) - begun <= 2 * 50 + 48


class Hall(Entity, pk="HALL", sk="HALL"):
    guests: int = 0


@pytest.mark.parametrize("inline", [0, 50])
def test_recipients_that_read_and_write_one_item_see_what_the_ones_before_them_did(
    harness_of, inline
):
    app = App("shop", table="Shop", entities=[Watch, Note])

    @app.fan_out(watchers, inline=inline)
    async def seat(change: Inserted[Deal], to: Watch, table: Table) -> Set[Hall]:
        there = await table.get(Hall.key())
        return Set(Hall.key(), guests=1 + (there.guests if there else 0))

    harness = harness_of(app)
    watch(harness, 20)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert harness.get(Hall.key()).guests == 20


def test_an_audience_that_is_served_one_by_one_is_served_whole(harness_of):
    harness = harness_of(make_app(rate=1, inline=0))
    watch(harness, 6)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(6)


@pytest.mark.parametrize("inline", [0, 50])
def test_a_poison_recipient_holds_up_only_itself(harness_of, inline):
    harness = harness_of(make_app(poison={"u0003"}, inline=inline))
    watch(harness, 60)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == [user for user in users(60) if user != "u0003"]
    (parked,) = harness.parked()
    assert (parked.error, "u0003" in parked.to) == ("PoisonChange", True)


def test_a_recipient_that_heals_is_served_later(harness_of):
    poison = {"u0003"}
    harness = harness_of(make_app(poison=poison, inline=0))
    watch(harness, 10)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    poison.clear()
    harness.redrive()
    assert notes(harness) == users(10)
    assert not harness.parked()


def test_changes_of_one_item_are_fanned_out_one_after_the_other(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch])

    def all_watchers(change: Inserted[Deal] | Modified[Deal]) -> Query[Watch]:
        return Watch.query(brand=change.new.brand)

    @app.fan_out(all_watchers, inline=0)
    def retell(change: Inserted[Deal] | Modified[Deal], to: Watch) -> Set[Note]:
        return Set(Note.key(user=to.user, deal=change.new.deal), text=change.new.title)

    harness = harness_of(app)
    watch(harness, 100)
    for title in ("one", "two", "three"):
        harness.put(Deal(deal="1", brand="acme", title=title))
    harness.settle()
    assert {note.text for note in harness.scan(Note)} == {"three"}
    assert len(notes(harness)) == 100


def test_a_note_that_its_reader_has_deleted_is_never_written_again(harness_of):
    harness = harness_of(make_app(rate=50, inline=0))
    watch(harness, 300)
    harness.settle()
    harness.put(Deal(deal="1", brand="acme"))
    harness.advance("3s")
    first = notes(harness)[0]
    harness.delete(Note.key(user=first, deal="1"))
    harness.crash()
    harness.settle()
    assert notes(harness) == [user for user in users(300) if user != first]


def crowd(harness):
    watch(harness, 7)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(7)
    assert not harness.parked()


def test_a_worker_killed_at_any_call_leaves_out_and_doubles_nobody():
    for _ in every_crash(crowd, lambda: Rig(make_app(inline=2)), sample=6):
        pass


def test_a_fan_out_of_thousands_that_is_killed_ten_times_serves_everybody_once(harness_of):
    harness = harness_of(make_app(rate=60), settings=Settings())
    watch(harness, 3000)
    harness.settle()
    written, served = [], []

    def saw(call):
        if call.operation == "TransactWriteItems" and call.status == 200:
            puts = [item["Put"]["Item"] for item in call.payload["TransactItems"] if "Put" in item]
            written.extend(item["user"]["S"] for item in puts if "user" in item)

    harness.world.engine.observers.append(saw)
    harness.put(Deal(deal="1", brand="acme"))
    for kill in range(10):  # a worker first waits for the lease of the one before it
        harness.crash(at=110 + kill, moment="after" if kill % 2 else "before")
        harness.advance("60s")
        assert harness.is_dead
        harness.crash()
        served.append(len(written))
    assert len(set(served)) > 5, "most of them died while they served"
    assert served[-1] < 3000
    harness.settle()
    assert notes(harness) == users(3000)
    assert len(written) == len(set(written)) == 3000


def test_an_audience_may_be_a_scan_of_an_index_and_recipients_its_keys(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch])

    def everyone(change: Inserted[Deal]) -> Scan[Watch]:
        return Scan(Watch, index=Watch.everyone)

    @app.fan_out(everyone, inline=5)
    def tell(change: Inserted[Deal], to: Key[Watch]) -> Put[Note]:
        return Put(Note(user=str(to.sk).removeprefix("USER#"), deal=change.new.deal))

    harness = harness_of(app)
    watch(harness, 90)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(90)


def test_an_audience_may_be_sharded_over_several_partitions(harness_of):
    def shards(change: Inserted[Deal]) -> list[Query[Watch]]:
        return [Watch.query(brand=f"acme{number}") for number in range(3)]

    harness = harness_of(make_app(audience=shards, inline=5))
    for number in range(3):
        harness.put(*(Watch(brand=f"acme{number}", user=u) for u in users(90)[number::3]))
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(90)


def test_an_audience_may_be_generated_and_goes_on_after_its_token(harness_of):
    app = App("deals", table="Deals", entities=[Note, Watch])
    begun = []

    async def generated(change: Inserted[Deal], after: str | None):
        begun.append(after)
        for number in range(0 if after is None else int(after) + 1, 120):
            yield str(number), f"u{number:04}"

    @app.fan_out(generated, inline=5, rate=50)
    def tell(change: Inserted[Deal], to: str) -> Put[Note]:
        return Put(Note(user=to, deal=change.new.deal))

    harness = harness_of(app)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert notes(harness) == users(120)
    assert "99" in begun


@pytest.mark.parametrize("tokens", [["x", "x"], ["x", "y", "x"]])
def test_a_generated_audience_that_repeats_a_token_leaves_nobody_out_in_silence(harness_of, tokens):
    app = App("deals", table="Deals", entities=[Note, Watch], policy=Policy(attempts=1))

    async def generated(change: Inserted[Deal], after: str | None):
        for number, token in enumerate(tokens):
            yield token, f"u{number:04}"

    @app.fan_out(generated)
    def tell(change: Inserted[Deal], to: str) -> Put[Note]:
        return Put(Note(user=to, deal=change.new.deal))

    harness = harness_of(app)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    (parked,) = harness.parked()
    assert (parked.error, notes(harness)) == ("ValueError", [])


def test_a_fan_out_that_cannot_be_declared_says_why():
    app = App("deals", table="Deals")
    with pytest.raises(DeclarationError, match="recipient"):

        @app.fan_out(watchers)
        def alone(change: Inserted[Deal]) -> None: ...

    with pytest.raises(DeclarationError, match="inline=51"):

        @app.fan_out(watchers, inline=51)
        def many(change: Inserted[Deal], to: Watch) -> None: ...

    with pytest.raises(DeclarationError, match="async generator"):

        @app.fan_out(watchers)
        def odd(change: Inserted[Deal], to: str) -> None: ...

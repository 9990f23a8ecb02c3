"""All changes run again, in order, beside the live handlers, until nothing is behind them.

These are rows P8 to P19 of the archive's model, as far as the code goes that way.
"""

from dataclasses import replace

import msgspec
import pytest

from streamkit import Inserted
from streamkit.operate.consumers import list_consumers
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.past.past import PastChanges
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.replay import run as replay_run
from streamkit.operate.replay import to_end as replay_to_end
from streamkit.operate.replay.replay import replay
from streamkit.operate.replay.replayer import TOO_MANY
from streamkit.operate.replay.report import ReplayRefused
from streamkit.operate.status import read_status
from streamkit.stream.decode.pages import read_record
from streamkit.testing import every_crash, every_freeze
from tests.permissions import ACCOUNT, REGION, allows, noted
from tests.simulation.archived import RARELY
from tests.simulation.replays import (
    STATE,
    Copy,
    Label,
    Order,
    Place,
    app_of,
    buggy,
    replayed,
    rig,
    wish,
)


@pytest.fixture
def harness():
    with rig() as found:
        yield found


def to_the_end(harness, *handlers, **more):
    return replayed(harness, *handlers, to_end=True, **more)


def labels(harness):
    return {one.number: one.text for one in harness.scan(Label) if one.number > 0}


def places(harness, number=1):
    return {one.status for one in harness.scan(Place) if one.number == number}


def operations(harness):
    status = harness.operate(lambda aws: read_status(harness.app, aws, clock=harness.world.clock))
    return [one for one in status.operations if one.kind == "replay"]


def under_way(harness):
    return [(one.kind, one.phase) for one in operations(harness)]


def consumers(harness):
    found = harness.operate(lambda aws: list_consumers(aws, "Orders"))
    return {one.name: one.host for one in found}


def test_p14_p18_all_changes_run_again_and_older_ones_have_their_effects(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"), (2, "PLACED"))
    assert places(harness) == {"bug SHIPPED"}
    harness.delete(Place.key(number=1, status="bug SHIPPED"))
    report = to_the_end(harness, "labels", "places")
    assert labels(harness) == {1: "fixed SHIPPED", 2: "fixed PLACED"}
    assert places(harness) == {"fixed SHIPPED"}
    assert (report.handlers["labels"].ran, report.under_way) == (3, False)
    assert "orders.replay" not in consumers(harness)


def test_it_goes_from_the_archive_over_children_into_the_stream(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    harness.roll()
    buggy(harness, (1, "SHIPPED"))
    harness.put(Order(number=2, status="LOST"))
    harness.settle()
    assert to_the_end(harness, "places").handlers["places"].ran == 4
    assert places(harness) >= {"fixed SHIPPED"}
    assert places(harness, 2) >= {"fixed LOST"}
    assert not {"fixed PLACED"} & (places(harness) | places(harness, 2))


def test_only_the_items_that_are_asked_for_run_again(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    done = to_the_end(harness, "labels", keys=["ORDER#2"])
    assert labels(harness) == {1: "bug PLACED", 2: "fixed PLACED"}
    assert done.handlers["labels"].ran == 1


def unreadable(record):
    """Return a record as it is read if its keys are missing."""
    broken = read_record(record.to_bytes(), "no keys")
    place = {"sequence_number": record.sequence_number, "created_at": record.created_at}
    inner = msgspec.structs.replace(broken.dynamodb, **place)
    return msgspec.structs.replace(broken, dynamodb=inner)


def test_records_that_nobody_can_read_are_passed_over_counted_and_listed(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    reading = PastChanges.read

    async def read(self, reader):
        async for page in reading(self, reader):
            mine = [unreadable(r) if r.item_key.pk == "ORDER#1" else r for r in page.records]
            yield msgspec.structs.replace(page, records=tuple(mine))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PastChanges, "read", read)
        report = to_the_end(harness, "labels", show_keys=True)
    assert report.handlers["labels"].passed == {"it cannot be read": 1}
    assert [(row["item"], row["reason"]) for row in report.listed] == [("-", "it cannot be read")]
    assert labels(harness) == {1: "bug PLACED", 2: "fixed PLACED"}


def test_p19_a_change_that_fails_stays_and_the_same_command_goes_on(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    STATE["down"] = True
    since = wish(harness).since
    report = to_the_end(harness, "labels", since=since)
    assert report.under_way
    assert report.handlers["labels"].failed == {"OSError": 1}
    assert [row["reason"] for row in report.listed] == ["failed: OSError"]
    assert [kind for kind, _ in under_way(harness)] == ["replay"]
    assert consumers(harness)["orders.replay"] == "replaying to the end"
    STATE["down"] = False
    assert to_the_end(harness, "labels", since=since).under_way is False
    assert labels(harness) == {1: "fixed SHIPPED"}
    assert under_way(harness) == []


def test_p19_another_replay_waits_until_the_first_one_is_at_its_end_or_is_forgotten(harness):
    buggy(harness, (1, "PLACED"))
    STATE["down"] = True
    to_the_end(harness, "labels")
    STATE["down"] = False
    with pytest.raises(ReplayRefused, match="another replay to the end is under way") as refused:
        to_the_end(harness, "places")
    assert "streamkit consumers delete orders.replay --table Orders --yes" in str(refused.value)
    harness.operate(lambda aws: delete_consumer(aws, "Orders", "orders.replay"))
    assert to_the_end(harness, "places").handlers["places"].ran == 1


def test_the_end_is_behind_whatever_the_app_has_done_by_then(harness, monkeypatch):
    """What it reads is not the end where the app is further."""
    buggy(harness, (1, "PLACED"))
    looked, statuses = replay_run.is_reached, ["SHIPPED", "LOST"]

    def late(position, live):
        return not statuses and looked(position, live)

    monkeypatch.setattr(replay_run, "is_reached", late)
    sleep = replay_run.anyio.sleep

    async def meanwhile(seconds):
        if statuses:
            key = {"S": "ORDER#1"}
            item = {"PK": key, "SK": key, "number": {"N": "1"}, "status": {"S": statuses.pop(0)}}
            await harness._aws.dynamodb.put_item(TableName="Orders", Item=item)
        await sleep(3600)

    monkeypatch.setattr(replay_run.anyio, "sleep", meanwhile)
    report = to_the_end(harness, "labels")
    monkeypatch.undo()
    harness.settle()
    assert report.handlers["labels"].ran == 3
    assert labels(harness) == {1: "fixed LOST"}


def test_p13_what_adds_up_is_refused_and_the_rebuild_is_named(harness):
    for handler in ("counts", "Orders"):
        with pytest.raises(ReplayRefused, match="streamkit aggregate rebuild"):
            to_the_end(harness, handler, allow=[handler])


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("tell", "its recipients may be too many"),
        ("marker", "may claim an item that another source has"),
        ("tells", "may return a Send"),
        ("asks", "it is async"),
    ],
)
def test_handlers_that_cannot_run_to_the_end_are_refused(harness, handler, why):
    with pytest.raises(ReplayRefused, match=why):
        to_the_end(harness, handler)


def test_a_handler_that_looks_at_the_old_image_runs(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    assert to_the_end(harness, "shipped", "from_to").handlers["from_to"].ran == 1
    assert harness.get(Label.key(number=-1)).text == "PLACED to SHIPPED"


def test_mirrors_run_to_the_end_beside_the_others(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.put(Copy(number=1, status="gone wrong"))
    report = to_the_end(harness, "copies", "labels")
    assert (report.handlers["copies"].ran, report.handlers["labels"].ran) == (1, 2)
    assert harness.get(Copy.key(number=1, user="ann")).status == "SHIPPED"
    assert labels(harness) == {1: "fixed SHIPPED"}


def test_a_mirror_with_more_copies_than_fit_in_a_transaction_does_not_stop_a_replay(harness):
    """A mirror has nothing to lose: the next change of its source mends what was passed over."""
    harness.put(*(Copy(number=1, user=str(user)) for user in range(60)))
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    report = to_the_end(harness, "copies", "labels", show_keys=True)
    assert not report.under_way
    assert report.handlers["copies"].passed == {TOO_MANY: 1}
    assert [(row["key"], row["reason"]) for row in report.listed] == [("ORDER#1 ORDER#1", TOO_MANY)]
    assert labels(harness) == {1: "fixed PLACED", 2: "fixed PLACED"}


def test_a_change_that_fails_stops_its_shard_and_no_other():
    with rig(shards=4, settings=RARELY) as harness:
        buggy(harness, *((number, "PLACED") for number in range(1, 13)))
        harness.advance("20m")  # the archive says of each shard by then where it begins
        since = wish(harness).since
        STATE["only"] = 5
        report = to_the_end(harness, "labels", since=since)
        STATE.pop("only")
        assert (report.under_way, report.handlers["labels"].failed) == (True, {"OSError": 1})
        behind = {number for number, text in labels(harness).items() if text == "bug PLACED"}
        assert 5 in behind
        assert 0 < len(behind) < 12
        assert to_the_end(harness, "labels", since=since).handlers["labels"].ran == len(behind)
        assert set(labels(harness).values()) == {"fixed PLACED"}


def test_it_says_how_far_it_is_while_it_runs_and_status_says_so_meanwhile(harness):
    for number in range(6):
        harness.put(*(Order(number=100 * number + n) for n in range(60)))
        harness.settle()
        harness.advance("1h")
    since, told = harness.world.clock.time() - 6 * 3600, []
    STATE["only"] = 300
    to_the_end(harness, "labels", since=since, units=2, tell=told.append)
    STATE.pop("only")
    shares = [one.share for one in told if one.share is not None]
    assert len(shares) >= 2
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 0.6
    assert any(one.left for one in told)
    (shown,) = operations(harness)
    assert 0.3 < shown.share < 0.6
    assert shown.left > 0
    to_the_end(harness, "labels", since=since, tell=told.append)
    assert (told[-1].running, told[-1].share) == (0, pytest.approx(1, abs=0.2))
    assert operations(harness) == []


def lambda_of_orders(change: Inserted[Order]) -> None:
    """It does nothing."""


def test_an_app_that_has_never_run_is_refused():
    with rig() as harness:
        harness.settle()
        app = app_of()
        app.name = "others"
        app.use_archive(harness.app.archive)
        what = replace(wish(harness, "labels"), to_end=True)
        with pytest.raises(ReplayRefused, match="has never run"):
            harness.operate(lambda aws: replay(app, aws, what, clock=harness.world.clock))


def test_code_that_is_not_deployed_is_refused(harness):
    """The live handlers would go on with what they do now."""
    buggy(harness, (1, "PLACED"))
    harness.app.on(lambda_of_orders, name="more")
    with pytest.raises(ReplayRefused, match="deployed with other handlers"):
        to_the_end(harness, "labels")
    assert labels(harness) == {1: "bug PLACED"}
    assert "orders.replay" not in consumers(harness)


@pytest.mark.parametrize("rewind", [{"rewinding": True}, {"asks": "a question"}])
def test_while_its_app_is_rewound_or_may_be_it_is_refused(harness, monkeypatch, rewind):
    buggy(harness, (1, "PLACED"))
    newest_generation = replay_to_end.newest_generation

    async def as_a_rewind_leaves_it(store):
        return replace(await newest_generation(store), **rewind)

    monkeypatch.setattr(replay_to_end, "newest_generation", as_a_rewind_leaves_it)
    with pytest.raises(ReplayRefused, match="is being rewound"):
        to_the_end(harness, "labels")
    assert labels(harness) == {1: "bug PLACED"}


def test_the_name_of_its_consumer_may_be_taken():
    app = app_of()
    app.listener("replay").on(lambda_of_orders)
    with rig(lambda: app) as harness:
        harness.put(Order(number=1))
        harness.settle()
        with pytest.raises(ReplayRefused, match="replay is a consumer already"):
            to_the_end(harness, "labels")
        assert under_way(harness) == []


def test_other_code_begins_anew(harness):
    """What the code before has done is gone over."""
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    since = wish(harness).since
    stopping(harness, since)
    assert labels(harness) == {1: "fixed PLACED", 2: "bug PLACED"}
    STATE["down"] = False
    of_handlers = replay_to_end.fingerprint_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_to_end, "fingerprint_of", lambda h: "v2" + of_handlers(h))
        assert to_the_end(harness, "labels", since=since).handlers["labels"].ran == 2
    assert labels(harness) == {1: "fixed PLACED", 2: "fixed PLACED"}


def stopping(harness, since):
    """Replay until the first change of order 2 fails."""
    STATE["only"] = 2
    report = to_the_end(harness, "labels", since=since)
    STATE.pop("only")
    assert report.under_way
    assert report.handlers["labels"].ran == 1


def test_it_goes_on_behind_what_is_done(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    since = wish(harness).since
    stopping(harness, since)
    assert to_the_end(harness, "labels", since=since).handlers["labels"].ran == 1
    assert labels(harness) == {1: "fixed PLACED", 2: "fixed PLACED"}


@pytest.mark.parametrize("to_end", [False, True])
def test_a_replay_uses_no_more_write_units_than_it_may(harness, to_end):
    for number in range(250):
        harness.put(Order(number=number))
    harness.settle()
    harness.advance("1h")
    took = []
    for units in (None, 4):
        began = harness.world.clock.time()
        report = replayed(harness, "labels", to_end=to_end, units=units)
        took.append(harness.world.clock.time() - began)
        assert report.handlers["labels"].ran == 250
    least = 2 * 250 / 4  # a transaction uses two units for a small item
    assert took[0] + least / 2 <= took[1] <= took[0] + 4 * least


def test_a_look_writes_nothing_and_compares_what_the_latest_changes_make(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"), (1, "SHIPPED"))
    before = harness.items()
    for mode in ("dry-run", "shadow"):
        report = to_the_end(harness, "labels", mode=mode)
        assert harness.items() == before
        done = report.handlers["labels"]
        assert (done.ran, done.items, done.passed.total()) == (3, 3, 0)
        assert done.different == (2 if mode == "shadow" else 0)


def test_an_operator_may_replay_to_the_end_and_workers_may_show_it():
    place = AccountPlace.of(account=ACCOUNT, region=REGION)
    with noted() as requests, rig() as harness:
        buggy(harness, (1, "PLACED"), (2, "PLACED"))
        since = wish(harness).since
        stopping(harness, since)
        asked = requests.of("operation")
        requests.by.clear()
        assert under_way(harness) == [("replay", "to the end")]
        shown = requests.of("operation")
        assert to_the_end(harness, "labels", since=since).under_way is False
        asked |= requests.of("operation")
        for host, what in (("operator", asked), ("worker", shown)):
            policy = policy_for(harness.app, host, place).to_dict()
            assert [one for one in what if not allows(policy, one)] == []
    assert len(asked) > 20


def once_replayed(harness):
    """P19: killed or frozen, it is given again until it is at its end, and all is right then."""
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"), (2, "PLACED"))
    harness.put(Order(number=1, status="LOST"))
    harness.settle()
    try:
        to_the_end(harness, "labels", "places", since=1.0)
    except ReplayRefused:  # the one that stood still has taken over from the one after it
        to_the_end(harness, "labels", "places", since=1.0)
    harness.settle()
    assert labels(harness) == {1: "fixed LOST", 2: "fixed PLACED"}
    assert places(harness) == {"fixed LOST", "bug SHIPPED"}
    assert places(harness, 2) == {"bug PLACED", "fixed PLACED"}
    assert "orders.replay" not in consumers(harness)


def two_shards():
    return rig(shards=2, settings=RARELY)


def test_p19_a_replay_killed_at_any_call_goes_on_when_it_is_given_again():
    assert list(every_crash(once_replayed, two_shards, part="operation", sample=3))


def test_p19_a_replay_frozen_at_any_call_does_no_harm_when_it_thaws():
    assert list(every_freeze(once_replayed, two_shards, part="operation", sample=3))

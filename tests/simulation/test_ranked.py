"""An aggregate with extremes beside counts, from the outside: what it holds, costs and survives."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pydantic
import pytest

from streamkit import (
    Aggregate,
    App,
    Count,
    Entity,
    EpochSeconds,
    First,
    Key,
    Last,
    Max,
    Min,
    Put,
    Removed,
    Sum,
    Top,
    Until,
    bucket,
)
from streamkit.testing.loop import run_virtually
from tests.rigs import Rig
from tests.simulation.contest import Bid, Contest
from tests.simulation.rebuilds import FAST, rebuild

START = datetime(2026, 1, 1, tzinfo=UTC)
LAST_A = {"S": "LAST#a"}
BROKEN: set[str] = set()


class Log(Entity, pk="DEVICE#{device}", sk="LOG#{number:04d}"):
    device: str
    number: int
    at: datetime | None = None
    state: str = "on"
    size: int = 1


class Brief(pydantic.BaseModel):
    number: int
    state: str


def brief(log):
    if log.state in BROKEN:
        raise ValueError("cannot be shown")
    return Brief(number=log.number, state=log.state)


class Seen(Aggregate[Log], pk="SEEN#{device}", sk="SEEN#{device}"):
    device: str
    logs: Annotated[int, Count()] = 0
    size: Annotated[int, Sum("size")] = 0
    first: Annotated[datetime | None, Min("at")] = None
    last: Annotated[datetime | None, Max("at", when=lambda log: log.state != "test")] = None
    first_state: Annotated[str | None, First("state", by="at")] = None
    last_state: Annotated[str | None, Last("state", by="at")] = None
    latest: Annotated[tuple[Brief, ...], Top(3, by="number", of=brief)] = ()

    @classmethod
    def group(cls, log: Log) -> Key["Seen"]:
        return cls.key(device=log.device)

    @classmethod
    def members(cls, device: str):
        return Log.query(device=device)


class OfDevice(Aggregate[Log], pk="LAST#{device}", sk="LAST#{device}"):
    device: str
    newest: Annotated[int | None, Max("number")] = None

    @classmethod
    def group(cls, log: Log) -> Key["OfDevice"]:
        return cls.key(device=log.device)

    @classmethod
    def members(cls, device: str):
        return Log.query(device=device)


def make_app(*aggregates):
    app = App("seen", table="Logs")
    for aggregate in aggregates:
        app.aggregate(aggregate)
    return app


def log(number, day=None, device="a", **fields):
    at = None if day is None else START + timedelta(days=day)
    return Log(device=device, number=number, at=at, **fields)


def group_reads(harness):
    """Return the queries of a group's items."""
    calls = [call for call in harness.world.calls if call.operation == "Query"]
    return [call for call in calls if "DEVICE#" in str(call.payload)]


def writes_of(harness, prefix):
    """Return the accepted transactions that write an item with such a key."""
    return [
        call
        for call in harness.world.calls
        if call.operation == "TransactWriteItems"
        and call.status == 200
        and any(
            part.get("Key", {}).get("PK", {}).get("S", "").startswith(prefix)
            for entry in call.payload["TransactItems"]
            for part in entry.values()
        )
    ]


def test_an_aggregate_shows_its_extremes_beside_its_counts(harness_of):
    harness = harness_of(make_app(Seen))
    harness.put(log(1, 3, state="on"), log(2, 1, state="off"), log(3, 9, state="test"), log(4))
    harness.settle()
    seen = harness.get(Seen.key(device="a"))
    assert (seen.logs, seen.size) == (4, 4)
    assert (seen.first, seen.last) == (START + timedelta(days=1), START + timedelta(days=3))
    assert (seen.first_state, seen.last_state) == ("off", "test")
    assert [shown.number for shown in seen.latest] == [4, 3, 2]


def test_who_comes_next_is_read_from_the_group_when_the_best_leaves(harness_of):
    harness = harness_of(make_app(OfDevice))
    harness.put(*(log(number) for number in range(5)))
    harness.settle()
    harness.delete(log(4).item_key)
    harness.settle()
    assert harness.get(OfDevice.key(device="a")).newest == 3
    harness.delete(log(1).item_key)
    harness.settle()
    assert harness.get(OfDevice.key(device="a")).newest == 3
    assert len(group_reads(harness)) == 1


def test_an_emptied_group_keeps_its_item_and_counts_on(harness_of):
    harness = harness_of(make_app(OfDevice))
    harness.put(log(1))
    harness.settle()
    harness.delete(log(1).item_key)
    harness.settle()
    assert harness.get(OfDevice.key(device="a")) == OfDevice(device="a")
    (item,) = [i for i in harness.world.items("Logs") if i["PK"]["S"].startswith("LAST#")]
    assert item["_rev"] == {"N": "2"}


class Daily(Aggregate[Log], pk="DAY#{device}", sk="DAY#{day:%Y-%m-%d}"):
    device: str
    day: datetime
    largest: Annotated[int | None, Max("size")] = None
    expires: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=2))] = None

    @classmethod
    def group(cls, log: Log) -> Key["Daily"] | None:
        return log.at and cls.key(device=log.device, day=bucket(log.at, "day", tz="UTC"))

    @classmethod
    def members(cls, device: str, day: datetime):
        return Log.query(device=device)


def test_extremes_of_a_bucket_that_is_over_are_not_written(harness_of):
    harness = harness_of(make_app(Daily))
    now = datetime.fromtimestamp(harness.world.clock.time(), UTC)
    harness.put(
        Log(device="a", number=1, at=now - timedelta(days=10), size=7),
        Log(device="a", number=2, at=now, size=3),
    )
    harness.settle()
    (kept,) = harness.scan(Daily)
    assert (kept.largest, kept.day.date()) == (3, now.date())
    assert kept.expires is not None


def test_extremes_of_a_bucket_that_a_rebuild_computes_live_as_long_as_others(harness_of):
    harness = harness_of(make_app(Daily), settings=FAST)
    now = datetime.fromtimestamp(harness.world.clock.time(), UTC)
    harness.put(Log(device="a", number=1, at=now, size=3))
    harness.settle()
    before = harness.scan(Daily)
    rebuild(harness, aggregate="Daily")
    assert harness.scan(Daily) == before
    assert before[0].expires is not None


def test_an_item_that_moves_leaves_one_group_and_enters_another(harness_of):
    class OfState(Aggregate[Log], pk="STATE#{state}#{device}", sk="STATE"):
        state: str
        device: str
        newest: Annotated[int | None, Max("number")] = None

        @classmethod
        def group(cls, log: Log) -> list[Key["OfState"]]:
            return [cls.key(state=state, device=log.device) for state in (log.state, "any")]

        @classmethod
        def members(cls, state: str, device: str):
            return Log.query(device=device)

    harness = harness_of(make_app(OfState))
    harness.put(log(1), log(2))
    harness.settle()
    harness.put(log(2, state="off"))
    harness.settle()
    for state, newest in {"on": 1, "off": 2, "any": 2}.items():
        assert harness.get(OfState.key(state=state, device="a")).newest == newest


@pytest.mark.parametrize(
    "members",
    [lambda state: Log.query(device=state), lambda **_: Log.query(device="a").between(high=0)],
    ids=["another partition", "another part of it"],
)
def test_a_group_that_is_no_partition_is_found_out_before_it_is_wrong(harness_of, members):
    class Newest(Aggregate[Log], pk="NEWEST", sk="{state}"):
        state: str
        newest: Annotated[int | None, Max("number")] = None

        @classmethod
        def group(cls, log: Log) -> Key["Newest"]:
            return cls.key(state=log.state)

        @classmethod
        def members(cls, state: str):
            return members(state=state)

    harness = harness_of(make_app(Newest))
    harness.put(log(1))
    harness.settle()
    assert [change.error for change in harness.parked()] == ["DeclarationError"]
    assert harness.get(Newest.key(state="on")) is None


def test_changes_of_one_group_that_come_together_are_one_commit_and_one_read(harness_of):
    harness = harness_of(make_app(OfDevice), shards=1)
    harness.put(*(log(number) for number in range(80)))
    harness.settle()
    assert harness.get(OfDevice.key(device="a")).newest == 79
    assert len(writes_of(harness, "LAST#")) == 1
    reads = [call for call in harness.world.calls if call.operation == "GetItem"]
    assert sum("LAST#a" in str(call.payload) for call in reads) == 2  # one is this test's


def test_a_change_that_changes_nothing_an_extreme_looks_at_reads_nothing(harness_of):
    harness = harness_of(make_app(OfDevice))
    harness.put(log(1))
    harness.settle()
    before = len(writes_of(harness, "LAST#"))
    harness.put(log(1, state="off"), log(1, state="on"))
    harness.settle()
    assert len(writes_of(harness, "LAST#")) == before


def test_an_older_value_that_was_parked_does_not_come_back_after_a_newer_one(harness_of):
    harness = harness_of(make_app(Seen))
    BROKEN.add("broken")
    harness.put(log(7, 5, state="broken"))
    harness.settle()
    BROKEN.clear()
    harness.put(log(7, 2, state="mended"))
    harness.settle()
    harness.advance("1h")
    harness.settle()
    assert harness.parked() == []
    seen = harness.get(Seen.key(device="a"))
    assert (seen.last, seen.last_state) == (START + timedelta(days=2), "mended")


def test_the_group_is_read_as_it_is_committed_not_as_a_handler_will_leave_it(harness_of):
    app = App("pending", table="Logs")

    @app.on
    def replaces(change: Removed[Log]) -> Put[Log] | None:
        """Writes a member of the group, in the page in which the best one leaves."""
        return Put(log(3, size=2)) if change.old.number == 8 else None

    app.aggregate(OfDevice)
    harness = harness_of(app, shards=1)
    stages = []
    harness.world.watchers.append(
        lambda seen: stages.extend(w.new["newest"] for w in seen.writes if w.keys["PK"] == LAST_A)
    )
    harness.put(log(1), log(8), log(9))
    harness.settle()
    harness.delete(log(8).item_key)
    harness.delete(log(9).item_key)
    harness.settle()
    assert stages == [{"N": "9"}, {"N": "1"}, {"N": "3"}]
    assert len(group_reads(harness)) == 1


def calls_until_committed():
    """Count the calls of a worker from a change in which the best leaves until it has committed."""
    with Rig(make_app(Seen), shards=1) as harness:
        before = prepare(harness)
        while harness.get(Seen.key(device="a")).latest[0].number == 5:
            harness.advance(0.1)
        return harness.calls - before


def prepare(harness):
    harness.put(log(1, 3), log(2, 1), log(3, 2), log(5, 7))
    harness.settle()
    calls = harness.calls
    harness.delete(log(5).item_key)
    harness.put(log(2, 8, state="off"))
    return calls


def test_a_worker_killed_at_any_call_leaves_the_extremes_right():
    calls = calls_until_committed()
    for call, moment in itertools.product(range(calls), ("before", "after")):
        with Rig(make_app(Seen), shards=1) as harness:
            prepare(harness)
            harness.crash(at=call, moment=moment)
            harness.settle()
            assert harness.restarts == 1
            seen = harness.get(Seen.key(device="a"))
        assert (seen.logs, seen.last) == (3, START + timedelta(days=8))
        assert (seen.first, seen.first_state) == (START + timedelta(days=2), "on")
        assert [shown.number for shown in seen.latest] == [3, 2, 1]


def test_a_group_that_many_shards_write_is_kept_without_parking_anything():
    async def traffic():
        contest = Contest(1, shards=4, lots=("a",), items=120, writes=2)
        for number in range(120):
            contest.put(Bid(lot="a", number=number, amount=number, text="x"))
        await contest.play()
        return contest

    contest = run_virtually(traffic)
    assert contest.is_right
    assert not any("_sk_lane" in str(call.payload) for call in contest.world.calls)
    assert contest.commits().total() < 40, contest.commits()

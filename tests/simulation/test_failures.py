"""What fails heals by itself, or ends with a person; nothing is lost or overtaken on the way."""

import itertools

import anyio
import pytest
import structlog

from streamkit import (
    Add,
    App,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    Set,
    Table,
)
from streamkit.local.transport import Response
from streamkit.settings import Settings
from streamkit.testing.every import chosen
from streamkit.worker.automatic_retries import AT_ONCE
from tests.orders import Journal, Order
from tests.rigs import Rig

SETTINGS = Settings(poll_ceiling=10, heartbeat=60, lease=150, list_interval=60, look_interval=30)
PATIENT = Settings(
    poll_ceiling=600, heartbeat=300, lease=750, list_interval=1500, look_interval=600
)
"""For hours: each poll costs real time."""
BRISK = Settings(poll_ceiling=10, heartbeat=10, lease=25, list_interval=60)
"""For takeovers."""


class Downstream:
    """Something that a handler calls: it fails while it is down, and for some changes always."""

    def __init__(self, error=RuntimeError):
        self.down = True
        self.error = error
        self.calls = 0
        self.poison = set()

    def use(self, status=""):
        self.calls += 1
        if self.down or status in self.poison:
            raise self.error("the downstream is broken")


def journalling(downstream, *, pause=0.0, **policy):
    """An app that writes down, in order, the statuses that an order has had."""
    app = App("shop", table="shop", policy=Policy(**{"attempts": 1} | policy))

    @app.on
    async def journal(change: Inserted[Order] | Modified[Order], table: Table) -> Set[Journal]:
        await anyio.sleep(pause)
        downstream.use(change.new.status)
        key = Journal.key(number=change.new.number)
        before = await table.get(key)
        return Set(key, lines=(before.lines if before else "") + change.new.status)

    return app


@pytest.fixture
def world_of(harness_of):
    return lambda app, settings=SETTINGS: harness_of(app, settings=settings)


def lines(harness, number=1):
    journal = harness.get(Journal.key(number=number))
    return journal.lines if journal else ""


def queues(harness):
    items = harness.world.items("shop")
    return [item for item in items if item.get("_sk_kind") == {"S": "lane"}]


def test_a_ten_minute_outage_downstream_heals_without_a_person(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream))
    for status in "ABC":
        harness.put(*(Order(number=number, status=status) for number in range(3)))
        harness.settle()
    harness.advance("10m")
    assert len(harness.parked()) == 9
    downstream.down = False
    harness.advance("19m")  # a pause of fifteen minutes may just have begun
    assert harness.parked() == []
    assert [lines(harness, number) for number in range(3)] == ["ABC"] * 3
    calls = downstream.calls
    harness.put(Order(number=1, status="D"))
    harness.settle()
    assert lines(harness) == "ABCD"
    assert downstream.calls == calls + 1


def test_a_change_that_always_fails_is_stuck_after_the_documented_number_of_tries(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream), PATIENT)
    harness.put(Order(number=1, status="A"))
    with structlog.testing.capture_logs() as logs:
        harness.settle()
        harness.advance("3h")
    assert downstream.calls == 1 + Policy().retry_limit
    first, *sums = [log for log in logs if log["event"] == "queue.retried"]
    assert "times" not in first
    assert len(sums) <= 5, "an outage is told in a few lines, and not in one for each retry"
    assert (sums[-1]["times"], sums[-1]["over"]) == (Policy().retry_limit - 1, True)
    (stuck,) = [log for log in logs if log["event"] == "queue.stuck"]
    assert (stuck["handler"], stuck["error"], stuck["log_level"]) == (
        "journal",
        "RuntimeError",
        "error",
    )
    (queue,) = queues(harness)
    assert queue["_sk_stuck"] == {"BOOL": True}
    assert "_sk_due" not in queue
    downstream.down = False
    harness.advance("2h")
    assert len(harness.parked()) == 1
    harness.redrive()
    assert lines(harness) == "A"


def test_pauses_between_tries_grow_up_to_fifteen_minutes(world_of):
    times = []
    app = App("shop", table="shop")

    @app.on(attempts=1)
    def journal(change: Inserted[Order]) -> None:
        times.append(harness.world.clock.time())
        raise RuntimeError

    harness = world_of(app, PATIENT)
    harness.put(Order(number=1))
    harness.settle()
    harness.advance("3h")
    pauses = [after - before for before, after in itertools.pairwise(times)]
    for pause, wanted in zip(pauses, [5, 15, 45, 135, 405, 900, 900, 900, 900, 900], strict=True):
        assert wanted * 0.75 <= pause <= wanted * 1.25 + 6


def test_what_a_handler_calls_poison_is_stuck_at_once(world_of):
    downstream = Downstream(error=PoisonChange)
    harness = world_of(journalling(downstream), PATIENT)
    harness.put(Order(number=1, status="A"), Order(number=1, status="B"))
    harness.settle()
    harness.advance("3h")
    assert downstream.calls == 1
    assert queues(harness)[0]["_sk_stuck"] == {"BOOL": True}


def test_a_hand_redrive_that_fails_begins_the_tries_anew(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream, retry_limit=3), PATIENT)
    harness.put(Order(number=1, status="A"))
    harness.settle()
    harness.advance("1h")
    calls = downstream.calls
    assert calls == 1 + 3
    harness.redrive()
    harness.advance("1h")
    assert downstream.calls == calls + 3  # by hand, then two on its own
    assert "_sk_stuck" in queues(harness)[0]
    harness.redrive()
    downstream.down = False
    harness.advance("1h")
    assert harness.parked() == []


def test_an_item_that_does_not_fit_its_entity_is_parked_and_heals_with_the_item_shape(world_of):
    downstream = Downstream()
    downstream.down = False
    harness = world_of(journalling(downstream))
    item = {"PK": "ORDER#1", "SK": "ORDER", "number": "1", "status": "A"}
    wire = {name: {"S": text} for name, text in item.items()} | {"number": {"S": "one"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": "shop", "Item": wire})
    harness.put(Order(number=1, status="B"))
    harness.settle()
    first, second = harness.parked()
    assert (first.error, second.error) == ("DecodeError", None)
    assert "_sk_due" in queues(harness)[0]
    assert downstream.calls == 0


def test_a_record_too_large_for_one_item_is_retried_from_its_parts(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream))
    harness.put(Order(number=1, status="A", text="y" * 380_000))
    harness.settle()
    (parked,) = harness.parked()
    assert parked.parts == 2
    downstream.down = False
    harness.advance("30m")
    assert lines(harness) == "A"
    left = [i["_sk_kind"]["S"] for i in harness.world.items("shop") if "_sk_kind" in i]
    assert {"parked", "part", "lane"}.isdisjoint(left)


def test_a_record_too_large_for_a_transaction_is_parked_with_its_keys_alone(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream))
    for status in "AB":
        harness.put(Order(number=1, status=status, text="\x01" * 395_000))
    harness.settle()
    assert [parked.payload for parked in harness.parked()] == ["whole", "keys"]
    downstream.down = False
    harness.advance("30m")
    assert lines(harness) == "AB"


def test_parked_changes_heal_after_the_worker_is_killed_and_its_shards_have_split(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream))
    harness.put(*(Order(number=n, status=s) for s in "AB" for n in range(5)))
    harness.settle()
    harness.crash()
    harness.split()
    harness.settle()
    harness.roll()
    harness.put(*(Order(number=n, status="C") for n in range(5)))
    harness.settle()
    downstream.down = False
    harness.advance("30m")
    assert harness.parked() == []
    assert [lines(harness, number) for number in range(5)] == ["ABC"] * 5


@pytest.mark.parametrize("seed", range(12))
def test_changes_that_arrive_while_a_hold_is_lifted_are_neither_stranded_nor_overtake(seed):
    downstream = Downstream()
    app = journalling(downstream, pause=0.7, retry_seconds=3.0, retry_seconds_max=3.0)
    with Rig(app, settings=SETTINGS, seed=seed, shards=1) as harness:
        written = ""
        for step, status in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
            downstream.down = step % 5 < 2
            harness.put(Order(number=1, status=status))
            written += status
            harness.worker.ensure()
            harness.advance(0.3 + (seed * 7 + step * 3) % 11 * 0.3)
        downstream.down = False
        harness.settle()
        harness.advance("2m")
        assert harness.parked() == []
        assert lines(harness) == written
        assert queues(harness) == []


def test_a_crash_at_any_call_of_an_automatic_retry_loses_and_repeats_nothing():
    def scenario(crash):
        downstream = Downstream()
        with Rig(counting(downstream), settings=BRISK, shards=1) as harness:
            harness.put(Order(number=1, status="A"), Order(number=1, status="B"))
            harness.settle()
            assert len(harness.parked()) == 2
            downstream.down = False
            before = harness.calls
            if crash is not None:
                harness.crash(at=crash[0], moment=crash[1])
            harness.advance("30s")
            calls = harness.calls - before
            harness.settle()  # starts another worker, if this one is dead
            harness.advance("30s")
            assert harness.parked() == []
            assert queues(harness) == []
            assert harness.get(Journal.key(number=1)).count == 2
            return calls

    stops = [*itertools.product(range(scenario(None)), ("before", "after"))]
    assert len(stops) > 40
    for stop in chosen(stops, 6, seed=0):
        scenario(stop)


def counting(downstream, **policy):
    """An app whose handler is pure: dispatch runs it ahead of everything else."""
    app = App("shop", table="shop", policy=Policy(**{"attempts": 1} | policy))

    @app.on
    def counted(change: Inserted[Order] | Modified[Order]) -> Add[Journal]:
        downstream.use(change.new.status)
        return Add(Journal.key(number=1), count=1)

    return app


@pytest.mark.parametrize("make", [journalling, counting])
def test_a_release_that_fails_for_every_change_parks_a_few_and_then_waits(world_of, make):
    downstream = Downstream()
    harness = world_of(make(downstream))
    with structlog.testing.capture_logs() as logs:
        harness.put(*(Order(number=number, status="A") for number in range(200)))
        harness.worker.ensure()
        harness.advance("20m")
        assert len(harness.parked()) < 40  # before anything is known, on pages of two shards
        downstream.down = False
        harness.advance("40m")
    assert harness.parked() == []
    if make is counting:
        assert harness.get(Journal.key(number=1)).count == 200
    else:
        assert {lines(harness, number) for number in range(200)} == {"A"}
    events = [log["event"] for log in logs]
    assert (events.count("breaker.opened"), events.count("breaker.closed")) == (1, 1)
    assert 20 < events.count("handler.blocks") < 200


@pytest.mark.parametrize("make", [journalling, counting])
def test_a_worker_that_waits_for_a_broken_handler_can_be_stopped_and_loses_nothing(world_of, make):
    downstream = Downstream()
    harness = world_of(make(downstream))
    harness.put(*(Order(number=number, status="A") for number in range(60)))
    harness.worker.ensure()
    harness.advance("2m")
    began = harness.world.clock.time()
    harness.stop()
    assert harness.world.clock.time() - began < 5
    assert len(harness.parked()) < 40
    downstream.down = False
    harness.settle()
    harness.advance("10m")
    assert harness.parked() == []
    if make is counting:
        assert harness.get(Journal.key(number=1)).count == 60
    else:
        assert {lines(harness, number) for number in range(60)} == {"A"}


def test_a_few_poisonous_changes_among_many_do_not_stop_a_shard(world_of):
    downstream = Downstream()
    downstream.down, downstream.poison = False, {"BAD"}
    harness = world_of(journalling(downstream))
    harness.put(
        *(Order(number=n, status="BAD" if n % 3 == 0 else "A") for n in range(150)),
    )
    harness.settle()
    assert len(harness.parked()) == 50


def test_without_a_breaker_everything_that_fails_is_parked(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream, breaker=False))
    harness.put(*(Order(number=number, status="A") for number in range(60)))
    harness.settle()
    assert len(harness.parked()) == 60


def test_a_change_parked_with_its_keys_alone_is_retried_from_the_stream(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream, payload="keys"))
    harness.put(Order(number=1, status="SECRET"), Order(number=1, status="B"))
    harness.settle()
    assert len(harness.parked()) == 2
    kept = [i for i in harness.world.items("shop") if i.get("_sk_kind") == {"S": "parked"}]
    assert b"SECRET" not in b"".join(item["_sk_record"]["B"].encode() for item in kept)
    assert b"SECRET" not in repr(kept).encode()
    assert all("broken" not in item.get("_sk_detail", {"S": ""})["S"] for item in kept)
    downstream.down = False
    harness.advance("30m")
    assert harness.parked() == []
    assert lines(harness) == "SECRETB"


def test_a_change_parked_with_its_keys_alone_is_stuck_once_the_stream_has_dropped_it(world_of):
    downstream = Downstream()
    harness = world_of(
        journalling(downstream, payload="keys", retry_seconds=90000.0, retry_seconds_max=90000.0),
        PATIENT,
    )
    harness.put(Order(number=1, status="A"))
    harness.settle()
    downstream.down = False
    for _ in range(4):
        harness.roll()
        harness.advance("7h")
    (parked,) = harness.parked()
    assert parked.error == "RecordGone"
    assert "_sk_stuck" in queues(harness)[0]
    assert lines(harness) == ""


def test_an_unavailable_table_only_delays_retries(world_of):
    downstream = Downstream()
    harness = world_of(journalling(downstream))
    harness.put(Order(number=1, status="A"))
    harness.settle()
    downstream.down = False
    refused = []

    async def intercept(call, apply):
        if call.operation == "TransactWriteItems" and harness.world.clock.time() < until:
            refused.append(call)
            return Response(400, b'{"__type":"x#ThrottlingException","message":"slow down"}')
        return apply()

    until = harness.world.clock.time() + 300
    harness.worker.process.faults = Faulty(intercept)
    harness.advance("30m")
    assert refused
    assert harness.parked() == []
    assert lines(harness) == "A"


def test_what_cannot_be_read_for_some_changes_holds_up_no_retries_of_others(world_of):
    downstream = Downstream()
    app = App("shop", table="shop", entities=[Journal], policy=Policy(attempts=1, breaker=False))

    @app.on
    async def count(change: Inserted[Order], table: Table) -> Add[Journal]:
        downstream.use()
        number = change.new.number
        await table.get(Journal.key(number=99 if number else 98))
        return Add(Journal.key(number=number), count=1)

    async def intercept(call, apply):
        if call.operation == "GetItem" and b"JOURNAL#99" in call.payload:
            return Response(400, b'{"__type":"x#ThrottlingException","message":"slow down"}')
        return apply()

    harness = world_of(app)
    harness.put(*(Order(number=number) for number in range(2 * AT_ONCE)))
    harness.settle()
    downstream.down = False
    harness.worker.process.faults = Faulty(intercept)
    harness.advance("5m")
    assert harness.get(Journal.key(number=0)).count == 1
    assert len(harness.parked()) == 2 * AT_ONCE - 1
    harness.worker.process.faults = None
    harness.advance("5m")
    assert harness.parked() == []


class Faulty:
    """Stands for a fault plan: answers calls as a function says."""

    def __init__(self, intercept):
        self.intercept = intercept

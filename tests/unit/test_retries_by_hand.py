"""Parked changes leave their queue once and in order, also when redrives and workers interleave."""

import random
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Check,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Set,
    Table,
    present,
)
from streamkit.aws import connect
from streamkit.core.parked.queues import Selection, parked_queues
from streamkit.core.tables import open_store
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.operate.redrive import discard, list_parked, open_redriver, redrive, show
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from streamkit.worker.worker import Worker
from tests.orders import Journal, Order
from tests.tables import streamed

SETTINGS = Settings(poll_floor=0.005, poll_ceiling=0.01, heartbeat=60, lease=150)
TABLE = streamed("shop", "pk", "sk")


class Row(Entity, pk="ROW#{number}", sk="ROW#{place:03d}"):
    number: int
    place: int


class Broken:
    """A downstream that fails while it is down."""

    def __init__(self, error=PoisonChange):
        self.down, self.error = True, error
        self.statuses = set()

    def use(self, status=""):
        if self.down or status in self.statuses:
            raise self.error("the downstream is broken")


class World:
    """A table on an engine of its own, and what a test does to it."""

    def __init__(self, aws, engine):
        self.aws = aws
        self.engine = engine

    async def put(self, *orders):
        for order in orders:
            await self.aws.dynamodb.put_item(
                TableName="shop",
                Item={
                    "pk": {"S": f"ORDER#{order.number}"},
                    "sk": {"S": "ORDER"},
                    "number": {"N": str(order.number)},
                    "status": {"S": order.status},
                    "text": {"S": order.text},
                },
            )

    async def work(self, app):
        await Worker(app, self.aws, SETTINGS, rng=random.Random(7)).run(until_idle=True)

    async def store(self, app) -> CursorStore:
        return await open_store(app, self.aws)

    async def parked(self, app):
        return await list_parked(await self.store(app))

    def items(self, prefix):
        _, body = self.engine.call("dynamodb", "Scan", {"TableName": "shop"})
        return [item for item in body["Items"] if item["pk"]["S"].startswith(prefix)]

    def control(self, kind):
        return [item for item in self.items("_sk#") if item.get("_sk_kind") == {"S": kind}]

    def journal(self, number):
        (item,) = self.items(f"JOURNAL#{number}") or [{}]
        return item.get("lines", {"S": ""})["S"]


@asynccontextmanager
async def opened(**transport):
    engine = Engine(rng=random.Random(3), shards=2)
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine, **transport)) as aws:
        yield World(aws, engine)


@pytest.fixture
async def world():
    async with opened() as world:
        yield world


def journalling(broken, *, meanwhile=None):
    """An app that writes down, in order, the statuses that an order has had."""
    app = App("shop", table="shop")

    @app.on(attempts=1)
    async def journal(change: Inserted[Order] | Modified[Order], table: Table):
        broken.use(change.new.status)
        if meanwhile is not None:
            await meanwhile(change)
        key = Journal.key(number=change.new.number)
        before = await table.get(key)
        lines = (before.lines if before else "") + change.new.status + " "
        return Set(key, lines=lines)

    return app


async def test_a_queue_is_redriven_in_order_and_leaves_nothing_behind(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(Order(number=1, status="A"), Order(number=1, status="B"))
    await world.work(app)
    await world.put(Order(number=1, status="C"))
    await world.work(app)
    changes = await world.parked(app)
    assert [change.error for change in changes] == ["PoisonChange", None, None]
    assert [change.position for change in changes] == sorted(c.position for c in changes)
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert (report.handler, report.done, report.failed) == ("journal", 3, False)
    assert world.journal(1) == "A B C "
    assert world.control("lane") == world.control("parked") == []
    assert [item for item in world.control("holds") if "_sk_lanes" in item] == []
    assert await redrive(app, world.aws) == []


async def test_after_a_redrive_the_queue_is_not_held_any_more(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(Order(number=1, status="A"))
    await world.work(app)
    broken.down = False
    await redrive(app, world.aws)
    await world.put(Order(number=1, status="B"))
    await world.work(app)
    assert await world.parked(app) == []
    assert world.journal(1) == "A B "


async def test_several_queues_are_redriven_at_a_time(world):
    broken, begun, both = Broken(), set(), anyio.Event()

    async def meet(change):
        begun.add(change.new.number)
        if len(begun) == 2:
            both.set()
        await both.wait()

    app = journalling(broken, meanwhile=meet)
    await world.put(Order(number=1, status="A"), Order(number=2, status="A"))
    await world.work(app)
    broken.down = False
    with anyio.fail_after(10):
        reports = await redrive(app, world.aws)
    assert [report.done for report in reports] == [1, 1]
    assert world.journal(1) == world.journal(2) == "A "


async def test_a_change_that_fails_again_stays_first_and_says_how_often(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(Order(number=1, status="A"), Order(number=1, status="B"))
    await world.work(app)
    for attempts in (2, 3):
        (report,) = await redrive(app, world.aws)
        assert report.failed
        assert report.done == 0
        first, second = await world.parked(app)
        assert (first.attempts, second.attempts) == (attempts, 0)
    assert world.journal(1) == ""


async def test_a_redrive_stops_at_the_change_that_fails_and_keeps_what_is_done(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(*(Order(number=1, status=status) for status in "ABC"))
    await world.work(app)
    broken.down, broken.statuses = False, {"B"}
    (report,) = await redrive(app, world.aws)
    assert (report.done, report.failure.kind) == (1, "PoisonChange")
    assert world.journal(1) == "A "
    first, second = await world.parked(app)
    assert (first.error, second.error) == ("PoisonChange", None)


async def test_two_redrivers_at_once_give_each_effect_once(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(*(Order(number=n, status=status) for status in "ABC" for n in (1, 2)))
    await world.work(app)
    broken.down = False
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(redrive, app, world.aws)
    assert [world.journal(number) for number in (1, 2)] == ["A B C ", "A B C "]
    assert await world.parked(app) == []
    assert world.control("parked") == []


async def test_a_change_queued_while_the_last_one_is_redriven_is_redriven_too(world):
    broken = Broken()
    queued = []

    async def meanwhile(change):
        if not queued:
            queued.append(change)
            broken.down = True
            await world.put(Order(number=1, status="LATE"))
            await world.work(app)
            broken.down = False

    app = journalling(broken, meanwhile=meanwhile)
    await world.put(Order(number=1, status="A"))
    await world.work(app)
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert report.done == 2
    assert world.journal(1) == "A LATE "
    assert world.control("lane") == []


async def test_what_was_read_and_changed_before_the_commit_is_read_again(world):
    broken = Broken()
    edits = ["x ", "y "]
    app = App("shop", table="shop")

    @app.on(attempts=1)
    async def journal(change: Inserted[Order], table: Table):
        broken.use()
        before = await table.get(Journal.key(number=1))
        if edits:
            await world.aws.dynamodb.put_item(
                TableName="shop",
                Item={
                    "pk": {"S": "JOURNAL#1"},
                    "sk": {"S": "JOURNAL"},
                    "number": {"N": "1"},
                    "lines": {"S": edits.pop()},
                },
            )
        return Set(Journal.key(number=1), lines=(before.lines if before else "") + "end")

    await world.put(Order(number=1))
    await world.work(app)
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert report.done == 1
    assert world.journal(1) == "x end"


@pytest.mark.parametrize(
    ("otherwise", "done", "count"), [("omit", 1, "1"), ("skip", 1, None), ("park", 0, None)]
)
async def test_a_condition_that_does_not_hold_has_its_declared_outcome(
    world, otherwise, done, count
):
    broken = Broken()
    app = App("shop", table="shop")

    @app.on
    def once(change: Inserted[Order]):
        broken.use()
        number = change.new.number
        return [
            Put(Row(number=number, place=0)).only_if(present, otherwise=otherwise),
            Add(Journal.key(number=number), count=1),
        ]

    await world.put(Order(number=1))
    await world.work(app)
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert report.done == done
    assert [item["count"]["N"] for item in world.items("JOURNAL#")] == ([count] if count else [])
    assert world.items("ROW#") == []
    assert len(await world.parked(app)) == 1 - done


async def test_a_result_that_asks_to_be_retried_for_ever_stays_parked(world):
    broken = Broken()
    app = App("shop", table="shop")

    @app.on
    def checked(change: Inserted[Order]):
        broken.use()
        return Check(Journal.key(number=9), present, otherwise="retry")

    await world.put(Order(number=1))
    await world.work(app)
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert report.failure.kind == "Contended"


async def test_a_result_of_99_items_is_redriven_whole_and_cleaned_up_after(world):
    broken = Broken()
    app = App("shop", table="shop")

    @app.on
    def rows(change: Inserted[Order]):
        broken.use()
        return [Put(Row(number=change.new.number, place=place)) for place in range(99)]

    await world.put(Order(number=1, text="x" * 350_000))
    await world.work(app)
    assert len(world.control("part")) == 2
    broken.down = False
    (report,) = await redrive(app, world.aws)
    assert report.done == 1
    assert len(world.items("ROW#")) == 99
    assert world.control("parked") == world.control("part") == world.control("lane") == []
    assert [item for item in world.control("holds") if "_sk_lanes" in item] == []


async def test_a_large_record_is_shown_and_redriven_from_its_parts(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(Order(number=1, status="A", text="y" * 380_000))
    await world.work(app)
    store = await world.store(app)
    (queue,) = await parked_queues(store)
    shown = await show(store, queue.name)
    assert shown.record.count(b"y") >= 380_000
    assert await show(store, queue.name, "0" * 40) is None
    assert await show(store, "nosuchqueue") is None
    broken.down = False
    await redrive(app, world.aws)
    assert world.journal(1) == "A "
    assert world.control("part") == []


@pytest.mark.parametrize("error", [PoisonChange, RuntimeError], ids=["stuck", "due"])
async def test_a_handler_that_the_app_does_not_have_any_more_is_named_and_left_parked(world, error):
    await world.put(Order(number=1))
    await world.work(journalling(Broken(error)))
    newer = App("shop", table="shop")

    @newer.on
    def another(change: Inserted[Order]):
        return None

    before = await parked_queues(await world.store(newer))
    (report,) = await redrive(newer, world.aws)
    assert report.failure.kind == "HandlerMissing"
    assert "'journal'; its queue stays as it is, for workers that have it" in report.failure.detail
    (left,) = await world.parked(newer)
    assert left.attempts == 1
    assert await parked_queues(await world.store(newer)) == before
    stuck = error is PoisonChange
    assert (report.stuck, report.due) == (stuck, None if stuck else before[0].due)


async def test_a_kind_of_change_that_the_handler_does_not_take_any_more_is_left_parked(world):
    await world.put(Order(number=1))
    await world.work(journalling(Broken()))
    newer = App("shop", table="shop")

    @newer.on
    def journal(change: Modified[Order]):
        raise AssertionError

    (report,) = await redrive(newer, world.aws)
    assert report.failure.kind == "ChangeUnwanted"
    assert len(await world.parked(newer)) == 1


async def test_a_blocking_or_skipping_handler_neither_hangs_a_redrive_nor_loses_the_change(world):
    await world.put(Order(number=1))
    await world.work(journalling(Broken()))
    for policy in ("block", "skip"):
        newer = App("shop", table="shop")

        @newer.on(on_failure=policy, attempts=1)
        async def journal(change: Inserted[Order]):
            raise RuntimeError("still broken")

        (report,) = await redrive(newer, world.aws)
        assert report.failure.kind == "RuntimeError"
        assert len(await world.parked(newer)) == 1


async def test_a_parked_aggregate_change_holds_nothing_and_is_counted_once(world):
    broken = Broken()
    app = App("shop", table="shop")

    @app.aggregate
    class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
        status: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["PerStatus"]:
            if order.number == 1:
                broken.use()
            return cls.key(status=order.status)

    await world.put(Order(number=1, status="A"), Order(number=2, status="A"))
    await world.work(app)
    assert len(await world.parked(app)) == 1
    broken.down = False
    await redrive(app, world.aws)
    await redrive(app, world.aws)
    (total,) = world.items("PER#")
    assert total["orders"] == {"N": "2"}


async def test_discard_drops_the_first_change_and_the_next_is_first(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(*(Order(number=1, status=status) for status in "ABC"))
    await world.work(app)
    (report,) = await discard(app, world.aws)
    assert report.done == 1
    broken.down = False
    await redrive(app, world.aws)
    assert world.journal(1) == "B C "


async def test_discarding_a_whole_queue_drops_all_of_it_and_no_other(world):
    app = journalling(Broken())
    await world.put(*(Order(number=n, status=status) for status in "AB" for n in (1, 2)))
    await world.work(app)
    first, second = await parked_queues(await world.store(app))
    (report,) = await discard(app, world.aws, Selection(queues=frozenset({first.name})), whole=True)
    assert report.done == 2
    assert {change.queue for change in await world.parked(app)} == {second.name}
    assert world.journal(1) == world.journal(2) == ""


async def test_only_the_queues_of_one_handler_are_redriven_when_one_is_named(world):
    app = journalling(Broken())
    await world.put(Order(number=1, status="A"))
    await world.work(app)
    assert await redrive(app, world.aws, Selection(handler="another")) == []
    assert len(await redrive(app, world.aws, Selection(handler="journal"))) == 1


async def test_a_redrive_whose_reply_was_lost_takes_effect_once():
    lost = []

    async def lose(call, apply):
        response = apply()
        if losing and call.operation == "TransactWriteItems" and len(lost) < 2:
            lost.append(call)
            return type(response)(500, b'{"__type":"com.amazonaws#InternalServerError"}')
        return response

    losing = []
    async with opened(intercept=lose) as world:
        broken = Broken()
        app = App("shop", table="shop")

        @app.on
        def counted(change: Inserted[Order] | Modified[Order]):
            broken.use()
            return Add(Journal.key(number=1), count=1)

        await world.put(Order(number=1, status="A"), Order(number=1, status="B"))
        await world.work(app)
        broken.down = False
        losing.append(True)
        (report,) = await redrive(app, world.aws)
        assert len(lost) == 2
        assert report.done == 2
        (total,) = world.items("JOURNAL#")
        assert total["count"] == {"N": "2"}


async def test_one_redriver_serves_many_queues(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(*(Order(number=number, status="A") for number in range(5)))
    await world.work(app)
    broken.down = False
    async with open_redriver(app, world.aws, rng=random.Random(1)) as redriver:
        queues = await parked_queues(redriver.store)
        assert len(queues) == 5
        for queue in queues:
            assert (await redriver.redrive(queue.name)).done == 1
            assert (await redriver.redrive(queue.name)).done == 0


async def parked_twice(world):
    """Park two orders' changes for different reasons, one after the other; return the queues."""
    app = App("shop", table="shop", policy=Policy(attempts=1))

    @app.on
    def journal(change: Inserted[Order]) -> None:
        raise PoisonChange if change.new.number == 1 else ValueError

    @app.on
    def rows(change: Inserted[Row]) -> None:
        raise ValueError

    await world.put(Order(number=1), Order(number=2))
    row = {"pk": {"S": "ROW#3"}, "sk": {"S": "ROW#000"}, "number": {"N": "3"}, "place": {"N": "0"}}
    await world.aws.dynamodb.put_item(TableName="shop", Item=row)
    await world.work(app)
    return app


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (Selection(), 3),
        (Selection(handler="rows"), 1),
        (Selection(entity="Order"), 2),
        (Selection(entity="Order", error="ValueError"), 1),
        (Selection(stuck=True), 1),
        (Selection(error="KeyError"), 0),
        (Selection(parked_before=0.0), 0),
        (Selection(parked_before=4e9), 3),
        (Selection(queues=frozenset({"nosuchqueue"})), 0),
    ],
)
async def test_every_filter_narrows_what_is_meant(world, chosen, found):
    app = await parked_twice(world)
    store = await world.store(app)
    queues = await chosen.choose(store)
    assert len(queues) == found
    reports = await redrive(app, world.aws, chosen)
    assert {report.queue for report in reports} == {queue.name for queue in queues}
    reports = await discard(app, world.aws, chosen)
    assert [report.done for report in reports] == [1] * found
    assert len(await parked_queues(store)) == 3 - found


async def test_a_hand_redrive_says_whether_the_queue_is_tried_again_on_its_own(world):
    app = await parked_twice(world)
    reports = await redrive(app, world.aws)
    stuck = [report.stuck for report in reports]
    assert sorted(stuck) == [False, False, True]
    assert [report.due is None for report in reports] == stuck
    queues = {queue.name: queue for queue in await parked_queues(await world.store(app))}
    for report in reports:
        queue = queues[report.queue]
        assert (queue.tries, queue.stuck, queue.due) == (1, report.stuck, report.due or 0)


async def test_discarding_what_is_older_than_a_moment_stops_at_the_first_younger_change(world):
    app = journalling(Broken())
    await world.put(*(Order(number=1, status=status) for status in "AB"))
    await world.work(app)
    store = await world.store(app)
    (queue,) = await parked_queues(store)
    age = store.space.update("parked", queue.name, queue.head)
    age.sets["at"] = {"N": "2000"}
    await store.write(age)
    (report,) = await discard(app, world.aws, Selection(parked_before=2000.0), whole=True)
    assert report.done == 1
    assert len(await world.parked(app)) == 1


async def test_a_change_that_came_to_be_first_after_it_was_chosen_is_not_discarded(world):
    broken = Broken()
    app = journalling(broken)
    await world.put(*(Order(number=1, status=status) for status in "AB"))
    await world.work(app)
    chosen = Selection()

    class Slow(Selection):
        async def choose(self, store):
            queues = await chosen.choose(store)
            await discard(app, world.aws)
            return queues

    (report,) = await discard(app, world.aws, Slow())
    assert (report.done, report.due, report.stuck) == (0, 0, False)
    assert len(await world.parked(app)) == 1


async def test_a_discard_says_of_a_queue_that_it_leaves_whether_it_is_stuck(world):
    app = journalling(Broken())
    await world.put(*(Order(number=1, status=status) for status in "AB"))
    await world.work(app)
    chosen = Selection()

    class Slow(Selection):
        async def choose(self, store):
            queues = await chosen.choose(store)
            await discard(app, world.aws)
            await redrive(app, world.aws)
            return queues

    (report,) = await discard(app, world.aws, Slow())
    assert (report.done, report.due, report.stuck, report.empty) == (0, None, True, False)


async def test_after_the_first_change_is_gone_the_next_is_due_at_once_and_was_never_tried(world):
    app = await parked_twice(world)
    await world.put(Order(number=9, status="A"), Order(number=9, status="B"))
    journal = journalling(Broken())
    await world.work(journal)
    store = await world.store(journal)
    await redrive(journal, world.aws)
    queue = next(queue for queue in await parked_queues(store) if queue.head != queue.tail)
    assert queue.stuck
    await discard(app, world.aws, Selection(queues=frozenset({queue.name})))
    (left,) = [found for found in await parked_queues(store) if found.name == queue.name]
    assert (left.due, left.tries, left.stuck) == (0, 0, False)


async def test_a_hand_redrive_that_fails_otherwise_changes_whether_the_queue_is_stuck(world):
    app = await parked_twice(world)
    store = await world.store(app)
    newer = App("shop", table="shop", policy=Policy(attempts=1))

    @newer.on
    def journal(change: Inserted[Order]) -> None:
        raise ValueError if change.new.number == 1 else PoisonChange

    before = {queue.name: queue for queue in await parked_queues(store)}
    await redrive(newer, world.aws, Selection(handler="journal"))
    for queue in await Selection(handler="journal").choose(store):
        assert queue.stuck is not before[queue.name].stuck
        assert bool(queue.due) is not queue.stuck

"""Held queues are tried when they are due, by few at a time, and shards learn what is empty."""

import random
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
import structlog

from streamkit import Add, App, Entity, Inserted, Modified, Policy
from streamkit.changes import ItemKey
from streamkit.core.dispatch import Dispatcher
from streamkit.core.parked.queues import parked_queues, read_queues
from streamkit.core.parking import Failure, queue_name
from streamkit.core.tables import survey
from streamkit.errors import InvariantError, Unavailable
from streamkit.kinds.injection import injector
from streamkit.local.transport import Response
from streamkit.progress.control import QueuedKey
from streamkit.progress.machine import Machine
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from streamkit.worker.automatic_retries import (
    AT_ONCE,
    LOOK_SECONDS,
    STUCK_SECONDS,
    QueueRetries,
)
from streamkit.worker.holders import Holder, Holders
from streamkit.worker.redriver import QueueReport
from tests.tables import streamed

SETTINGS = Settings(poll_floor=0.01, poll_ceiling=0.05, heartbeat=60, lease=150)
TABLE = streamed("shop", "pk")


class Order(Entity, pk="ORDER#{number}"):
    number: int
    status: str = "NEW"


class Total(Entity, pk="TOTAL#{number}"):
    number: int
    count: int = 0


class Shop:
    """A table with an app whose handler fails while `down`, and the retries of what is parked."""

    def __init__(self, aws, world, tables, policy):
        self.aws, self.world, self.tables = aws, world, tables
        self.down = True
        self.running = self.most = self.calls = 0
        self.pause = 0.0
        self.app = App("shop", table="shop", policy=Policy(**{"attempts": 1} | policy))

        @self.app.on
        async def counted(change: Inserted[Order] | Modified[Order]) -> Add[Total]:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
            await anyio.sleep(self.pause)
            self.running -= 1
            if self.down:
                raise RuntimeError("down")
            return Add(Total.key(number=change.new.number), count=1)

    async def put(self, *orders):
        for order in orders:
            item = order.attributes(self.tables.table)
            await self.aws.dynamodb.put_item(TableName="shop", Item=item)

    async def work(self):
        """Process what is in the stream with a worker of its own; it ends before any retry."""
        await self.world.run_worker(self.app, settings=SETTINGS)

    def retries(self, aws=None):
        aws = aws or self.aws
        machine = Machine(aws, self.world.clock, random.Random(1))
        return QueueRetries.of(self.app, machine, self.tables, self.dispatcher(machine))

    def dispatcher(self, machine):
        tools = injector(machine.aws.dynamodb, self.tables.table, ())
        routes = self.app.routes(self.tables.schemas)
        return Dispatcher((), routes, tools, machine.clock, machine.rng)

    async def held(self):
        """The holds of a shard that has just read its chunks."""
        return {queue.name: QueuedKey(queue.chunk) for queue in await self.queues()}

    async def queues(self):
        retries = self.retries()
        return await parked_queues(retries._redriver.store)

    def total(self, number=1):
        items = self.world.items("shop")
        return sum(int(i["count"]["N"]) for i in items if i["pk"]["S"] == f"TOTAL#{number}")


@asynccontextmanager
async def opened(process=None, **policy):
    world = World.create(3)
    world.engine.call("dynamodb", "CreateTable", TABLE)
    async with world.clients(process) as aws:
        tables = await survey(App("shop", table="shop"), aws)
        yield Shop(aws, world, tables, policy)


@asynccontextmanager
async def running(*all_retries):
    async with anyio.create_task_group() as group:
        for retries in all_retries:
            group.start_soon(retries.run_for_ever)
        yield
        group.cancel_scope.cancel()


def watching(retries, held, shard="s"):
    holder = Holder(lambda: held, lambda queue: held.pop(queue, None), held.update)
    retries.watch(shard, holder)


def virtually(test):
    """Run an async test in virtual time."""

    def run():
        run_virtually(test)

    run.__name__ = test.__name__
    return run


@virtually
async def test_what_heals_is_done_and_its_shard_forgets_the_hold():
    async with opened() as shop:
        await shop.put(Order(number=1), Order(number=1, status="B"), Order(number=2))
        await shop.work()
        held = await shop.held()
        assert len(held) == 2
        shop.down = False
        retries = shop.retries()
        watching(retries, held)
        async with running(retries):
            await anyio.sleep(12)
        assert held == {}
        assert (shop.total(1), shop.total(2)) == (2, 1)
        assert await shop.queues() == []


@virtually
async def test_two_owners_of_a_queue_that_try_it_at_once_apply_it_once():
    async with opened() as shop:
        await shop.put(*(Order(number=n, status=s) for s in "ABC" for n in range(5)))
        await shop.work()
        mine, theirs = await shop.held(), await shop.held()
        shop.pause = 0.5
        async with shop.world.clients() as other:
            first, second = shop.retries(), shop.retries(other)
            watching(first, mine)
            watching(second, theirs)
            async with running(first, second):
                await anyio.sleep(30)
                queues = await shop.queues()
                assert {queue.tries for queue in queues} == {2}  # not one each for either owner
                shop.down = False
                await anyio.sleep(60)
        assert [shop.total(number) for number in range(5)] == [3] * 5
        assert mine == theirs == {}


@virtually
async def test_nothing_is_read_while_nothing_is_held_or_due():
    async with opened() as shop:
        retries, held = shop.retries(), {}
        watching(retries, held)
        async with running(retries):
            calls = len(shop.world.calls)
            await anyio.sleep(3600)
            assert len(shop.world.calls) == calls
            await shop.put(Order(number=1))
            await shop.work()
            held |= await shop.held()
            await anyio.sleep(400)  # tried after 5, 20, 65 and 200 seconds
            calls = len(shop.world.calls)
            await anyio.sleep(50)
            assert len(shop.world.calls) == calls


@virtually
async def test_a_stuck_queue_is_looked_at_now_and_then_and_goes_on_once_a_person_has_moved_it():
    async with opened(retry_limit=0) as shop:
        await shop.put(Order(number=1))
        await shop.work()
        held, retries = await shop.held(), shop.retries()
        watching(retries, held)
        async with running(retries):
            await anyio.sleep(LOOK_SECONDS)
            calls, tried = len(shop.world.calls), shop.calls
            await anyio.sleep(STUCK_SECONDS * 4)
            assert shop.calls == tried
            assert 0 < len(shop.world.calls) - calls <= 8
            (queue,) = await shop.queues()
            assert queue.stuck
            shop.down = False
            store = retries._redriver.store
            action = store.space.update("lane", queue.name)  # as a redrive by hand leaves it
            action.removes.add("stuck")
            await store.write(action)
            await anyio.sleep(STUCK_SECONDS + LOOK_SECONDS)
        assert shop.total() == 1
        assert held == {}


@virtually
async def test_a_few_queues_are_tried_at_a_time_and_all_get_their_turn():
    async with opened(breaker=False) as shop:
        await shop.put(*(Order(number=number) for number in range(60)))
        await shop.work()
        shop.down, shop.pause, shop.most = False, 2.0, 0
        held, retries = await shop.held(), shop.retries()
        watching(retries, held)
        async with running(retries):
            await anyio.sleep(60)
        assert shop.most == AT_ONCE
        assert [shop.total(number) for number in range(60)] == [1] * 60
        assert held == {}


@virtually
async def test_no_queue_is_begun_after_a_pause_and_all_get_their_turn_when_it_ends():
    async with opened(breaker=False) as shop:
        await shop.put(*(Order(number=number) for number in range(2 * AT_ONCE)))
        await shop.work()
        shop.down, shop.pause, shop.calls = False, 8.0, 0
        held, retries = await shop.held(), shop.retries()
        watching(retries, held)
        async with running(retries):
            while shop.calls < AT_ONCE:
                await anyio.sleep(1)
            retries.pause(paused=True)
            await anyio.sleep(600)
            assert shop.calls == AT_ONCE
            assert not retries.busy
            retries.pause(paused=False)
            await anyio.sleep(120)
        assert held == {}


@virtually
async def test_a_hold_that_begins_anew_while_the_old_one_is_lifted_is_not_forgotten():
    async with opened() as shop:
        await shop.put(Order(number=1))
        await shop.work()
        held, retries = await shop.held(), shop.retries()
        (name,) = held
        again = QueuedKey("s.0", "9".zfill(40))
        emptied = []

        def queues():
            # The shard parks another change of the queue as soon as the old ones are gone.
            if shop.total() == 1 and not emptied:
                held[name] = again
            return held

        def forget(queue):
            emptied.append(queue)
            held.pop(queue, None)

        retries.watch("s", Holder(queues, forget, held.update))
        shop.down = False
        async with running(retries):
            while shop.total() == 0:
                await anyio.sleep(0.01)
            await anyio.sleep(0.5)
            assert emptied == []
            await anyio.sleep(60)  # looked at on its own account, and then found to be gone
        assert emptied == [name]


@virtually
async def test_a_shard_that_was_given_back_is_not_told():
    async with opened() as shop:
        await shop.put(Order(number=1))
        await shop.work()
        held, retries = await shop.held(), shop.retries()
        shop.down, shop.pause = False, 5.0
        watching(retries, held)
        async with running(retries):
            while not shop.running:
                await anyio.sleep(0.1)
            retries.unwatch("s")
            await anyio.sleep(60)
        assert shop.total() == 1
        assert len(held) == 1


class Busy:
    """A fan-out that is never done, and a clock that stops a caller that asks it without end."""

    def __init__(self, real):
        self.store, self.real, self.clock = real.store, real.clock, self
        self.served, self.asked, self.after = 0, 0, lambda: None

    def time(self):
        self.asked += 1
        assert self.asked < 1000, "the loop is blocked"
        return self.real.time()

    def tell(self, set_aside):
        pass

    async def redrive(self, queue):
        await anyio.sleep(0.1)
        self.served += 1
        if self.served == 3:
            self.after()
        return QueueReport(queue, "counted", due=self.real.time(), serving=True)


@virtually
async def test_a_fan_out_under_way_ends_here_when_its_shard_is_given_away():
    async with opened() as shop:
        await shop.put(Order(number=1))
        await shop.work()
        busy = Busy(shop.retries()._redriver)
        retries = QueueRetries(busy, Holders())
        busy.after = lambda: retries.unwatch("s")
        watching(retries, await shop.held())
        async with running(retries):
            await anyio.sleep(20)
        assert busy.served == 3
        assert not retries.busy


@pytest.mark.parametrize("error", [Unavailable("not now"), InvariantError("its change is gone")])
def test_a_fan_out_under_way_that_cannot_go_on_is_a_parked_change_like_others(error):
    async def test():
        async with opened() as shop:
            await shop.put(Order(number=1))
            await shop.work()
            busy = Busy(shop.retries()._redriver)
            retries = QueueRetries(busy, Holders())

            def fails():
                assert (retries.busy, retries.parked) == (True, 0)
                raise error

            busy.after = fails
            watching(retries, await shop.held())
            async with running(retries):
                await anyio.sleep(20)
                assert (retries.busy, retries.parked) == (False, 1)
            assert busy.served == 3

    run_virtually(test)


@pytest.mark.parametrize(
    ("report", "wrote"),
    [
        ({"done": 1}, True),
        ({"serving": True, "due": 1e12}, True),  # some of the recipients
        ({"done": 1, "failure": Failure("ValueError", "no"), "due": 1e12}, True),
        ({"failure": Failure("ValueError", "no"), "due": 1e12}, False),
        ({}, False),  # another process has emptied it
    ],
)
def test_shards_look_for_what_a_retry_has_written_and_only_then(report, wrote):
    async def test():
        async with opened() as shop:
            await shop.put(Order(number=1))
            await shop.work()
            real, notes = shop.retries()._redriver, []

            async def redrive(queue):
                return QueueReport(queue, "counted", **report)

            redriver = SimpleNamespace(store=real.store, clock=real.clock, redrive=redrive)
            retries = QueueRetries(redriver, Holders(), lambda: notes.append("wrote"))
            watching(retries, await shop.held())
            async with running(retries):
                await anyio.sleep(10)
            assert notes == ["wrote"] * wrote

    run_virtually(test)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError"])
def test_a_table_that_does_not_answer_slows_retries_and_ends_nothing(code):
    class Faulty:
        until = 0.0
        refused = 0

        async def intercept(self, call, apply):
            if call.operation == "TransactWriteItems" and world_time() < self.until:
                self.refused += 1
                return Response(400 if "Thr" in code else 500, b'{"__type":"x#%s"}' % code.encode())
            return apply()

    def world_time():
        return anyio.current_time()

    async def test():
        process = Process("worker", faults=Faulty())
        async with opened(process) as shop:
            await shop.put(Order(number=1))
            await shop.work()
            held, retries = await shop.held(), shop.retries()
            watching(retries, held)
            shop.down = False
            process.faults.until = anyio.current_time() + 300
            with structlog.testing.capture_logs() as logs:
                async with running(retries):
                    await anyio.sleep(400)
            assert process.faults.refused > 3
            assert "queue.delayed" in [log["event"] for log in logs]
            assert shop.total() == 1
            assert held == {}

    run_virtually(test)


@virtually
async def test_a_redrive_that_cannot_read_just_now_is_delayed_and_ends_nothing():
    async with opened() as shop:
        await shop.put(Order(number=1))
        await shop.work()
        retries, held, tries = shop.retries(), await shop.held(), []
        redrive = retries._redriver.redrive

        async def unread(queue):
            tries.append(queue)
            if len(tries) < 3:
                raise Unavailable("the table cannot be read just now")
            return await redrive(queue)

        retries._redriver.redrive = unread
        watching(retries, held)
        shop.down = False
        async with running(retries):
            await anyio.sleep(400)
        assert len(tries) == 3
        assert shop.total() == 1


@virtually
async def test_a_queue_whose_first_change_is_missing_is_left_alone_and_others_are_not():
    async with opened() as shop:
        await shop.put(Order(number=1), Order(number=2))
        await shop.work()
        held, retries = await shop.held(), shop.retries()
        store = retries._redriver.store
        (broken,) = await read_queues(store, [queue_name("counted", order_key(1))])
        key = store.space.key("parked", broken.name, broken.head)
        await shop.aws.dynamodb.delete_item(TableName="shop", Key=key)
        watching(retries, held)
        shop.down = False
        with structlog.testing.capture_logs() as logs:
            async with running(retries):
                await anyio.sleep(600)
        assert [log["event"] for log in logs].count("queue.broken") == 1
        assert shop.total(2) == 1
        assert list(held) == [broken.name]


def order_key(number):
    return ItemKey(f"ORDER#{number}", None)


@virtually
async def test_a_handler_that_the_app_does_not_have_any_more_makes_a_queue_stuck():
    async with opened() as shop:
        await shop.put(Order(number=1))
        await shop.work()
        held = await shop.held()
        shop.app = App("shop", table="shop")

        @shop.app.on
        def another(change: Inserted[Order]) -> None: ...

        retries = shop.retries()
        watching(retries, held)
        async with running(retries):
            await anyio.sleep(60)
        (queue,) = await shop.queues()
        assert queue.stuck

"""Whoever else is at work while a consumer moves: slow movers, late functions, frozen workers."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from streamkit import (
    Add,
    App,
    ConfigurationError,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    Query,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.tables import survey
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import LAMBDA, TO_WORKERS, look, set_host
from streamkit.fleet.joining import join_generation
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.operate.moves import MoveRefused, move_to_lambda, move_to_workers
from streamkit.operate.redrive import redrive
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import operator
from streamkit.testing.chance import repeatable
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.lambdas import Stream, environment_of, event, own_items
from tests.simulation.movers import Slow, run_functions

TABLE = "Orders"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    note: int = 0


class Tally(Entity, pk="TALLY#{number}", sk="TALLY"):
    number: int
    times: int = 0


def make_app(down=(), **options):
    app = App("shop", table=TABLE, entities=[Tally], **options)

    @app.on
    def count(change: Inserted[Order] | Modified[Order]) -> Add[Tally]:
        if change.new.number in down:
            raise PoisonChange("down")
        return Add(Tally.key(number=change.new.number), times=1)

    return app


def world_with(app, *numbers, shards=1):
    world = World.create(1, shards=shards)
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    put(world, *numbers)
    return world


def put(world, *numbers, note=0):
    for number in numbers:
        key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
        item = {**key, "number": {"N": str(number)}, "note": {"N": str(note)}}
        status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        assert status == 200, body


def tallies(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TALLY#")]
    return {int(item["number"]["N"]): int(item["times"]["N"]) for item in items}


def once(*numbers):
    return dict.fromkeys(numbers, 1)


def simulated(main, *arguments):
    with repeatable(1):
        return run_virtually(main, *arguments)


async def to_workers(world, app, process=None, **options):
    async with world.clients(process) as aws:
        return await move_to_workers(app, aws, in_flight=1.0, clock=world.clock, **options)


async def to_lambda(world, app, process=None):
    async with world.clients(process) as aws:
        return await move_to_lambda(app, aws, clock=world.clock, lease_seconds=1.0)


# -- a mover that was thought dead ----------------------------------------------------------------


HOSTS = {
    "workers": (run_functions, to_workers, lambda world, app: world.run_worker(app)),
    "lambda": (lambda world, app: world.run_worker(app), to_lambda, run_functions),
}


@pytest.mark.parametrize("to", HOSTS)
def test_a_mover_that_was_thought_dead_changes_nothing_once_another_has_finished(to):
    before, move, after = HOSTS[to]

    async def play(at):
        app = make_app()
        world = world_with(app, 0, 1)
        await before(world, app)
        put(world, 2)
        slow, ended = Slow("slow", at=at), anyio.Event()

        async def be_slow():
            with suppress(MoveRefused):
                await move(world, app, slow)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(be_slow)
            while slow.frozen is None and not ended.is_set():
                await anyio.sleep(0.5)
            if not ended.is_set():
                await move(world, app, Process("second"))
            put(world, 3)
            await after(world, app)
            put(world, 4)
            stood = slow.frozen is not None
            slow.thaw()
            await ended.wait()
            put(world, 5)
            await after(world, app)
        assert tallies(world) == once(*range(6)), at
        return stood

    calls = next(at for at in itertools.count() if not simulated(play, at))
    assert calls > 4


# -- functions and workers that are late ----------------------------------------------------------


def test_a_function_that_began_before_the_move_finds_what_the_mover_has_done_meanwhile():
    async def main():
        app = make_app()
        world = world_with(app, 0)
        await run_functions(world, app)
        put(world, 1, 2)
        records, process = Stream(world, TABLE).traffic(), Slow("function", at=0)

        async def be_late():
            async with environment_of(world, app, process) as environment:
                await process_batch(environment, event(records), 900)

        async with anyio.create_task_group() as group:
            group.start_soon(be_late)
            await anyio.sleep(1.0)
            assert process.frozen is not None
            async with world.clients() as aws:
                group.start_soon(
                    partial(move_to_workers, app, aws, in_flight=60.0, clock=world.clock)
                )
                await anyio.sleep(30.0)
                process.thaw()
                await anyio.sleep(60.0)
        put(world, 3)
        await world.run_worker(app)
        assert tallies(world) == once(0, 1, 2, 3)

    simulated(main)


def test_functions_that_start_late_leave_the_same_changes_out_when_workers_go_on():
    async def main():
        app = make_app(start="latest")
        world = world_with(app, 0, 1)
        await anyio.sleep(30)
        await run_functions(world, app)
        await anyio.sleep(30)
        put(world, 2)
        await run_functions(world, app)
        await to_workers(world, app)
        put(world, 3)
        await world.run_worker(app)
        await to_lambda(world, app)
        put(world, 4)
        await run_functions(world, app)
        assert tallies(world) == once(2, 3, 4)

    simulated(main)


def test_a_paused_consumer_is_not_moved_to_workers_because_that_would_run_its_handlers():
    async def main():
        app = make_app()
        world = world_with(app, 0)
        await run_functions(world, app)
        put(world, 1)
        async with world.clients() as aws:
            await pause_consumer(app, aws, clock=world.clock)
            with pytest.raises(MoveRefused, match="is paused"):
                await to_workers(world, app)
            assert tallies(world) == once(0)
            await resume_consumer(app, aws)
        await to_workers(world, app)
        assert tallies(world) == once(0, 1)

    simulated(main)


@dataclass
class Interrupted(Process):
    """Lets something happen between its look at the consumer and its first write of a mover."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def intercept(self, call, apply):
        if call.operation == "UpdateItem" and b"mover" in call.payload and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().intercept(call, apply)


@pytest.mark.parametrize("host", [LAMBDA, TO_WORKERS])
def test_a_pause_in_the_moment_in_which_a_mover_begins_is_seen_by_it(host):
    async def main():
        app = make_app()
        world = world_with(app, 0)
        await run_functions(world, app)
        put(world, 1)
        async with world.clients() as aws:
            store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))
            assert await set_host(store, LAMBDA, host)  # as a mover has left it that was killed
            mover = Interrupted("m", meanwhile=lambda: pause_consumer(app, aws, clock=world.clock))
            with pytest.raises(MoveRefused, match="is paused"):
                await to_workers(world, app, mover)
            assert mover.meanwhile is None
            assert (await look(store)).host == host
        assert tallies(world) == once(0)

    simulated(main)


def test_a_roll_out_in_the_moment_in_which_a_mover_begins_is_seen_by_it():
    async def main():
        app = make_app()
        world = world_with(app, 0)
        await run_functions(world, app)
        put(world, 1)
        async with world.clients() as aws:
            store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))

            async def roll_out():
                await join_generation(store, "another release", (), take_over=False)

            with pytest.raises(MoveRefused, match="is deployed with other handlers"):
                await to_workers(world, app, Interrupted("m", meanwhile=roll_out))
        assert tallies(world) == once(0)

    simulated(main)


def test_a_move_leaves_a_trail_of_who_moved_the_consumer_and_when():
    async def main():
        app = make_app()
        world = world_with(app, 0)
        await run_functions(world, app)
        before = int(world.clock.time())
        await to_workers(world, app)
        await to_lambda(world, app)
        async with world.clients() as aws:
            store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))
            trail = (await newest_generation(store)).audit
        assert [entry.what for entry in trail] == [
            "move from 'lambda'",
            "move: to workers",
            "move: workers",
            "move: to lambda",
            "move from 'to lambda'",
            "move: lambda",
        ]
        assert {entry.by for entry in trail} == {operator()}
        times = [entry.at for entry in trail]
        assert before <= times[0]
        assert times == sorted(times)

    simulated(main)


def test_shards_that_split_and_roll_during_a_move_are_read_once():
    @dataclass
    class Splitting(Process):
        """Splits a shard before some of its calls."""

        splits: int = 0

        async def intercept(self, call, apply):
            if self.calls % 7 == 3 and self.splits < 6:
                self.splits += 1
                (world.control.split if self.splits % 2 else world.control.roll)(TABLE)
                put(world, 100 + self.splits)
            return await super().intercept(call, apply)

    async def main():
        nonlocal world
        app = make_app()
        world = world_with(app, *range(10), shards=2)
        await run_functions(world, app)
        put(world, *range(10, 20))
        await to_workers(world, app, Splitting("mover"))
        put(world, *range(20, 30))
        world.control.split(TABLE)
        await world.run_worker(app)
        put(world, *range(30, 40))
        await to_lambda(world, app, Splitting("mover", splits=3))
        await run_functions(world, app)
        numbers = set(tallies(world))
        assert numbers > {*range(40), 101, 104}
        assert tallies(world) == once(*numbers)

    world = None
    simulated(main)


def test_a_worker_that_froze_anywhere_commits_nothing_once_functions_run():
    async def play(at):
        app = make_app()
        world = world_with(app, 0, 1)
        worker, ended = Slow("worker", at=at), anyio.Event()

        async def live():
            with suppress(ConfigurationError):
                await world.run_worker(app, process=worker)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(live)
            while worker.frozen is None and not ended.is_set():
                await anyio.sleep(0.5)
            stood = worker.frozen is not None
            with suppress(MoveRefused):  # it froze before it founded the consumer
                await to_lambda(world, app)
            put(world, 2)
            await run_functions(world, app)
            put(world, 3)
            worker.thaw()
            with anyio.move_on_after(600):
                await ended.wait()
            await run_functions(world, app)
            worker.kill()
            group.cancel_scope.cancel()
        assert tallies(world) == once(*range(4)), at
        return stood

    calls = next(at for at in itertools.count() if not simulated(play, at))
    assert calls > 5


# -- queues ----------------------------------------------------------------------------------------


class User(Entity, pk="USERS", sk="USER#{user:03d}"):
    user: int


class Told(Entity, pk="TOLD#{user:03d}", sk="TOLD"):
    user: int
    times: int = 0


def fan_out_app(down, rate=10):
    """A slow fan-out that cannot serve some while they are `down`."""
    app = App("shop", table=TABLE, entities=[Told], policy=Policy(attempts=1, retry_limit=0))

    def users(change: Inserted[Order]) -> Query[User]:
        return User.query()

    @app.fan_out(users, inline=0, rate=rate)
    def tell(change: Inserted[Order], to: User) -> Add[Told]:
        if to.user in down:
            raise PoisonChange("down")
        return Add(Told.key(user=to.user), times=1)

    return app


def users(world, number):
    for user in range(number):
        key = {"PK": {"S": "USERS"}, "SK": {"S": f"USER#{user:03d}"}}
        item = {**key, "user": {"N": str(user)}}
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def told(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TOLD#")]
    return {int(item["user"]["N"]): int(item["times"]["N"]) for item in items}


@dataclass
class Listing(Process):
    """Before it lists the first queue anew, lets a frozen process go on for a while."""

    other: Process | None = None

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and b"#holds#lambda." in call.payload:
            other, self.other = self.other, None
            if other is not None:
                other.thaw()
                await anyio.sleep(3.0)
                other.freeze()
        return await super().intercept(call, apply)


def test_recipients_that_are_parked_while_a_fan_out_changes_hosts_are_found_again():
    """The maintenance function, enabled too early, serves the audience all the while."""

    async def main():
        down = set(range(0, 80, 3))
        app = fan_out_app(down)
        world = world_with(app, 1)
        users(world, 80)
        process, slow = Process("worker"), Slow("maintenance", at=0)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(world.run_worker, app, process=process, until_idle=False))
            await anyio.sleep(3.0)
            process.kill()
        assert 0 < len(told(world)) < 30
        async with environment_of(world, app, slow) as early, anyio.create_task_group() as group:
            group.start_soon(maintain, early, 600)
            while slow.frozen is None:
                await anyio.sleep(0.5)
            served = len(told(world))
            await to_lambda(world, app, Listing("mover", other=slow))
            assert served < len(told(world)) < 50
            slow.thaw()
        async with environment_of(world, app) as environment:
            await maintain(environment, 60)
            assert told(world) == once(*(set(range(80)) - down))
            down.clear()
            await redrive(app, environment.aws, clock=world.clock)
        assert told(world) == once(*range(80))

    simulated(main)


def test_queues_go_with_their_consumer_to_workers_and_back_and_no_mark_stays_for_ever():
    async def main():
        down = {1, 3}
        app = make_app(policy=Policy(attempts=1, retry_limit=0), down=down)
        world = world_with(app, 1, 2)
        await run_functions(world, app)
        await to_workers(world, app)
        put(world, 1, 3, note=1)
        await world.run_worker(app)
        await to_lambda(world, app)
        put(world, 1, note=2)
        await run_functions(world, app)
        assert tallies(world) == once(2)
        held = [mark for mark in own_items(world, TABLE, "mark") if "_sk_lanes" in mark]
        assert ["_sk_expires" in mark for mark in held] == [False, False]
        await to_workers(world, app)
        down.clear()
        async with world.clients() as aws:
            done = [report.done for report in await redrive(app, aws, clock=world.clock)]
        assert sorted(done) == [1, 3]
        put(world, 1, note=3)
        await world.run_worker(app)
        assert tallies(world) == {1: 4, 2: 1, 3: 1}
        marks = own_items(world, TABLE, "mark")
        assert all("_sk_expires" in mark and "_sk_lanes" not in mark for mark in marks)

    simulated(main)


# -- a table that is written all the time ---------------------------------------------------------


@pytest.mark.parametrize("to", HOSTS)
def test_a_consumer_moves_while_the_application_writes_all_the_time(to):
    before, move, after = HOSTS[to]

    async def main():
        app, numbers = make_app(), itertools.count(2)
        world = world_with(app, 0, 1)
        await before(world, app)

        async def write():
            while True:
                put(world, next(numbers))
                await anyio.sleep(1.0)

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.sleep(5.0)
            with anyio.fail_after(120.0):
                await move(world, app)
            await anyio.sleep(5.0)
            group.cancel_scope.cancel()
        await after(world, app)
        assert tallies(world) == once(*range(next(numbers)))

    simulated(main)


def test_a_consumer_moves_to_functions_while_only_others_write():
    """It began at the latest change, and nothing that it listens to has changed in the shard."""

    async def main():
        app = make_app(start="latest")
        world = world_with(app)
        await world.run_worker(app)

        async def write():
            for number in itertools.count():
                item = {"PK": {"S": f"OTHER#{number}"}, "SK": {"S": "OTHER"}}
                world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
                await anyio.sleep(1.0)

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.sleep(5.0)
            with anyio.fail_after(120.0):
                await to_lambda(world, app)
            group.cancel_scope.cancel()

    simulated(main)

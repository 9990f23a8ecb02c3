"""A move to Lambda while a lister or a redrive changes what it has read, or too late."""

import itertools
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, Count, Entity, Key, Policy
from streamkit.core.parking import LAMBDA_CHUNKS, chunk_of
from streamkit.core.tables import survey
from streamkit.fleet.hosting import LAMBDA, TO_LAMBDA, WORKERS
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.operate.moves import MoveRefused, move_to_lambda
from streamkit.operate.redrive import redrive
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.trial import open_shards
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.archived import SELDOM, app_of, copied, rare_notes
from tests.simulation.lambdas import own_items
from tests.simulation.movers import Mover, Slow, run_functions
from tests.simulation.test_archive import erase, rewound
from tests.simulation.test_moving_rivals import (
    TABLE,
    make_app,
    once,
    put,
    simulated,
    tallies,
    to_lambda,
    world_with,
)

# -- a lister that was thought dead ---------------------------------------------------------------


@dataclass
class Listing(Process):
    """Stands still before it creates the cursor of one shard."""

    late: str = ""

    async def intercept(self, call, apply):
        creates = call.operation == "TransactWriteItems" and b"lister" in call.payload
        if self.late and creates and self.late.encode() in call.payload:
            self.late = ""
            self.freeze()
        return await super().intercept(call, apply)


@dataclass
class Thawing(Process):
    """Lets another process go on for a while before it deletes the cursors, which it keeps."""

    zombie: Process | None = None
    world: World | None = None
    cursors: str = ""

    async def intercept(self, call, apply):
        deletes = call.operation == "TransactWriteItems" and b'"Delete"' in call.payload
        if deletes and self.zombie.frozen:
            self.zombie.thaw()
            await anyio.sleep(5.0)
            self.cursors = repr(own_items(self.world, TABLE, "cursor"))
        return await super().intercept(call, apply)


def test_a_lister_that_was_thought_dead_creates_no_shard_that_its_worker_would_go_on_with():
    async def main():
        app = make_app()
        world = world_with(app, *range(10))
        zombie = Listing("zombie")

        async def live():
            with suppress(Exception):
                await world.run_worker(app, process=zombie, until_idle=False)

        async with anyio.create_task_group() as group:
            group.start_soon(live)
            await anyio.sleep(20.0)
            world.control.split(TABLE)
            late = zombie.late = open_shards(world, TABLE)[0]
            world.control.hide(TABLE, late)
            await anyio.sleep(60.0)
            put(world, *range(10, 20))
            await anyio.sleep(60.0)
            world.control.hide(TABLE, late, hidden=False)
            while zombie.frozen is None:
                await anyio.sleep(0.5)
            assert set(tallies(world)) < set(range(20)), "the late shard's are not done"
            mover = Thawing("mover", zombie=zombie, world=world)
            await to_lambda(world, app, mover)
            assert zombie.frozen is None
            assert "lister" in mover.cursors
            assert late not in mover.cursors, "a worker could go on with it"
            await run_functions(world, app)
            zombie.kill()
            group.cancel_scope.cancel()
        assert tallies(world) == once(*range(20))

    simulated(main)


def test_what_was_done_in_a_shard_that_has_ended_is_not_done_again():
    async def main():
        app = make_app()
        world = world_with(app, *range(10))
        world.control.roll(TABLE)
        put(world, 10)
        await world.run_worker(app)
        ended = [c for c in own_items(world, TABLE, "cursor") if c["_sk_state"]["S"] == "finished"]
        assert ended
        await to_lambda(world, app)
        await run_functions(world, app)
        assert tallies(world) == once(*range(11))

    simulated(main)


def test_what_workers_do_while_the_mover_waits_for_them_is_not_done_again():
    async def main():
        app = make_app()
        world, worker = world_with(app, *range(10)), []

        async def started(one):
            worker.append(one)

        async def move():
            async with world.clients() as aws:
                await move_to_lambda(app, aws, wait=600.0, clock=world.clock, lease_seconds=1.0)

        async with anyio.create_task_group() as group:
            group.start_soon(partial(world.run_worker, app, until_idle=False, started=started))
            await anyio.sleep(60.0)
            group.start_soon(move)
            await anyio.sleep(20.0)  # the mover has raised the marks once, and waits
            put(world, *range(10, 20))
            await anyio.sleep(60.0)
            assert tallies(world) == once(*range(20))
            worker[0].stop()
        await run_functions(world, app)
        assert tallies(world) == once(*range(20))

    simulated(main)


# -- a redrive meanwhile --------------------------------------------------------------------------


async def redriven(world, app, process=None):
    async with world.clients(process) as aws:
        await redrive(app, aws, clock=world.clock)


async def beside(move_at, redrive_at):
    """Begin a redrive when the mover stands still at a write; finish the move when that does, too.

    Return the process that stood still.
    """
    down = {1}
    app = make_app(policy=Policy(attempts=1, retry_limit=0), down=down)
    world = world_with(app, 1, 2)
    await world.run_worker(app)
    assert tallies(world) == once(2)
    down.clear()
    mover, redriver = Slow("mover", at=move_at), Slow("redriver", at=redrive_at)
    async with anyio.create_task_group() as group:
        moved = await begun(group, mover, to_lambda(world, app, mover))
        done = await begun(group, redriver, redriven(world, app, redriver))
        stood = mover.frozen is not None, redriver.frozen is not None
        mover.thaw()
        await moved.wait()
        redriver.thaw()
        await done.wait()
    await run_functions(world, app)
    assert tallies(world) == once(1, 2)
    assert not own_items(world, TABLE, "lane")
    assert not any("_sk_lanes" in holds for holds in own_items(world, TABLE, "holds"))
    marks = own_items(world, TABLE, "mark")
    assert len(marks) == 2
    assert all("_sk_expires" in mark and "_sk_lanes" not in mark for mark in marks)
    put(world, 1, note=1)
    await run_functions(world, app)
    assert tallies(world) == {1: 2, 2: 1}
    return stood


async def begun(group, process, work):
    """Start something; return what is set at its end, when it has ended or stands still."""
    ended = anyio.Event()

    async def until_its_end():
        await work
        ended.set()

    group.start_soon(until_its_end)
    while process.frozen is None and not ended.is_set():
        await anyio.sleep(0.5)
    return ended


def test_a_move_and_a_redrive_that_stand_still_leave_no_queue_and_no_name_of_one():
    """Before each of their writes: a mark that names a queue which is gone would stay for ever."""
    both = 0
    for move_at in itertools.count():
        stood = [simulated(beside, move_at, redrive_at) for redrive_at in (-1, 0)]
        both += stood.count((True, True))
        if not any(mover for mover, _ in stood):
            break
    assert both > 4


# -- a move that comes too late -------------------------------------------------------------------


@pytest.mark.parametrize("hours", [22.5, 23.5])
def test_a_consumer_that_was_not_at_its_tip_for_more_than_23_hours_is_not_moved(hours):
    async def main():
        app = make_app()
        world = world_with(app, 1)
        await world.run_worker(app)
        await anyio.sleep(hours * 3600)
        put(world, 2)
        if hours < 23:
            await to_lambda(world, app)
            await run_functions(world, app)
            return tallies(world)
        with pytest.raises(MoveRefused, match="hours ago, and the mapping would miss"):
            await to_lambda(world, app)
        (consumer,) = own_items(world, TABLE, "consumer")
        assert consumer["_sk_host"] == {"S": WORKERS}
        await world.run_worker(app)
        return tallies(world)

    assert simulated(main) == once(1, 2)


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Order) -> Key["Orders"]:
        return cls.key()


@pytest.mark.parametrize("hours", [1.0, 30.0])
def test_a_move_that_was_broken_off_for_a_day_is_finished_only_if_the_loss_is_accepted(hours):
    async def main():
        app = App("shop", table=TABLE)
        app.aggregate(Orders)
        world = world_with(app, 1)
        await world.run_worker(app)
        killed = Mover("killed", dies_at=2)
        async with anyio.create_task_group() as group:
            group.start_soon(to_lambda, world, app, killed)
            await killed.dead.wait()
            group.cancel_scope.cancel()
        (consumer,) = own_items(world, TABLE, "consumer")
        assert consumer["_sk_host"] == {"S": TO_LAMBDA}
        put(world, 2)
        await anyio.sleep(hours * 3600)
        if hours > 23:
            with pytest.raises(MoveRefused, match=r"30 hours ago.*--accept-loss finishes"):
                await to_lambda(world, app)
        async with world.clients() as aws:
            await move_to_lambda(
                app, aws, clock=world.clock, lease_seconds=1.0, accept_loss=hours > 23
            )
            (facts,) = await list_aggregates(app, aws)
        assert facts.state == ("needs rebuild" if hours > 23 else "live")

    simulated(main)


# -- queues without a place ------------------------------------------------------------------------


def test_a_queue_for_which_functions_have_no_place_left_ends_the_move_with_what_to_do():
    """Of a quarter of a million queues that are held, as many as the places name are enough here."""

    async def main():
        app = make_app(policy=Policy(attempts=1, retry_limit=0), down={1})
        world = world_with(app, 1)
        await world.run_worker(app)
        (queue,) = own_items(world, TABLE, "lane")
        full = chunk_of(queue["_sk_lane"]["S"], LAMBDA_CHUNKS)
        async with world.clients() as aws:
            space = (await survey(app, aws)).space(app)
        key = space.key("holds", full)
        taken = sum(len(name) + len(wire["S"]) for name, wire in key.items())
        item = {**key, "f": {"S": "x" * (409_600 - taken - 1)}}
        status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        assert status == 200, body
        mover = Process("mover", CrashPoint(300, "before"))  # one that tries for ever ends, too
        with anyio.fail_after(60), pytest.raises(MoveRefused, match="redrive or discard parked"):
            await to_lambda(world, app, mover)

    simulated(main)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_consumer_that_reads_an_archive_is_not_moved_before_it_has_come_to_the_stream(
    harness_of, seconds
):
    """The mapping begins at the oldest record of the stream, and functions read no archive."""
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 6)
    erase(harness)
    harness.settle()
    rewound(harness, moments[1] - 60)
    if seconds:  # it ends between a shard and its child
        harness.worker.ensure()
        harness.advance(seconds)
        harness.crash()
        harness.advance("3h")
    move = lambda aws: move_to_lambda(harness.app, aws, clock=harness.world.clock)  # noqa: E731
    with pytest.raises(MoveRefused, match="the mapping would miss what is trimmed"):
        harness.operate(move)
    harness.settle()
    harness.stop()
    assert copied(harness) == [1, 2, 3, 4, 5]
    assert harness.operate(move).host == LAMBDA

"""People pause a rebuild, a move or a rewind: nothing of it happens until they resume it.

Each operation is played once for each write of its process, before which the pause arrives. What
the table holds then, or once the pages of a scan are over, it holds ten minutes later.
"""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest

from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate.consumers import pause_operation
from streamkit.operate.status import read_status
from streamkit.testing.loop import run_virtually
from streamkit.testing.sightings import WRITES
from streamkit.testing.world import Process
from tests.rigs import Rig
from tests.simulation import test_rewind as rewinds
from tests.simulation.rebuilds import FAST, app_of, expected, open_existing, stored
from tests.simulation.test_moving_rivals import (
    HOSTS,
    make_app,
    once,
    put,
    simulated,
    tallies,
    world_with,
)


@dataclass
class Interrupted(Process):
    """Before one of its writes, by number, `pause` is awaited; it returns whether it has paused."""

    at: int = 0
    pause: Callable[[], Awaitable[bool]] | None = None
    paused: bool = False
    met: anyio.Event = field(default_factory=anyio.Event)

    async def intercept(self, call, apply):
        if call.operation in WRITES and len(self.writes) == self.at and not self.met.is_set():
            self.paused = await self.pause()
            self.met.set()
        if call.operation == "Scan":  # a scan takes longer than a process takes to see the pause
            await anyio.sleep(2)
        return await super().intercept(call, apply)


def is_of_the_operation(item):
    """Return whether no host writes it while an operation is paused, nor a run of a handler."""
    return not any(part in str(item) for part in ("#member", "#cursor#", "#trial#"))


async def play(world, app, operation, at, command):
    """Play a command that is paused before its write `at`; return whether it made that write."""

    async def pause(*, paused=True):
        async with world.clients() as aws:
            try:
                await pause_operation(app, aws, operation, paused=paused, clock=world.clock)
            except ConfigurationError:  # it has not begun yet, or has decided
                return False
        return True

    process, ended = Interrupted("operator", at=at, pause=pause), anyio.Event()

    async def run():
        await command(process)
        ended.set()
        process.met.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await process.met.wait()
        if process.paused:
            if operation.startswith("rebuild"):  # it ends the pages that it has begun
                await anyio.sleep(15)
            held = kept(world, app)
            async with world.clients() as aws:
                status = await read_status(app, aws, clock=world.clock)
            assert [one.paused for one in status.operations] == [True]
            await anyio.sleep(600)
            assert kept(world, app) == held
            assert not ended.is_set()
            await pause(paused=False)
    return process


def kept(world, app):
    return {str(item["PK"]): item for item in world.items(app.table) if is_of_the_operation(item)}


@pytest.mark.parametrize("to", HOSTS)
def test_a_move_that_is_paused_at_any_write_goes_on_where_it_stood_when_it_is_resumed(to):
    before, move, after = HOSTS[to]

    async def main(at):
        app = make_app()
        world = world_with(app, 0, 1)
        await before(world, app)
        put(world, 2)
        process = await play(world, app, "move", at, lambda process: move(world, app, process))
        put(world, 3)
        await after(world, app)
        assert tallies(world) == once(0, 1, 2, 3)
        return process

    assert sum(played.paused for played in each_write(lambda at: simulated(main, at))) > 2


def each_write(run, *, every=1):
    """Yield what `run` returns for each write until it makes no more; `every` one of the later."""
    for at in itertools.chain(range(6), itertools.count(6, every)):
        process = run(at)
        yield process
        if len(process.writes) <= at:
            return


def test_a_rebuild_that_is_paused_at_any_write_goes_on_where_it_stood_when_it_is_resumed():
    def rebuilt(at):
        with Rig(app_of(), shards=1, settings=FAST) as harness:
            open_existing(harness)
            world, app = harness.world, harness.app

            async def command(process):
                async with world.clients(process) as aws:
                    await rebuild_aggregate(
                        app, aws, "Sales", segments=16, at_once=1, clock=world.clock
                    )

            process = harness._run(play(world, app, "rebuild Sales", at, command))
            harness.settle()
            assert stored(harness) == expected(harness)
            return process

    assert sum(played.paused for played in each_write(rebuilt, every=13)) > 6


def test_a_rewind_that_is_paused_at_any_write_has_not_decided_until_it_is_resumed():
    async def main(at):
        world, app = rewinds.make_world(), rewinds.make_app()
        second = await rewinds.written(world, app)

        async def command(process):
            await rewinds.back(world, app, second, process=process)

        process = await play(world, app, "rewind", at, command)
        await rewinds.run(world, app)
        assert app.order == [("x", 2), ("x", 3)]
        return process

    # Writes: it is asked for, all cursors are raised at once, it is decided; then it is too late.
    paused = [played.paused for played in each_write(lambda at: run_virtually(main, at))]
    assert paused[:4] == [False, True, True, False]
    assert not any(paused[4:])


def test_an_operation_that_is_not_under_way_is_neither_paused_nor_resumed():
    with Rig(app_of(), shards=1, settings=FAST) as harness:
        open_existing(harness)
        for operation, paused in itertools.product(("rebuild Sales", "move", "rewind"), (0, 1)):
            with pytest.raises(ConfigurationError, match=f"no {operation} that can be paused"):
                harness._run(
                    pause_operation(harness.app, harness._aws, operation, paused=bool(paused))
                )

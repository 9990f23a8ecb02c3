"""An app takes a handler over while the application goes on writing, and shards split."""

import math
from functools import partial

import anyio
import pytest

from streamkit.operate.moves.taking_over import take_over
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.joined import app_of
from tests.simulation.test_join_traffic import Far, Live

RATE = 20
"""Changes a second."""


class Busy(Live):
    """A busy table of which the worker runs on while its app takes the handler over."""

    def __init__(self, **wishes):
        super().__init__(**wishes)
        # It is taken over from the tenth second on.
        self.splits = sorted(self.rng.uniform(9, 13) for _ in self.splits)
        self.behind, self.ended_after = 0, math.inf

    async def works(self):
        async def started(worker):
            begun.append(worker)

        begun, process = [], Process("worker", faults=Far())
        async with anyio.create_task_group() as group:
            run = partial(self.world.run_worker, app_of(), process=process, settings=Settings())
            group.start_soon(partial(run, until_idle=False, started=started))
            await anyio.sleep(10)
            group.start_soon(self.watches)
            await self.is_taken_over()
            await anyio.sleep(5)
            self.goes_on = False
            await anyio.sleep(10)
            begun[0].stop()

    async def watches(self):
        while self.goes_on:
            self.behind = max(self.behind, self.written - self.counted("app"))
            await anyio.sleep(0.1)

    async def is_taken_over(self):
        clock, process = self.world.clock, Process("command", faults=Far())
        begun = clock.monotonic()
        async with self.world.clients(process) as aws:
            async for found in take_over(app_of(), aws, "follow", clock=clock):
                if found.ended:
                    break
                assert clock.monotonic() < begun + 600, found
                await anyio.sleep(1)
        self.ended_after = clock.monotonic() - begun


def played(**wishes):
    async def scenario():
        busy = Busy(**wishes)
        async with anyio.create_task_group() as group:
            group.start_soon(busy.writes)
            await busy.works()
        assert busy.counted("app") == busy.counted("follow") == busy.written
        return busy, len(busy.world.control.shards("Deeds"))

    with repeatable(1):
        return run_virtually(scenario)


@pytest.mark.parametrize("shards", [2, 20])
def test_on_a_busy_table_nothing_stands_still_while_an_app_takes_a_handler_over(shards):
    busy, _ = played(shards=shards)
    assert busy.behind <= RATE
    assert busy.ended_after <= 30


@pytest.mark.parametrize("seed", range(3))
def test_an_app_takes_a_handler_over_while_its_table_is_written_and_split(seed):
    _, shards = played(shards=1, seed=seed, splits=2)
    assert shards == 7  # one, its two children, and theirs

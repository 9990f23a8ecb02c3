"""A handler joins its app while the application goes on writing, and shards split."""

import random
from functools import partial

import anyio
import pytest

from streamkit.operate.moves import MoveRefused, join_handler
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.joined import app_of
from tests.tables import streamed

CALL_SECONDS = 0.005
"""How long each call takes."""
ALONE_SECONDS = 5.0
"""How long the handler runs alone: then it is ahead of its app, which does nothing."""


class Far:
    """Every call takes a while."""

    async def intercept(self, call, apply):
        await anyio.sleep(CALL_SECONDS)
        return apply()


class Live:
    """A table whose application goes on writing, whatever runs on its stream.

    Its shards split so many times, at moments in which workers run, stop, or a handler joins.
    """

    def __init__(self, *, shards, seed=0, splits=0):
        self.world, self.rng = World.create(seed, shards=shards), random.Random(f"live/{seed}")
        self.versions, self.written, self.goes_on = {}, 0, True
        # Workers begin after a second; after ten more the handler runs alone, then it joins.
        self.splits = sorted(self.rng.uniform(5, 20) for _ in range(splits))
        self.call("CreateTable", streamed("Deeds", "pk", "sk"))

    def call(self, operation, body):
        status, reply = self.world.engine.call("dynamodb", operation, body)
        assert status == 200, reply
        return reply

    async def writes(self):
        while self.goes_on:
            for number in self.rng.choices(range(20), k=2):
                version = self.versions[number] = self.versions.get(number, 0) + 1
                numbers = {"number": {"N": str(number)}, "version": {"N": str(version)}}
                key = {"pk": {"S": f"DEED#{number}"}, "sk": {"S": "DEED"}}
                self.call("PutItem", {"TableName": "Deeds", "Item": key | numbers})
                self.written += 1
            if self.splits and self.world.clock.monotonic() >= self.splits[0]:
                self.splits.pop(0)
                self.world.control.split("Deeds")
            await anyio.sleep(0.1)

    def counted(self, by):
        key = {"pk": {"S": f"COUNT#{by}"}, "sk": {"S": "COUNT"}}
        item = self.call("GetItem", {"TableName": "Deeds", "Key": key}).get("Item", {})
        return int(item.get("changes", {"N": "0"})["N"])

    async def runs(self, app, seconds):
        """Let a worker run for so long, and stop it."""

        async def started(worker):
            begun.append(worker)

        begun, process = [], Process("worker", faults=Far())
        run = partial(self.world.run_worker, app, process=process, settings=Settings())
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run, until_idle=False, started=started))
            await anyio.sleep(seconds)
            begun[0].stop()

    async def joins(self):
        """Stop the workers, and let the handler join; return how long the app stood, and the calls.

        If it is refused, both go on for a while, and it is tried again.
        """
        apart, clock = app_of(), self.world.clock
        for _ in range(8):
            await self.runs(apart, 10)
            stopped = clock.monotonic()
            await self.runs(apart.listeners["follow"], ALONE_SECONDS)
            process = Process("command", faults=Far())
            async with self.world.clients(process) as aws:
                try:
                    await join_handler(app_of("joined"), aws, "follow", clock=clock)
                except MoveRefused as refused:
                    assert "by whole shards" in str(refused), refused  # noqa: PT017 - or none
                    continue
            return clock.monotonic() - stopped, process.calls
        raise AssertionError("it is refused again and again")

    async def all_done(self):
        """The next version goes on; the application stops, and everything is done once."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.runs, app_of("joined"), 30)
            await anyio.sleep(10)
            self.goes_on = False
        assert self.counted("app") == self.counted("follow") == self.written


def played(**wishes):
    async def scenario():
        live = Live(**wishes)
        async with anyio.create_task_group() as group:
            group.start_soon(live.writes)
            await anyio.sleep(1)
            joined = await live.joins()
            await live.all_done()
        return *joined, len(live.world.control.shards("Deeds"))

    with repeatable(1):
        return run_virtually(scenario)


@pytest.mark.parametrize("shards", [2, 20, 100])
def test_on_a_busy_table_an_app_stands_still_for_seconds_while_a_handler_joins(shards):
    """The handler alone never gets idle there: it is enough that it has passed its app."""
    stood, calls, _ = played(shards=shards)
    assert calls <= 40 + shards // 10
    assert stood <= ALONE_SECONDS + 1 + 2 * CALL_SECONDS * calls


@pytest.mark.parametrize("seed", range(3))
def test_a_handler_joins_while_its_table_is_written_and_split(seed):
    *_, shards = played(shards=1, seed=seed, splits=2)
    assert shards == 7  # one, its two children, and theirs

"""Hosts for trials that move an app from functions to workers, or back, while traffic goes on."""

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from streamkit.operate.moves import move_to_lambda, move_to_workers
from streamkit.progress.activity import task_group
from streamkit.testing.crew import TrialCrew
from streamkit.testing.faults import Faults
from streamkit.testing.hosts import Functions
from streamkit.testing.mapping import Habits
from streamkit.testing.sightings import WRITES
from streamkit.testing.world import CrashPoint, Process

BEGINS = 10.0
FUNCTION_SECONDS = 60.0
LEASE_SECONDS = 30.0
LINGERS = 20.0
"""So long the mapping stays enabled while workers run already, as if it was forgotten."""


@dataclass
class Mover(Process):
    """A process that may be killed at one of its writes, by number."""

    dies_at: int | None = None
    moment: str = "after"

    async def intercept(self, call, apply):
        if call.operation in WRITES and len(self.writes) == self.dies_at:
            self.crash = CrashPoint(self.calls, self.moment)
        return await super().intercept(call, apply)


@dataclass
class Slow(Process):
    """Stands still before one of its writes, by number."""

    at: int = 0

    async def intercept(self, call, apply):
        if call.operation in WRITES and len(self.writes) == self.at:
            self.at = -1
            self.freeze()
        return await super().intercept(call, apply)


async def run_functions(world, app):
    """Let functions do what is there."""
    habits = Habits(repeated=0, abandoned=0)
    functions = Functions(app, world, Counter(), Faults(world.rng), habits)
    async with task_group() as group:
        functions.start(group, 1)
        await functions.settle()
        functions.close()
        group.cancel_scope.cancel()


class Moving:
    """Begins with one host; a mover that may be killed at some call moves it to the other."""

    def __init__(self, app, world, met, faults, *, kill):
        self.app, self.world, self.met, self.faults, self.kill = app, world, met, faults, kill
        self.commands = {"workers": move_to_workers, "lambda": move_to_lambda}
        self.rng = random.Random(f"moving/{kill}")
        self.functions = Functions(app, world, met, faults)
        self.crew = TrialCrew(app, world, met, faults)
        self.moved = anyio.Event()
        self.current = self.first

    def start(self, group, workers):
        self.group, self.workers = group, workers
        self.first.start(group, workers)
        group.start_soon(self._move)

    def crash(self, rng):
        self.current.crash(rng)

    def close(self):
        self.functions.close()
        self.crew.close()

    async def settle(self):
        await self.moved.wait()
        await self.current.settle()

    async def _move(self):
        await anyio.sleep(BEGINS)
        dies_at = self.rng.randrange(12)
        if not await self._try(dies_at):
            self.met["mover killed"] += 1
            if not self._has_moved():  # with its last write it had
                await self._try(None)
        self.current = self.second
        self.second.start(self.group, self.workers)
        await anyio.sleep(LINGERS)
        self.first.close()
        self.moved.set()

    def _has_moved(self):
        items = self.world.items(self.app.table)
        return any(item.get("_sk_host") == {"S": self.name} for item in items)

    async def _try(self, dies_at):
        """Move; False if the mover was killed."""
        moment = self.rng.choice(("before", "after"))
        process = Mover("mover", faults=self.faults, dies_at=dies_at, moment=moment)
        async with self.world.clients(process) as aws, anyio.create_task_group() as group:

            async def die():
                await process.dead.wait()
                group.cancel_scope.cancel()

            group.start_soon(die)
            self.report = await self.move(aws, group)
            group.cancel_scope.cancel()
        return not process.dead.is_set()


class ToWorkers(Moving):
    """The mapping stays enabled all the while: its functions are shut out by the move."""

    name = "workers"

    @property
    def first(self):
        return self.functions

    @property
    def second(self):
        return self.crew

    async def move(self, aws, _):
        since = datetime.fromtimestamp(0, UTC)
        return await self.commands["workers"](
            self.app,
            aws,
            since=since,
            in_flight=FUNCTION_SECONDS,
            clock=self.world.clock,
            rng=self.rng,
        )


class ToLambda(Moving):
    """The workers go on until the mover waits for them; then they are killed in what they do."""

    name = "lambda"

    @property
    def first(self):
        return self.crew

    @property
    def second(self):
        return self.functions

    async def move(self, aws, group):
        async def stop():
            await anyio.sleep(10.0)
            self.crew.close()

        group.start_soon(stop)
        return await self.commands["lambda"](
            self.app,
            aws,
            wait=600,
            lease_seconds=LEASE_SECONDS,
            clock=self.world.clock,
            rng=self.rng,
        )

"""A world in one process: the local engine, a virtual clock, and processes that can be killed.

A *process* here is an actor with clients of its own. Killing one means that its transport is dead:
a call on the wire is applied or not, no call after it ever returns, and no clean-up of it reaches
the table. That is what `kill -9` does; cancelling a task would run its `finally` blocks.
"""

import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from streamkit.app import App
from streamkit.aws import Aws, connect
from streamkit.local.control import Control
from streamkit.local.engine import CallRecord, Engine
from streamkit.local.transport import Call, Response, session_class
from streamkit.settings import Settings
from streamkit.testing.faults import Faults
from streamkit.testing.loop import VirtualClock
from streamkit.worker import Worker, first_error


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """When a process dies: at its n-th call (from 0), before or after the engine applies it."""

    call: int
    moment: Literal["before", "after"]


@dataclass
class Process:
    """One actor: its calls are counted, and it may be told to die at one of them."""

    name: str
    crash: CrashPoint | None = None
    faults: Faults | None = None
    calls: int = 0
    dead: anyio.Event = field(default_factory=anyio.Event)

    def kill(self) -> None:
        """Let no further call return."""
        self.dead.set()

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Stand between this process's clients and the engine."""
        if self.dead.is_set():
            await anyio.sleep_forever()
        number, self.calls = self.calls, self.calls + 1
        if self.crash is None or number != self.crash.call:
            return apply() if self.faults is None else await self.faults.intercept(call, apply)
        if self.crash.moment == "after":
            apply()
        self.kill()
        await anyio.sleep_forever()
        raise AssertionError("a dead process does not go on")


@dataclass
class World:
    """The engine with its controls, and a record of every call."""

    engine: Engine
    control: Control
    clock: VirtualClock
    rng: random.Random
    calls: list[CallRecord] = field(default_factory=list)

    @classmethod
    def create(
        cls, seed: int = 0, *, shards: int = 2, clock: VirtualClock | None = None
    ) -> "World":
        """Make a world; the same seed makes the same one."""
        clock, rng = clock or VirtualClock(), random.Random(seed)
        engine = Engine(clock=clock.time, rng=random.Random(seed), shards=shards)
        world = cls(engine, Control(engine), clock, rng)
        engine.observers.append(world.calls.append)
        return world

    @asynccontextmanager
    async def clients(self, process: Process | None = None) -> AsyncIterator[Aws]:
        """Open clients; those of a process die with it."""
        intercept = None if process is None else process.intercept
        session = session_class(self.engine, intercept=intercept, read_timeout=False)
        async with connect(http_session=session) as aws:
            yield aws

    async def run_worker(
        self,
        app: App,
        *,
        process: Process | None = None,
        settings: Settings | None = None,
        until_idle: bool = True,
        started: Callable[[Worker], Coroutine[Any, Any, None]] | None = None,
    ) -> bool:
        """Run a worker until it ends or its process dies; return whether it lived."""
        process = process or Process("worker")
        async with self.clients(process) as aws:
            worker = Worker(
                app,
                aws,
                settings or Settings(),
                clock=self.clock,
                rng=random.Random(self.rng.random()),
            )
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(_cancel_at, process.dead, group.cancel_scope)
                    if started is not None:
                        group.start_soon(started, worker)
                    await worker.run(until_idle=until_idle)
                    group.cancel_scope.cancel()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors
        return not process.dead.is_set()

    def items(self, table: str) -> list[dict[str, Any]]:
        """Return every item of a table in wire form, control items included."""
        items: list[dict[str, Any]] = []
        request: dict[str, Any] = {"TableName": table}
        while True:
            _, body = self.engine.call("dynamodb", "Scan", request)
            items += body["Items"]
            if "LastEvaluatedKey" not in body:
                return items
            request["ExclusiveStartKey"] = body["LastEvaluatedKey"]


async def _cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()

"""A world in one process: the local engine, a virtual clock, and processes that die and freeze.

A *process* here is an actor with clients of its own. Killing a process makes its transport dead: a
call on the wire is applied or not, no later call ever returns, and none of its clean-up reaches the
table. That is what `kill -9` does; cancelling a task would run its `finally` blocks. While a
process is frozen, none of its calls gets through. When it thaws, all calls go on, and old requests
are applied now: the process is a zombie.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, MutableSequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.local.control import Control
from streamkit.local.engine import CallRecord, Engine
from streamkit.local.transport import Call, Response, session_class
from streamkit.progress.activity import task_group
from streamkit.settings import Settings
from streamkit.testing.archives import PASSING
from streamkit.testing.clients import deferred
from streamkit.testing.faults import Interceptor
from streamkit.testing.loop import SkewedClock, VirtualClock
from streamkit.testing.replicas import Replicas
from streamkit.testing.sightings import WRITES, RecordLog, SeenCall
from streamkit.worker.process import Workers
from streamkit.worker.worker import Worker

_STEPS = (7.0, 60.0, 300.0)
"""Seconds between two steps of a process's clock."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The point where a process stops: its n-th call (from 0), before or after it is applied.

    The process dies there or, if it `freezes`, is frozen until `thaw` is called.
    """

    call: int
    moment: Literal["before", "after"]
    freezes: bool = False


@dataclass
class Process:
    """One actor: its calls are counted, and it may be told to die at one of them.

    Attributes:
        clock: its own time of day, which is wrong and steps; None until a worker runs in it.
        frozen: None while it runs. While it is set, calls on the wire since before the freeze are
            applied; their replies and all later calls wait.
        stood: how often calls had to wait for a thaw.
        writes: the numbers of its calls that may have written something.
        stopped: set once it has died or frozen at the call that it was told.
    """

    name: str
    crash: CrashPoint | None = None
    faults: Interceptor | None = None
    clock: VirtualClock | None = None
    calls: int = 0
    writes: list[int] = field(default_factory=list)
    dead: anyio.Event = field(default_factory=anyio.Event)
    frozen: anyio.Event | None = None
    stood: int = 0
    stopped: anyio.Event = field(default_factory=anyio.Event)

    def kill(self) -> None:
        """Kill the process: no further call returns."""
        self.dead.set()

    def freeze(self) -> None:
        """Freeze the process: no call and no reply gets through until `thaw`."""
        if self.frozen is None:
            self.frozen = anyio.Event()

    def thaw(self) -> None:
        """Thaw the process: all waiting calls and replies go on."""
        if self.frozen is not None:
            self.frozen.set()
            self.frozen = None

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Stand between this process's clients and the engine."""
        await self._runs()
        number, self.calls = self.calls, self.calls + 1
        if call.operation in WRITES:
            self.writes.append(number)
        if self.crash is None or number != self.crash.call:
            return await self._pass(call, apply)
        reply = apply() if self.crash.moment == "after" else None
        if self.crash.freezes:
            self.freeze()
        else:
            self.kill()
        self.stopped.set()
        await self._runs()
        return await self._pass(call, apply) if reply is None else reply

    async def _pass(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Pass a call on, with the process's faults; while frozen, its reply waits."""
        try:
            return apply() if self.faults is None else await self.faults.intercept(call, apply)
        finally:
            await self._runs()

    async def _runs(self) -> None:
        """Wait while the process is frozen; wait for ever if it is dead."""
        while self.frozen is not None and not self.dead.is_set():
            self.stood += 1
            await self.frozen.wait()
        if self.dead.is_set():
            await anyio.sleep_forever()


@dataclass
class World:
    """The engine with its controls, and a record of every call.

    `replicas` answer the processes' reads that are eventually consistent, some from a moment ago.
    `watchers` are functions that get a `SeenCall` of each call that reached the engine: its
    process, when it was sent, and what it wrote.
    """

    engine: Engine
    control: Control
    clock: VirtualClock
    rng: random.Random
    replicas: Replicas
    calls: MutableSequence[CallRecord] = field(default_factory=list)
    watchers: list[Callable[[SeenCall], None]] = field(default_factory=list)
    _caller: tuple[str, float] | None = None
    _records: RecordLog = field(default_factory=RecordLog)
    _clocks: random.Random = field(default_factory=lambda: random.Random(0))

    @classmethod
    def create(
        cls,
        seed: int = 0,
        *,
        shards: int = 2,
        clock: VirtualClock | None = None,
        calls: int | None = None,
    ) -> "World":
        """Make a world; the same seed makes the same world.

        It keeps every call, or only so many of the latest `calls`: long runs need the memory.
        """
        clock, rng = clock or VirtualClock(), random.Random(seed)
        engine = Engine(clock=clock.time, rng=random.Random(seed), shards=shards)
        clocks, replicas = random.Random(f"clocks {seed}"), random.Random(f"replicas {seed}")
        copies = Replicas(replicas, clock.time)
        world = cls(engine, Control(engine), clock, rng, copies, _clocks=clocks)
        if calls is not None:
            world.calls = deque(maxlen=calls)
        engine.observers.append(world._saw)
        return world

    @asynccontextmanager
    async def clients(self, process: Process | None = None) -> AsyncIterator[Aws]:
        """Open clients; those of a process die with it."""

        async def intercept(call: Call, apply: Callable[[], Response]) -> Response:
            if process is None:
                return apply()
            caller = process.name, self.clock.time()

            def apply_as() -> Response:
                before, self._caller = self._caller, caller
                try:
                    return self.replicas.answer(call, apply)
                finally:
                    self._caller = before

            return await process.intercept(call, apply_as)

        if process is not None:
            PASSING.set(process.intercept)  # for calls of an archive, which are not the engine's
        session = session_class(self.engine, intercept=intercept, read_timeout=False)
        async with deferred(session, self.engine.region) as aws:
            yield aws

    async def run_worker(
        self,
        app: App,
        *,
        process: Process | None = None,
        settings: Settings | None = None,
        until_idle: bool = True,
        started: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
    ) -> bool:
        """Run a worker until it ends or its process dies; return whether the process survived.

        An app that has listeners runs with them, in one process; then `started` is called with
        `Workers`, otherwise with its `Worker`.
        """
        process = process or Process("worker")
        async with self.clients(process) as aws:
            make: Callable[..., Worker | Workers]
            make = partial(Workers, [app]) if app.listeners else partial(Worker, app)
            worker = make(
                aws,
                settings or Settings(),
                clock=self.clock_of(process),
                rng=random.Random(self.rng.random()),
            )
            async with task_group() as group:
                group.start_soon(_cancel_at, process.dead, group.cancel_scope)
                if started is not None:
                    group.start_soon(started, worker)
                await worker.run(until_idle=until_idle)
                group.cancel_scope.cancel()
        return not process.dead.is_set()

    def clock_of(self, process: Process) -> VirtualClock:
        """Return a process's own clock; a new clock is wrong by minutes."""
        if process.clock is None:
            process.clock = SkewedClock(self._clocks, every=self._clocks.choice(_STEPS))
        return process.clock

    def _saw(self, call: CallRecord) -> None:
        self.calls.append(call)
        if not self.watchers:
            return
        actor, sent = self._caller or ("", call.at)
        writes = self._records.new(self.engine) if call.operation in WRITES else ()
        sighting = SeenCall(actor, sent, call, writes)
        for watch in self.watchers:
            watch(sighting)

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

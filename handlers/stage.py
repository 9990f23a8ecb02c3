"""The stage of a demo: a local engine, clients, and workers that can be killed.

Everything is in one process and one event loop, with no sockets. A worker runs the real code
through the real SDK; only the network between SDK and engine is ours. Killing a worker means that
no call of it arrives or returns any more, those of its clean-up included; what it had sent was
applied or was not.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Never

import anyio
import anyio.abc

from streamkit import App
from streamkit.aws import Aws, connect
from streamkit.local.control import Control
from streamkit.local.engine import CallRecord, Engine
from streamkit.local.transport import Apply, Call, Response, session_class
from streamkit.settings import Settings
from streamkit.worker.process import Workers
from streamkit.worker.worker import Worker

Death = Literal["before", "after"]
"""Whether the commit that a worker dies in reaches the table. The worker gets no reply at all."""


@dataclass(slots=True)
class Costs:
    """What some calls have consumed, as the engine accounts for them."""

    engine: Engine
    read: float = 0.0
    write: float = 0.0
    pages: int = 0

    def of(self, call: Call, apply: Apply) -> Response:
        """Carry a call out and add what it consumes."""
        if call.service == "dynamodbstreams":
            self.pages += call.operation == "GetRecords"
            return apply()
        self.engine.observers.append(self._note)
        try:
            return apply()
        finally:
            self.engine.observers.remove(self._note)

    def _note(self, record: CallRecord) -> None:
        self.read += record.units["read"]
        self.write += record.units["write"]


@dataclass
class Process:
    """A worker process, as far as one event loop can play one."""

    name: str
    app: App
    settings: Settings
    costs: Costs
    dead: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    worker: Worker | Workers | None = None
    _death: Death | None = None
    _life: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def run(self, *, until_idle: bool = False) -> None:
        """Run a worker, until it is stopped, dead, or the stream is idle."""
        session = session_class(self.costs.engine, intercept=self._network, read_timeout=False)
        with self._life:
            async with connect(http_session=session, region=self.costs.engine.region) as aws:
                if self.app.listeners:
                    self.worker = Workers([self.app], aws, self.settings)
                else:
                    self.worker = Worker(self.app, aws, self.settings)
                await self.worker.run(until_idle=until_idle)
            self.ended.set()

    @property
    def shards(self) -> frozenset[str]:
        """Return the shards that it reads."""
        return self.worker.shards if self.worker else frozenset()

    @property
    def changes(self) -> int:
        """Return how many changes its handlers were run for."""
        workers = getattr(self.worker, "workers", [self.worker])
        dispatchers = [worker.dispatcher for worker in workers if worker]
        return sum(dispatcher.counts.changes for dispatcher in dispatchers if dispatcher)

    async def kill(self, death: Death, *, patience: float = 2.0) -> bool:
        """Let it die in its next commit, before or after the table has it.

        Returns:
            Whether there was one; without any for `patience` seconds it dies where it is.
        """
        self._death = death
        with anyio.move_on_after(patience):
            await self.dead.wait()
        in_commit = self.dead.is_set()
        self._end()
        return in_commit

    async def stop(self) -> None:
        """Ask for a graceful end, and wait for it."""
        if self.worker is not None:
            self.worker.stop()
        await self.ended.wait()

    async def _network(self, call: Call, apply: Apply) -> Response:
        dying = self._death is not None and call.operation == "TransactWriteItems"
        if self.dead.is_set() or (dying and self._death == "before"):
            await self._die()
        response = self.costs.of(call, apply)
        if dying and response.status == 200:
            await self._die()
        return response

    def _end(self) -> None:
        """Stop its tasks; from now on the network takes nothing, so their clean-up is in vain."""
        self.dead.set()
        self._life.cancel()

    async def _die(self) -> Never:
        self._end()
        await anyio.sleep_forever()
        raise AssertionError("nothing comes after for ever")


@dataclass
class Stage:
    """An engine and the processes that work on it."""

    engine: Engine
    control: Control
    costs: Costs
    group: anyio.abc.TaskGroup
    processes: list[Process] = field(default_factory=list)

    def client(self) -> AbstractAsyncContextManager[Aws]:
        """Open clients of the application, whose calls are not the worker's costs."""
        return connect(http_session=session_class(self.engine), region=self.engine.region)

    def start_worker(self, app: App, settings: Settings, *, until_idle: bool = False) -> Process:
        """Start a worker process beside everything else."""
        process = Process(f"worker {len(self.processes) + 1}", app, settings, self.costs)
        self.processes.append(process)

        async def run() -> None:
            await process.run(until_idle=until_idle)

        self.group.start_soon(run)
        return process

    @property
    def changes(self) -> int:
        """Return how many changes all workers handled; those a worker died in are handled again."""
        return sum(process.changes for process in self.processes)


@asynccontextmanager
async def open_stage(engine: Engine) -> AsyncIterator[Stage]:
    """Set a stage; at the end, what is left of dead processes is swept away."""
    async with anyio.create_task_group() as group:
        yield Stage(engine, Control(engine), Costs(engine), group)
        group.cancel_scope.cancel()

"""The rig: an app's worker on the local engine, in virtual time, with its stops.

What a `Harness` adds is the table, and what tests expect. Time stands still between calls of a rig,
and within a call it passes at next to no cost: `advance("25h")` takes a second. One seed gives one
order of events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import AppTables, survey
from streamkit.errors import ConfigurationError
from streamkit.settings import Settings
from streamkit.table import Table
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.loop import VirtualClock, VirtualLoop, seconds_of
from streamkit.testing.rig_worker import RigWorker, Started
from streamkit.testing.stops import DeathInCommit, Moment, Operations, Part, Thaw, Zombies
from streamkit.testing.tables import requests_of, table_of
from streamkit.testing.world import CrashPoint, Process, World

T = TypeVar("T")

_PATIENT = Settings(
    poll_ceiling=600, heartbeat=300, lease=750, list_interval=1500, look_interval=600
)
"""Virtual waiting costs nothing, but each poll does. With these settings a day has about
a thousand calls, and takes less than a second: a month passes in about 20 s."""
_SETTLE_SECONDS = 4 * 3600.0
"""`settle` waits at most this many virtual seconds, longer than any retry, lease or listing."""
_PAGES = 3
_IDLE_STEP, _IDLE_STEPS = 1.0, 100
"""`settle` looks each second, and later once in a hundredth of the time that it has taken."""


class NotSettledError(AssertionError):
    """The worker still has something to do after hours of virtual time."""


class Rig:
    """Run one app's worker, with the real AWS client; see `Harness`.

    Args:
        app: the app to run.
        create_table: a `CreateTable` request, with a stream, if `shape` is not enough.
        shape: the shape of the app's table, if `App(shape=...)` does not say it, and its keys are
            not `PK` and `SK`, or items expire.
        others: `CreateTable` requests of other tables. Tables in `App(tables=...)` that are not
            among them get their declared shapes, or the keys `PK` and `SK`.
        seed: chooses the order of events.
        shards: how many shards the stream begins with.
        settings: the worker's settings; by default it polls seldom, so that days pass quickly.

    Attributes:
        worker: the app's worker; it is started by what needs it, and replaced when it dies.
    """

    def __init__(
        self,
        app: App,
        *,
        create_table: dict[str, Any] | None = None,
        shape: TableShape | None = None,
        others: Sequence[dict[str, Any]] = (),
        seed: int = 0,
        shards: int = 2,
        settings: Settings | None = None,
    ) -> None:
        declared = shape or app.shape_of(app.table)
        requests = [create_table or table_of(app, declared), *requests_of(app, others)]
        expiry = None if create_table else declared.time_to_live(app.table)
        self.app = app
        self._loop = VirtualLoop(seed)
        self.world = World.create(seed, shards=shards, clock=VirtualClock(self._loop))
        self._settings = settings or _PATIENT
        self.worker = RigWorker(self._run_of, self.world.clock, self._loop)
        self._declared = app.archive
        if app.archive is not None and not isinstance(app.archive, MemoryArchive):
            app.use_archive(MemoryArchive(flush=app.archive.flush))
        self._thaw: Thaw = "end"
        self._zombies = Zombies(self.world, 2 * self._settings.lease)
        self.operations = Operations(self.world, self._zombies)
        self._run(self._open(requests, expiry))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker without waiting, and close the loop."""
        if self._declared is not None:
            self.app.use_archive(self._declared)
        self.worker.drop()
        for task in self._zombies.close():
            with suppress(asyncio.CancelledError, Exception):
                self._loop.run_until_complete(task)
        self._run(self._clients.__aexit__(None, None, None))
        self._loop.close()

    # -- time and the worker -------------------------------------------------------------------

    def settle(self) -> None:
        """Run the worker until it has processed everything.

        Raises:
            NotSettledError: the worker is not done within four hours of virtual time.
            StreamkitError: the error that ended the worker.
        """
        self._run(self._settle())

    def advance(self, duration: str | float) -> None:
        """Let time pass: seconds, or `"15m"`, `"25h"`, `"2d"`. A live worker goes on running."""
        self._run(asyncio.sleep(seconds_of(duration)))

    def crash(
        self, *, at: int | None = None, moment: Moment = "before", part: Part = "worker"
    ) -> None:
        """Kill the worker as `kill -9` does; the next `settle` starts another.

        Args:
            at: kill it at its n-th call from now (from 0) instead, while a later `settle` runs.
            moment: whether the engine applies that call.
            part: the process that is killed; an operation can only be killed at a call.
        """
        if at is None:
            self.worker.drop()
            return
        self._stop_at(CrashPoint(at, moment), part)

    def freeze(
        self, *, at: int, moment: Moment = "before", thaw: Thaw = "lease", part: Part = "worker"
    ) -> None:
        """Freeze the worker, or an operation, at its n-th call from now.

        Another one takes its place. The frozen process continues later where it stopped.

        Args:
            at: the call, from 0.
            moment: whether the engine applies the call before the freeze, or when it thaws.
            thaw: when it thaws, see `streamkit.testing.stops`.
            part: the process that is frozen.
        """
        self._thaw = thaw
        self._stop_at(CrashPoint(at, moment, freezes=True), part)

    def _stop_at(self, point: CrashPoint, part: Part) -> None:
        if part == "operation":
            self.operations.stop_at(point, self._thaw)
        else:
            self.worker.stop_at(point)

    def operate(self, work: Callable[[Aws], Awaitable[T]]) -> T:
        """Run an operation beside the worker in a process of its own, as a command does.

            harness.operate(lambda aws: pause_consumer(app, aws))

        If `crash` or `freeze` stops its process, the operation runs again in another process.

        Returns:
            The result of the operation.

        Raises:
            Exception: the error of the operation.
        """
        return self._run(self.operations.run(work))

    def outlive(self) -> None:
        """Thaw every frozen process and run it to its end.

        Raises:
            TimeoutError: an operation runs for hours of virtual time.
        """
        self._zombies.thaw()
        self._run(self._zombies.wait(_SETTLE_SECONDS))
        if self.worker.runs:
            self.settle()
        self.advance(self._settings.lease)

    def die_in_commit(self) -> Process:
        """Tell the worker's process to die before its next commit that writes, and return it."""
        process = self.worker.ensure()
        process.faults = DeathInCommit(process, self.app, self.table)
        return process

    def stop(self) -> None:
        """Stop the worker gracefully, as SIGTERM does, and those that stood still and have thawed.

        A worker that is frozen stops when it thaws, unless that is after the end.
        """
        self._run(self._stop())

    @property
    def raised(self) -> dict[str, BaseException]:
        """Return the last error of each handler, by its name."""
        return self.worker.raised

    @property
    def restarts(self) -> int:
        """Return how often another worker took the place of one that was killed or frozen."""
        return self.worker.restarts

    @property
    def calls(self) -> int:
        """Return how many calls the worker has made, and those whose place it took."""
        return self.worker.processes.calls

    @property
    def is_dead(self) -> bool:
        """Return whether the worker's process was killed, and none was started since."""
        return self.worker.process.dead.is_set()

    @property
    def writes(self) -> list[int]:
        """Return the numbers of those calls that may have written something."""
        return self.worker.processes.writes

    # -- the stream ----------------------------------------------------------------------------

    def split(self) -> None:
        """Split every open shard in two."""
        self.world.control.split(self.app.table)

    def roll(self) -> None:
        """Close every open shard, each followed by one child."""
        self.world.control.roll(self.app.table)

    def archive(self) -> MemoryArchive:
        """Return the app's archive, which is in memory here, even if it is declared as another.

        Raises:
            ConfigurationError: the app has no archive.
        """
        if not isinstance(self.app.archive, MemoryArchive):
            raise ConfigurationError(f"{self.app.declared} has no archive=")
        return self.app.archive

    # -- inside --------------------------------------------------------------------------------

    async def _open(
        self, requests: Iterable[dict[str, Any]], expiry: dict[str, Any] | None
    ) -> None:
        self._clients = self.world.clients()
        self._aws: Aws = await self._clients.__aenter__()
        for request in requests:
            await self._aws.dynamodb.create_table(**request)
        if expiry is not None:
            await self._aws.dynamodb.update_time_to_live(**expiry)
        self.tables: AppTables = await survey(self.app, self._aws)
        self.table = Table(self._aws.dynamodb, self.tables.table, tables=self.tables.schemas)

    def _run_of(self, process: Process, started: Started) -> Coroutine[Any, Any, bool]:
        """Return the run of a worker, with the app and settings that the rig has by now."""
        return self.world.run_worker(
            self.app,
            process=process,
            settings=self._settings,
            until_idle=False,
            started=started,
        )

    async def _settle(self) -> None:
        self.worker.ensure()
        self.worker.count_anew()
        self._zombies.count_anew()
        began, quiet = self._loop.time(), False
        while not quiet:
            await asyncio.sleep(max(_IDLE_STEP, (self._loop.time() - began) // _IDLE_STEPS))
            if self.worker.has_ended:
                self.worker.revive()
            elif self.worker.is_frozen:
                self._zombies.add(self.worker.replace_frozen(self._thaw))
            quiet = self.worker.is_idle(_PAGES) and not self._zombies.is_busy(_PAGES)
            if self._loop.time() > began + _SETTLE_SECONDS:
                raise NotSettledError(f"busy after {_SETTLE_SECONDS:.0f} virtual seconds")
        self._zombies.thaw("phase")

    async def _stop(self) -> None:
        frozen = await self.worker.stop(self._thaw)
        if frozen is not None:
            self._zombies.add(frozen)
        await self._zombies.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


__all__ = ["NotSettledError", "Rig", "table_of"]

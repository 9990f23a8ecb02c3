"""Workers: those of one process, a worker for each app and for each of its listeners.

      app ──► worker ─┐  first: shares the stream's shards with other processes
      listener ► worker ─┼─► one reader for each shard
      listener ► worker ─┘  followers: read, in this process, what the first reads

Consumers of the same table share the pages that are read of its stream (co-location). Otherwise
they are independent: each has its own positions, handlers, pace and failures, and a slow one delays
no other. Apps of different tables share only the process.

In: apps. Out: `run`, until stopped or until all of them are idle. On failure: when one worker
fails, the other workers drain, and its error is raised. A listener that may have lost changes halts
alone: the other workers go on, the process is not ready any more, and the error is raised at its
end.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from streamkit.app import App, consumers_of
from streamkit.aws import Aws
from streamkit.errors import RetentionLost
from streamkit.fleet.sharing import CoLocation
from streamkit.observe.logger import get_logger
from streamkit.observe.metrics import Metrics
from streamkit.progress.clock import Clock, SystemClock
from streamkit.settings import Settings
from streamkit.stream.reader import StreamPages
from streamkit.stream.sharing import SharedReads
from streamkit.worker.crew import ProcessPlace
from streamkit.worker.worker import Worker

log = get_logger("streamkit.worker")


class Workers:
    """Runs apps with their listeners; `run` may be called once.

    `errors` are those that ended workers. `metrics` receives the workers' counts, beside the hooks
    of the apps themselves.
    """

    def __init__(
        self,
        apps: Sequence[App],
        aws: Aws,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.errors: list[Exception] = []
        self.stopping = anyio.Event()
        self.workers: list[Worker] = []
        clock, rng = clock or SystemClock(), rng or random.Random()
        place, reads = ProcessPlace(metrics=metrics), SharedReads(StreamPages(aws), clock)
        consumers = consumers_of(apps)
        first: dict[str, Worker] = {}
        for app in consumers:
            sharers = sum(other.table == app.table for other in consumers)
            mine = replace(place, consumers=sharers, reads=reads if sharers > 1 else None)
            if app.table in first:
                mine = replace(mine, co_location=_held_by(first[app.table]))
            own = random.Random(rng.random())
            worker = Worker(app, aws, self.settings, clock=clock, rng=own, place=mine)
            first.setdefault(app.table, worker)
            self.workers.append(worker)
        self._first = set(first.values())
        self._halted: set[Worker] = set()

    @property
    def name(self) -> str:
        """Return the first worker's name, which all share as long as none was swept."""
        return self.workers[0].name

    @property
    def shards(self) -> frozenset[str]:
        """Return the shards that any of the workers reads at the moment."""
        return frozenset[str]().union(*(worker.shards for worker in self.workers))

    def stop(self) -> None:
        """Begin a graceful end of all workers."""
        self.stopping.set()
        for worker in self.workers:
            worker.stop()

    def is_idle(self, pages: int | None = None) -> bool:
        """Return whether no worker has anything to do, as `Worker.is_idle`; each is asked."""
        at_work = [worker for worker in self.workers if worker not in self._halted]
        idle = [worker.is_idle(pages) if pages else worker.is_idle() for worker in at_work]
        return all(idle)

    def count_anew(self) -> None:
        """Restart the count for `is_idle`: only pages read from now on count."""
        for worker in self.workers:
            worker.count_anew()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped, or until nothing is left to read; a paused worker reads nothing.

        Raises:
            ConfigurationError: an app does not fit its table, or may not use it.
            RetentionLost: records may have been trimmed before they were read.
        """
        async with self._resources() as opened, anyio.create_task_group() as group:
            for worker in self.workers:
                group.start_soon(self._one, worker, opened.get(worker))
            if until_idle:
                await self._until_idle()
                self.stop()
        if self.errors:
            raise self.errors[0]

    async def _one(self, worker: Worker, resources: tuple[Any, ...] | None) -> None:
        try:
            await worker.run(resources=resources)
        except Exception as error:  # noqa: BLE001 - raised again after the other workers drain
            self._ended(worker, error)

    def _ended(self, worker: Worker, error: Exception) -> None:
        self.errors.append(error)
        if isinstance(error, RetentionLost) and worker not in self._first:
            self._halted.add(worker)
            log.error("consumer.halted", app=worker.app.name, error=str(error))
        else:  # the other workers of the table read what the first one reads
            self.stop()

    async def _until_idle(self) -> None:
        while not (self.stopping.is_set() or self.is_idle()):
            with anyio.move_on_after(self.settings.poll_floor):
                await self.stopping.wait()

    @asynccontextmanager
    async def _resources(self) -> AsyncIterator[dict[Worker, tuple[Any, ...]]]:
        """Run a lifespan that several apps share once for all of them; yield its resources."""
        found: dict[Worker, tuple[Any, ...]] = {}
        owners = [worker.app.resourceful for worker in self.workers]
        async with AsyncExitStack() as stack:
            for owner in dict.fromkeys(owners):
                sharers = [w for w in self.workers if w.app.resourceful is owner]
                if len(sharers) > 1:
                    opened = await stack.enter_async_context(owner.resources())
                    found |= dict.fromkeys(sharers, opened)
            yield found


def _held_by(first: Worker) -> CoLocation:
    return lambda: first.held

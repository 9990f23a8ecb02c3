"""The worker of a rig: it runs in one process at a time, and is replaced when that is stopped."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

from streamkit.observe.frames import watching
from streamkit.testing.loop import VirtualClock, VirtualLoop
from streamkit.testing.stops import Succession, Thaw, Zombie
from streamkit.testing.world import CrashPoint, Process
from streamkit.worker.worker import Worker

Started: TypeAlias = Callable[[Worker], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Process, Started], Coroutine[Any, Any, bool]]


class RigWorker:
    """The worker of an app on a rig's loop.

    Args:
        run: returns the run of a worker in a process; it calls a function once it has started.
        clock: the clock of the world, on which each process's own clock is based.
        loop: the rig's loop.

    Attributes:
        processes: all processes that it has run in.
        process: the process that the worker runs in, or ran in before it was stopped.
        raised: the last error of each handler.
        workers: the worker of that process, once it has started.
        restarts: how often another worker took the place of one that was killed or frozen.
    """

    def __init__(self, run: Run, clock: VirtualClock, loop: VirtualLoop) -> None:
        self._run = run
        self._clock = clock
        self._loop = loop
        self.processes = Succession("worker")
        self.process = Process("worker", clock=clock)
        self.raised: dict[str, BaseException] = {}
        self.restarts = 0
        self._task: asyncio.Task[bool] | None = None
        self.workers: list[Worker] = []
        self._alive = asyncio.Event()

    @property
    def runs(self) -> bool:
        """Return whether a worker was started, and neither stopped nor dropped since."""
        return self._task is not None

    @property
    def has_ended(self) -> bool:
        """Return whether no worker runs any more: it was killed, or has raised an error."""
        return self._task is None or self._task.done()

    @property
    def is_frozen(self) -> bool:
        """Return whether the worker's process is frozen."""
        return self.process.frozen is not None

    def is_idle(self, pages: int) -> bool:
        """Return whether the worker has started, and each shard has served so many quiet pages."""
        return bool(self.workers) and all(worker.is_idle(pages) for worker in self.workers)

    def count_anew(self) -> None:
        """Restart the count for `is_idle`: only pages that are read from now on count."""
        for worker in self.workers:
            worker.count_anew()

    def ensure(self) -> Process:
        """Start a worker if none runs, and return its process."""
        if self._task is None:
            self.process = self.processes.begin(self._clock)
            self._alive = alive = asyncio.Event()
            self.workers = workers = []

            async def started(worker: Worker) -> None:
                workers.append(worker)
                alive.set()

            with watching(self.raised.__setitem__):
                self._task = self._loop.create_task(self._run(self.process, started))
        return self.process

    def stop_at(self, point: CrashPoint) -> None:
        """Kill or freeze it at a call, counted from now; it may be restarted before."""
        self.processes.stop_at(point, self.ensure())

    def replace_frozen(self, thaw: Thaw) -> Zombie:
        """Start another worker beside a frozen one, and return the frozen one.

        Raises:
            RuntimeError: no worker runs.
        """
        frozen = self._frozen(thaw)
        self.restarts += 1
        self.ensure()
        return frozen

    def revive(self) -> None:
        """Start another worker after a kill.

        Raises:
            StreamkitError: the error that ended the worker, if it was not killed.
        """
        if self._task is not None and not self.process.dead.is_set():
            task, self._task = self._task, None
            task.result()
        self.drop()
        self.restarts += 1
        self.ensure()

    def _frozen(self, thaw: Thaw) -> Zombie:
        """Return the frozen process, and run in it no more."""
        task, self._task = self._task, None
        if task is None:
            raise RuntimeError("no worker runs that could be frozen")
        return Zombie("worker", self.process, task, thaw, self.workers)

    async def stop(self, thaw: Thaw) -> Zombie | None:
        """Stop the worker gracefully, as SIGTERM does.

        A process that is not up yet dies of the signal if it is frozen.

        Returns:
            The worker if it is frozen, before or while it stops; it goes on to stop when it thaws.
        """
        if self._task is None:
            return None
        alive = asyncio.ensure_future(self._alive.wait())
        halted = asyncio.ensure_future(self.process.stopped.wait())
        await asyncio.wait({alive, halted, self._task}, return_when=asyncio.FIRST_COMPLETED)
        for worker in self.workers:
            worker.stop()
        await asyncio.wait({halted, self._task}, return_when=asyncio.FIRST_COMPLETED)
        alive.cancel()
        halted.cancel()
        if self.is_frozen and self.workers:
            return self._frozen(thaw)
        if self.is_frozen:
            self.process.kill()
        task, self._task = self._task, None
        await task
        return None

    def drop(self) -> None:
        """Kill the worker, if one runs, without a wait."""
        task, self._task = self._task, None
        if task is None:
            return
        self.process.kill()
        task.cancel()
        if not self._loop.is_running():
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)

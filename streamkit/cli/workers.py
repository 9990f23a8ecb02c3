"""`streamkit worker`: apps side by side in one process, until a signal or until idle."""

import os
from collections.abc import Sequence

import anyio

from streamkit import __version__
from streamkit.app import App
from streamkit.aws import Aws, connect
from streamkit.cli.running import reach
from streamkit.cli.signals import graceful
from streamkit.observe.logger import get_logger
from streamkit.settings import Settings
from streamkit.worker import Worker

log = get_logger("streamkit.process")


async def run_workers(apps: Sequence[App], settings: Settings, *, until_idle: bool) -> bool:
    """Run a worker for each app; False if they had to be stopped before they were drained.

    When one fails the others drain, and its error is raised.

    Raises:
        ConfigurationError: an app does not fit its table, or may not use it.
        RetentionLost: records may have been trimmed before they were read.
    """
    log.info(
        "process.started",
        version=__version__,
        pid=os.getpid(),
        apps=[app.name for app in apps],
        until_idle=until_idle,
        lease=settings.lease,
    )
    async with connect() as aws:
        await reach(aws)
        fleet = _Fleet(apps, aws, settings)
        with graceful(fleet.interrupt):
            drained = await fleet.run(until_idle=until_idle)
    log.info("process.stopped", drained=drained)
    if fleet.errors:
        raise fleet.errors[0]
    return drained


class _Fleet:
    """The workers of one process."""

    def __init__(self, apps: Sequence[App], aws: Aws, settings: Settings) -> None:
        self.errors: list[Exception] = []
        self._workers = [Worker(app, aws, settings) for app in apps]
        self._grace = settings.grace
        self._stopping = anyio.Event()

    def interrupt(self) -> None:
        """Begin to drain."""
        log.info("process.draining", grace=self._grace)
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.stop()

    async def run(self, *, until_idle: bool) -> bool:
        """Run all workers; draining ends with the grace period."""
        drained = False
        async with anyio.create_task_group() as group:
            group.start_soon(self._limit_draining, group.cancel_scope)
            async with anyio.create_task_group() as working:
                for worker in self._workers:
                    working.start_soon(self._one, worker, until_idle)
            drained = True
            group.cancel_scope.cancel()
        return drained

    async def _one(self, worker: Worker, until_idle: bool) -> None:
        try:
            await worker.run(until_idle=until_idle)
        except Exception as error:  # noqa: BLE001 - raised again when the others are drained
            self.errors.append(error)
            self._stop()

    async def _limit_draining(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        await anyio.sleep(self._grace)
        scope.cancel()

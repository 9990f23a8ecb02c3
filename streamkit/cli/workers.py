"""`streamkit worker`: apps and their listeners run in one process until a signal or until idle."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio
import typer

from streamkit import __version__
from streamkit.app import App, consumers_of
from streamkit.aws import Aws, connect
from streamkit.cli.exits import ExitCode
from streamkit.cli.failures import report
from streamkit.cli.printing import tell
from streamkit.cli.running import reach
from streamkit.cli.signals import graceful
from streamkit.cli.watchdog import blocked_seconds, watch_loop
from streamkit.errors import RetentionLost
from streamkit.observe.logger import get_logger
from streamkit.observe.metrics import join
from streamkit.observe.otel import find_metrics
from streamkit.observe.registry import Registry
from streamkit.operate.remaining import read_remaining
from streamkit.progress.garbage import collect_seldom
from streamkit.progress.metering import meter
from streamkit.settings import Settings
from streamkit.worker.process import Workers
from streamkit.worker.report import sample_for_ever

if TYPE_CHECKING:
    from streamkit.operate.status_page.site import Site

log = get_logger("streamkit.process")

_ACCEPT = (
    "it halts again at each start; `streamkit worker --accept-loss` goes on at the oldest record,"
    " and `streamkit status` then says which aggregates need a rebuild"
)


async def run_workers(
    apps: Sequence[App],
    settings: Settings,
    *,
    until_idle: bool,
    blocked_after: float | None = None,
) -> ExitCode:
    """Run a worker for each app and listener, and return the exit code of the process.

    When one worker fails, the rest drain, and its error is reported before the log says that the
    process stopped. `blocked_after` is how many seconds the event loop may be blocked; None takes
    the number that follows from the settings.

    Returns:
        INTERRUPTED if the workers were stopped before they had drained or, with `until_idle`,
        before they were idle; PROBLEMS if they were idle and changes are parked; PAUSED if they
        were idle and a pause kept changes unread; else the code of the first error.
    """
    collect_seldom()
    process = _Process(apps, settings)
    try:
        with graceful(process.interrupt), watch_loop(blocked_after or blocked_seconds(settings)):
            # A supervisor may send SIGTERM once it reads this line: that has to end it gracefully.
            log.info(
                "process.started",
                version=__version__,
                pid=os.getpid(),
                apps=[app.name for app in consumers_of(apps)],
                until_idle=until_idle,
                lease=settings.lease,
            )
            code = await process.run(until_idle=until_idle)
        errors = process.errors
    except typer.BadParameter:
        raise  # the command line reports wrong options
    except Exception as error:  # noqa: BLE001 - it is reported as the command line does
        errors, code = [error], ExitCode.OK
    codes = [report(error) for error in errors]
    if any(isinstance(error, RetentionLost) for error in errors):
        tell(_ACCEPT)
    code = codes[0] if codes else code
    drained = process.drained and not errors
    log.info("process.stopped", drained=drained, exit_code=int(code))
    return code


class _Process:
    """The workers of one process."""

    def __init__(self, apps: Sequence[App], settings: Settings) -> None:
        self._apps, self._settings = apps, settings
        self._workers: Workers | None = None
        self._starting = anyio.CancelScope()
        self._interrupted = False
        self.drained = True

    @property
    def errors(self) -> list[Exception]:
        """Return the errors that ended workers; they are reported once the rest has drained."""
        return self._workers.errors if self._workers is not None else []

    def interrupt(self) -> None:
        """Begin to drain."""
        log.info("process.draining", grace=self._settings.grace)
        self._interrupted = True
        self._starting.cancel()
        if self._workers is not None:
            self._workers.stop()

    async def run(self, *, until_idle: bool) -> ExitCode:
        """Run all workers, and return the exit code; draining ends with the grace period.

        Raises:
            BotoCoreError: an endpoint cannot be reached, or there is no region or no credentials.
        """
        registry = Registry()
        async with connect() as aws, self._health(registry) as site:
            meter(aws)
            with self._starting:
                await reach(aws)
                await self._require_migrations(aws)
                metrics = join(registry, find_metrics())
                self._workers = Workers(self._apps, aws, self._settings, metrics=metrics)
                if site is not None:
                    site.attach(self._workers, aws)
            workers = self._workers
            self.drained = workers is None or await self._work(workers, until_idle, site)
            if not self.drained or (until_idle and self._interrupted):
                return ExitCode.INTERRUPTED
            if not until_idle or self.errors:
                return ExitCode.OK
            return await self._unfinished(aws)

    async def _require_migrations(self, aws: Aws) -> None:
        needing = [app for app in self._apps if app.head.required]
        if needing:
            from streamkit.migrate.operate.required import require_migrations

            for app in needing:
                await require_migrations(app, aws)

    async def _unfinished(self, aws: Aws) -> ExitCode:
        """Check what idle workers have left; an idle stream does not mean that all is done."""
        left = [await read_remaining(app, aws) for app in consumers_of(self._apps)]
        for one in left:
            if one.parked or one.paused:
                log.warning("process.unfinished", **asdict(one))
        if any(one.paused for one in left):
            return ExitCode.PAUSED
        return ExitCode.PROBLEMS if any(one.parked for one in left) else ExitCode.OK

    @asynccontextmanager
    async def _health(self, registry: Registry) -> AsyncIterator["Site | None"]:
        """Serve probes, metrics and the status page, whose reports take 5 MB; None without."""
        settings = self._settings
        if settings.health is None:
            yield None
            return
        from streamkit.operate.status_page.server import serving
        from streamkit.operate.status_page.site import Site

        site = Site(registry, settings.ready_lag, token=settings.health_token)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(serving(settings.health, site.answer))
            except OSError as error:
                text = f"health: cannot listen on {settings.health}: {error.strerror}"
                raise typer.BadParameter(text) from None
            yield site

    async def _work(self, workers: Workers, until_idle: bool, site: "Site | None") -> bool:
        drained = False
        async with anyio.create_task_group() as group:
            group.start_soon(self._limit_draining, workers, group.cancel_scope)
            group.start_soon(sample_for_ever, workers.workers)
            if site is not None:
                group.start_soon(site.remember_for_ever)
            try:
                await workers.run(until_idle=until_idle)
            except Exception:
                if not workers.errors:
                    raise
            drained = True
            group.cancel_scope.cancel()
        return drained

    async def _limit_draining(self, workers: Workers, scope: anyio.CancelScope) -> None:
        await workers.stopping.wait()
        await anyio.sleep(self._settings.grace)
        scope.cancel()

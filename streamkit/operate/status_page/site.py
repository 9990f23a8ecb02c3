"""The site: it answers each path of the health server.

    /livez    200 while the process does its work; else a restart may help
    /readyz   200 when every consumer is served; else 503 with the reasons, a line each
    /metrics  Prometheus' text format
    /         the status page; the table is read at most every few seconds, however many clients ask

In: the workers of a process. Out: replies. If AWS fails, the page says so and shows what is known
without it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.migrate.status import Line, list_migrations
from streamkit.observe import exposition
from streamkit.observe.logger import get_logger
from streamkit.observe.redaction import name_of
from streamkit.observe.registry import Registry
from streamkit.observe.version import __version__
from streamkit.operate.spending import Spending, read_spending
from streamkit.operate.status import read_status
from streamkit.operate.status_page.checks import Verdict, alive, ready
from streamkit.operate.status_page.page import ConsumerView, HandlerView, ProcessFacts, render
from streamkit.operate.status_page.server import PageReply
from streamkit.operate.status_page.style import POLICY
from streamkit.progress.clock import Clock, SystemClock
from streamkit.worker.process import Workers
from streamkit.worker.report import WorkerReport, sample
from streamkit.worker.worker import Worker

log = get_logger("streamkit.health")

KEPT_SECONDS = 5.0
"""The page shows data of the table that is at most this old."""
_READ_SECONDS = 10.0


class Site:
    """Answer for one process; until `attach` is called, the process is shown as starting.

    Args:
        registry: the metrics that `/metrics` shows.
        lag_max: seconds that a consumer may be behind and still be ready; 0 for any number.
        clock: the time shown on the page.
    """

    def __init__(self, registry: Registry, lag_max: float, clock: Clock | None = None) -> None:
        self._registry, self._lag_max = registry, lag_max
        self._clock = clock or SystemClock()
        self._workers: Workers | None = None
        self._aws: Aws | None = None
        self._reading = anyio.Lock()
        self._views: list[ConsumerView] = []
        self._read_at = 0.0

    def attach(self, workers: Workers, aws: Aws) -> None:
        """Answer for these workers from now on."""
        self._workers, self._aws = workers, aws

    async def answer(self, path: str) -> PageReply:
        """Answer a path."""
        if path == "/livez":
            return _verdict(alive(self._reports))
        if path == "/readyz":
            return _verdict(self._ready)
        if path == "/metrics":
            sample(self._known)
            return PageReply(
                HTTPStatus.OK, exposition.render(self._registry), exposition.CONTENT_TYPE
            )
        if path == "/":
            return PageReply(HTTPStatus.OK, await self._page(), "text/html; charset=utf-8", POLICY)
        return PageReply(HTTPStatus.NOT_FOUND, "not found\n")

    @property
    def _known(self) -> Sequence[Worker]:
        return () if self._workers is None else self._workers.workers

    @property
    def _reports(self) -> list[WorkerReport]:
        return [worker.report for worker in self._known]

    @property
    def _ready(self) -> Verdict:
        workers = self._workers
        errors = workers.errors if workers is not None else []
        draining = workers is not None and workers.stopping.is_set()
        return ready(self._reports, errors, self._lag_max, draining=draining)

    async def _page(self) -> str:
        async with self._reading:
            if self._clock.monotonic() - self._read_at > KEPT_SECONDS or not self._views:
                self._views = [await self._view(worker) for worker in self._known]
                self._read_at = self._clock.monotonic()
        name = "" if self._workers is None else self._workers.name
        at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return render(ProcessFacts(__version__, name, at, self._ready), self._views)

    async def _view(self, worker: Worker) -> ConsumerView:
        app, aws, status, spending = worker.app, self._aws, None, None
        migrations: list[Line] = []
        trouble = "it did not answer in time"
        with anyio.move_on_after(_READ_SECONDS):
            try:
                if aws is not None:
                    status = await read_status(app, aws, clock=self._clock, look_into_stream=False)
                    spending = await _spending(app, aws)
                    migrations = await list_migrations(app, aws, clock=self._clock)
                trouble = ""
            except Exception as error:  # noqa: BLE001 - after any error the rest is shown
                trouble = _kind(error)
                name = app.name
                log.often("health.unread", level="warning", by=name, consumer=name, error=trouble)
        return ConsumerView(
            worker.report, self._handlers(worker), status, spending, migrations, trouble
        )

    def _handlers(self, worker: Worker) -> list[HandlerView]:
        views = []
        for handler in worker.app.handlers:
            labels = {"consumer": worker.app.name, "handler": handler.name}
            spread = self._registry.histogram("streamkit_handler_seconds", labels)
            changes = int(self._registry.total("streamkit_changes_total", **labels))
            mean = spread.total / spread.count if spread.count else 0.0
            views.append(HandlerView(handler, spread.count, mean, changes))
        return views


def _verdict(verdict: Verdict) -> PageReply:
    if verdict.ok:
        return PageReply(HTTPStatus.OK, "ok\n")
    text = "".join(f"{reason}\n" for reason in verdict.reasons)
    return PageReply(HTTPStatus.SERVICE_UNAVAILABLE, text)


def _kind(error: Exception) -> str:
    """Return the kind of an error, not its text: services and handlers may quote items there."""
    return name_of(error) if hasattr(error, "response") else type(error).__name__


async def _spending(app: App, aws: Aws) -> Spending | None:
    """Return the units that one consumer's workers use; the consumer may be a listener."""
    found = await read_spending(app, aws)
    return next((one for one in found if one.consumer == app.name), None)

"""The site: it answers each path of the health server.

    /livez    200 while the process does its work; else a restart may help
    /readyz   200 when every consumer is served; else 503 with the reasons, a line each
    /reads    200 while the process can read the stream; else 503
    /metrics  Prometheus' text format
    /         the status page; the table is read at most every few seconds, however many clients ask

In: the workers of a process. Out: replies. If AWS fails, the page says so and shows what is known
without it. Probes and metrics ask for no token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

import anyio

from streamkit.aws import Aws, AwsError
from streamkit.core.parked.queues import list_parked
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError, StreamkitError
from streamkit.migrate.operate.status import Line, list_migrations
from streamkit.observe import exposition
from streamkit.observe.logger import get_logger
from streamkit.observe.redaction import name_of
from streamkit.observe.registry import Registry
from streamkit.observe.version import __version__
from streamkit.operate.explanation import Explanation, explain_item
from streamkit.operate.fan_outs import Audiences
from streamkit.operate.spending import spending_at
from streamkit.operate.status import read_status
from streamkit.operate.status_page.acting import ACTS, act
from streamkit.operate.status_page.checks import Verdict, alive, reads, ready
from streamkit.operate.status_page.history import STEP_SECONDS, History
from streamkit.operate.status_page.page import render
from streamkit.operate.status_page.requests import BrowserRequest, Gate, comes_from_here
from streamkit.operate.status_page.server import PageReply
from streamkit.operate.status_page.style import POLICY
from streamkit.operate.status_page.views import Asked, ConsumerView, HandlerView, ProcessFacts
from streamkit.progress.clock import Clock, SystemClock, utc
from streamkit.worker.process import Workers
from streamkit.worker.report import WorkerReport, sample
from streamkit.worker.worker import Worker

log = get_logger("streamkit.health")

KEPT_SECONDS = 5.0
"""The page shows data of the table that is at most this old."""
_READ_SECONDS = 10.0
_ASK_TOKEN = ('WWW-Authenticate: Basic realm="streamkit", charset="UTF-8"',)


class Site:
    """Answer for one process; until `attach` is called, the process is shown as starting.

    Args:
        registry: the metrics that `/metrics` shows.
        lag_max: seconds that a consumer may be behind and still be ready; 0 for any number.
        clock: the time shown on the page.
        token: what a reader of the page must know; without it everyone may read, and no one act.
    """

    def __init__(
        self,
        registry: Registry,
        lag_max: float,
        clock: Clock | None = None,
        token: str | None = None,
    ) -> None:
        self._registry, self._lag_max = registry, lag_max
        self._clock = clock or SystemClock()
        self._gate, self._history = Gate(token), History()
        self._workers: Workers | None = None
        self._aws: Aws | None = None
        self._reading = anyio.Lock()
        self._views: list[ConsumerView] = []
        self._read_at = 0.0
        self._audiences: dict[str, Audiences] = {}

    def attach(self, workers: Workers, aws: Aws) -> None:
        """Answer for these workers from now on."""
        self._workers, self._aws = workers, aws

    async def remember_for_ever(self) -> None:
        """Keep the numbers of the last hour for the charts."""
        while True:
            self.remember()
            await anyio.sleep(STEP_SECONDS)

    def remember(self) -> None:
        """Keep the numbers of this moment."""
        values: dict[str, float] = {}
        totals: dict[str, float] = {}
        for worker in self._known:
            report, name = worker.report, worker.app.name
            values |= {f"{name}:lag": report.lag, f"{name}:parked": report.parked}
            values |= {f"{name}:shard:{shard}": lag for shard, lag in report.lags.items()}
            for seen in self._handlers(worker):
                own = f"{name}:{seen.handler.name}"
                values[f"{own}:behind"] = math.nan if seen.behind is None else seen.behind
                totals[f"{own}:changes"] = seen.changes
                totals[f"{name}:changes"] = totals.get(f"{name}:changes", 0.0) + seen.changes
        self._history.note(self._clock.time(), values, totals)

    async def answer(self, request: BrowserRequest) -> PageReply:
        """Answer a request."""
        path = request.path
        if path == "/livez":
            return _verdict(alive(self._reports))
        if path == "/readyz":
            return _verdict(self._ready)
        if path == "/reads":
            return _verdict(reads(self._reports))
        if path == "/metrics":
            sample(self._known)
            return PageReply(
                HTTPStatus.OK, exposition.render(self._registry), exposition.CONTENT_TYPE
            )
        if path == "/":
            return await self._answer_page(request)
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

    async def _answer_page(self, request: BrowserRequest) -> PageReply:
        if not self._gate.admits(request):
            text = "this page needs its token, as the password of any name\n"
            return PageReply(HTTPStatus.UNAUTHORIZED, text, more=_ASK_TOKEN)
        asked = replace(_asked(request), proof=self._gate.proof, history=self._history)
        if request.method == "POST":
            form = request.form
            lets_in = self._gate.lets_act if "act" in form else comes_from_here
            if not lets_in(request):
                return PageReply(HTTPStatus.FORBIDDEN, "this form is not of this page\n")
            if "act" in form:
                asked = replace(asked, said=await self._act(form))
            else:
                asked = replace(asked, explained=await self._explain(form))
        body = await self._page(asked)
        return PageReply(HTTPStatus.OK, body, "text/html; charset=utf-8", POLICY)

    async def _act(self, form: Mapping[str, str]) -> str:
        worker = self._worker(form.get("consumer", ""))
        if worker is None or self._aws is None or form["act"] not in ACTS:
            return "this process has no such consumer, or the page no such action"
        log.warning("health.acted", consumer=worker.app.name, what=form["act"])
        self._read_at = -KEPT_SECONDS
        return await act(worker.app, self._aws, form["act"], form.get("handler", ""))

    async def _explain(self, form: Mapping[str, str]) -> Explanation | str:
        apps = [worker.app for worker in self._known if "." not in worker.app.name]
        if not apps or self._aws is None:
            return "the process starts"
        try:
            with anyio.fail_after(_READ_SECONDS):
                return await explain_item(
                    apps[0], self._aws, form.get("pk", ""), form.get("sk") or None
                )
        except ConfigurationError as error:
            return str(error)
        except (TimeoutError, *AwsError) as error:
            return f"the table could not be read: {_kind(error)}"

    def _worker(self, consumer: str) -> Worker | None:
        return next((one for one in self._known if one.app.name == consumer), None)

    async def _page(self, asked: Asked) -> str:
        async with self._reading:
            if self._clock.monotonic() - self._read_at > KEPT_SECONDS or not self._views:
                self._views = [await self._view(worker) for worker in self._known]
                self._read_at = self._clock.monotonic()
        views = [await self._with_errors(view, asked) for view in self._views]
        name = "" if self._workers is None else self._workers.name
        at = f"{utc(self._clock.time()):%Y-%m-%d %H:%M:%S UTC}"
        facts = ProcessFacts(__version__, name, at, self._ready)
        return render(facts, views, asked)

    async def _with_errors(self, view: ConsumerView, asked: Asked) -> ConsumerView:
        """Add the parked changes of a consumer, if its errors were asked for."""
        worker = self._worker(view.report.consumer)
        if asked.errors != view.report.consumer or worker is None or self._aws is None:
            return view
        try:
            with anyio.fail_after(_READ_SECONDS):
                return replace(
                    view, parked=await list_parked(await open_store(worker.app, self._aws))
                )
        except (TimeoutError, StreamkitError, *AwsError) as error:
            return replace(view, trouble=_kind(error))

    async def _view(self, worker: Worker) -> ConsumerView:
        app, aws, status, spending = worker.app, self._aws, None, None
        migrations: list[Line] = []
        trouble = "it did not answer in time"
        with anyio.move_on_after(_READ_SECONDS):
            try:
                if aws is not None:
                    counted = self._audiences.setdefault(app.name, Audiences(app, aws))
                    status = await read_status(
                        app, aws, clock=self._clock, look_into_stream=False, audiences=counted
                    )
                    spending = await spending_at(await open_store(app, aws))
                    migrations = await list_migrations(app, aws, clock=self._clock)
                trouble = ""
            except Exception as error:  # noqa: BLE001 - after any error the rest is shown
                trouble = _kind(error)
                name = app.name
                log.often("health.unread", level="warning", by=name, consumer=name, error=trouble)
        handlers = self._handlers(worker)
        return ConsumerView(
            worker.report,
            handlers,
            status,
            spending,
            migrations,
            trouble,
            copies=app.copies,
        )

    def _handlers(self, worker: Worker) -> list[HandlerView]:
        views, report = [], worker.report
        for handler in worker.app.handlers:
            labels = {"consumer": worker.app.name, "handler": handler.name}
            spread = self._registry.histogram("streamkit_handler_seconds", labels)
            changes = int(self._registry.total("streamkit_changes_total", **labels))
            mean = spread.total / spread.count if spread.count else 0.0
            effects = int(worker.meters.handler(handler.name).effects.value)
            since = report.oldest.get(handler.name)
            parked = 0.0 if since is None else self._clock.time() - since
            behind = None if math.isnan(report.lag) else max(report.lag, parked)
            views.append(HandlerView(handler, spread.count, mean, changes, effects, behind))
        return views


def _asked(request: BrowserRequest) -> Asked:
    """Return what the address of the page asks for."""
    given = request.asked
    return Asked(
        shards=given.get("shards", "").strip(),
        finished=bool(given.get("finished")),
        errors=given.get("errors", ""),
    )


def _verdict(verdict: Verdict) -> PageReply:
    if verdict.ok:
        return PageReply(HTTPStatus.OK, "ok\n")
    text = "".join(f"{reason}\n" for reason in verdict.reasons)
    return PageReply(HTTPStatus.SERVICE_UNAVAILABLE, text)


def _kind(error: Exception) -> str:
    """Return the kind of an error, not its text: services and handlers may quote items there."""
    return name_of(error) if hasattr(error, "response") else type(error).__name__

"""The status page: a worker's consumers, for people to read. Pure; HTML without scripts.

In: views. Out: text. The page shows names of the app and of streamkit, numbers and states; of items
only how many. Everything is escaped. A browser reloads the page by itself.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamkit.changes import Kind
from streamkit.core.handler import Handler
from streamkit.migrate.status import Line
from streamkit.operate.spending import Spending
from streamkit.operate.status import ShardStatus, Status
from streamkit.operate.status_page.checks import Verdict
from streamkit.operate.status_page.markup import UNKNOWN, Child, Markup, duration, element, together
from streamkit.operate.status_page.style import CSS
from streamkit.worker.report import WorkerReport

REFRESH_SECONDS = 10
_ROWS_MAX = 200
_DEPTH_MAX = 12
_NAME_MAX = 18
_RETENTION_WARN_SECONDS = 6 * 3600


@dataclass(frozen=True, slots=True)
class HandlerView:
    """One handler and its numbers in this process; `mean` is in seconds."""

    handler: Handler
    runs: int
    mean: float
    changes: int


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """One consumer: what this process knows, and what the table holds, if it could be read."""

    report: WorkerReport
    handlers: Sequence[HandlerView]
    status: Status | None = None
    spending: Spending | None = None
    migrations: Sequence[Line] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The facts of the process; `at` is the time when the table was read, as text."""

    version: str
    worker: str
    at: str
    ready: Verdict


def render(process: ProcessFacts, views: Sequence[ConsumerView]) -> str:
    """Return the page."""
    title = ", ".join(view.report.consumer for view in views if "." not in view.report.consumer)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content=str(REFRESH_SECONDS)),
        element("meta", name="robots", content="noindex"),
        element("title", f"{title or 'starting'} · streamkit"),
        element("style", Markup(CSS)),
    )
    header = element(
        "header",
        element("h1", title or "streamkit"),
        _pill("ready", "good") if process.ready.ok else _pill("not ready", "bad"),
        element("span", f"worker {process.worker}" if process.worker else None, class_="soft"),
    )
    body = element(
        "body",
        header,
        element("main", _reasons(process.ready), *(_consumer(view) for view in views)),
        element(
            "footer",
            f"streamkit {process.version} · {process.at} · refreshed every {REFRESH_SECONDS} s · ",
            element("a", "metrics", href="/metrics"),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _pill(text: str, tone: str) -> Markup:
    return element("span", text, class_=f"pill {tone}")


def _reasons(verdict: Verdict) -> Markup | None:
    if verdict.ok:
        return None
    return element("ul", *(element("li", reason) for reason in verdict.reasons), class_="reasons")


def _consumer(view: ConsumerView) -> Markup:
    report, status = view.report, view.status
    parts: list[Child] = [
        element("h2", report.consumer, " ", _state(report)),
        _tiles(view),
    ]
    if view.trouble:
        parts.append(element("p", f"The table could not be read: {view.trouble}.", class_="bad"))
    if status is not None:
        parts += [element("h3", "Shards"), _shards(status.shards, report)]
    parts += [element("h3", "Handlers"), _handlers(view)]
    if status is not None:
        parts += [element("h3", "Parked changes"), _parked(status)]
        parts += [element("h3", "Fan-outs"), _fan_outs(status)]
        parts += [element("h3", "Workers"), _workers(status, report)]
    parts += [element("h3", "Migrations"), _migrations(view.migrations)]
    return element("section", *parts)


def _state(report: WorkerReport) -> Markup:
    if report.paused:
        return _pill("paused", "warn")
    tones = {"active": "good", "waiting": "warn", "unfit": "bad", "ended": "bad"}
    words = {"waiting": "stands by", "unfit": "cut off from the stream"}
    return _pill(words.get(report.state, report.state), tones.get(report.state, "soft"))


def _tiles(view: ConsumerView) -> Markup:
    report, status = view.report, view.status
    left = report.time_to_loss if status is None else status.time_to_loss_seconds
    parked = sum(status.parked.values()) if status else report.parked
    stuck = status.stuck_lanes if status else report.stuck
    unread = max(report.unread, len(status.unread_shards) if status else 0)
    tiles = [
        _tile(duration(report.lag), "behind, here", "warn" if report.lag > 60 else ""),
        _tile(duration(left), "until changes are lost", _tone_of_loss(left)),
        _tile(f"{len(report.lags)}", "shards read here", ""),
        _tile(f"{parked}", "parked changes", "warn" if parked else ""),
        _tile(f"{stuck}", "items stuck", "bad" if stuck else ""),
    ]
    if unread:
        tiles.append(_tile(f"{unread}", "shards without a reader", "bad"))
    if status is not None and status.lost_shards:
        tiles.append(_tile(f"{len(status.lost_shards)}", "shards with losses", "bad"))
    if view.spending is not None and view.spending.workers:
        tiles.append(_tile(f"${view.spending.dollars:,.2f}", _units(view.spending), ""))
    return element("div", *tiles, class_="tiles")


def _units(spending: Spending) -> str:
    units = ", ".join(f"{value:,.0f} {kind}" for kind, value in sorted(spending.units.items()))
    return f"a day: {units} units"


def _tone_of_loss(left: float | None) -> str:
    if left is None or math.isnan(left):
        return ""
    return "bad" if left < _RETENTION_WARN_SECONDS else ""


def _tile(value: str, text: str, tone: str) -> Markup:
    return element(
        "div", element("b", value, class_=tone or None), element("span", text), class_="tile"
    )


def _shards(shards: Sequence[ShardStatus], report: WorkerReport) -> Markup:
    rows = [_shard(shard, report) for shard in shards[:_ROWS_MAX]]
    heads = ("shard", "#behind", "state", "owner", "#held items", "#parked", "#epoch")
    return _table(heads, rows, len(shards) - _ROWS_MAX)


def _shard(shard: ShardStatus, report: WorkerReport) -> Markup:
    depth = min(shard.depth, _DEPTH_MAX)
    branch = element("i", "\u00a0\u00a0" * (depth - 1) + "└\u00a0") if depth else None
    lag = report.lags.get(shard.name, shard.lag_seconds)
    state = None
    if shard.lag == "lost" or shard.lost:
        state = element("span", "lost", class_="bad")
    elif shard.waits_for:
        state = element("span", f"waits for {', '.join(shard.waits_for)}", class_="warn")
    return _row(
        (element("span", branch, short(shard.name), class_="tree", title=shard.name), ""),
        (UNKNOWN if shard.state == "finished" else duration(lag), "number"),
        (state or shard.state, ""),
        (short(shard.owner or UNKNOWN), ""),
        (shard.held_lanes, "number"),
        (sum(shard.parked.values()), "number"),
        (shard.epoch, "number"),
        class_="done" if shard.state == "finished" else None,
    )


def short(name: str) -> str:
    """Return the end of a name, because the names of shards and workers differ there."""
    return name if len(name) <= _NAME_MAX else f"…{name[1 - _NAME_MAX :]}"


def _handlers(view: ConsumerView) -> Markup:
    rebuild = set(view.status.needs_rebuild) if view.status is not None else set[str]()
    heads = ("handler", "listens to", "effects", "#changes", "#runs", "#mean", "")
    rows = []
    for seen in view.handlers:
        handler = seen.handler
        whole = len(handler.kinds) == len(Kind)
        kinds = "all" if whole else ", ".join(sorted(kind.value for kind in handler.kinds))
        note = "needs rebuild" if handler.name in rebuild else "shadow" if handler.shadow else ""
        rows.append(
            _row(
                (element("code", handler.name), ""),
                (f"{handler.entity.__name__}: {kinds}", ""),
                (handler.delivered.replace("_", " "), ""),
                (seen.changes, "number"),
                (seen.runs, "number"),
                (f"{seen.mean * 1000:.1f} ms" if seen.runs else UNKNOWN, "number"),
                (element("span", note, class_="warn"), ""),
            )
        )
    return _table(heads, rows)


def _parked(status: Status) -> Markup:
    heads = ("handler", "#changes")
    rows = [
        _row((element("code", name), ""), (count, "number"))
        for name, count in status.parked.items()
    ]
    return _table(heads, rows)


def _fan_outs(status: Status) -> Markup:
    heads = ("handler", "state", "#served", "#parked", "#waiting changes")
    rows = [
        _row(
            (element("code", one.handler), ""),
            (one.state, ""),
            (one.served, "number"),
            (one.parked, "number"),
            (one.waiting, "number"),
        )
        for one in status.fan_outs
    ]
    return _table(heads, rows)


def _workers(status: Status, report: WorkerReport) -> Markup:
    heads = ("worker", "state", "#shards", "#generation", "#last heartbeat", "")
    rows = [
        _row(
            (element("span", short(one.name), title=one.name, class_="tree"), ""),
            (one.state, ""),
            (one.shards, "number"),
            (one.generation, "number"),
            (f"{duration(one.beat_age_seconds)} ago", "number"),
            ("leads" if one.leads else "", ""),
        )
        for one in status.workers
    ]
    newest = f"Generation {status.generation}" if status.generation else "No generation yet"
    told = "" if status.current or report.state == "starting" else ", with other handlers"
    return together([_table(heads, rows), element("p", f"{newest}{told}.", class_="soft")])


def _migrations(lines: Sequence[Line]) -> Markup:
    heads = ("migration", "phase", "#done", "#errors", "")
    rows = [
        _row(
            (element("code", line.migration), ""),
            (line.phase, ""),
            (line.share, "number"),
            (line.errors, "number"),
            (line.note, ""),
        )
        for line in lines
    ]
    return _table(heads, rows)


def _row(*cells: tuple[Child, str], class_: str | None = None) -> Markup:
    drawn = (element("td", value, class_=kind or None) for value, kind in cells)
    return element("tr", *drawn, class_=class_)


def _table(heads: Sequence[str], rows: Iterable[Markup], left_out: int = 0) -> Markup:
    """Draw a table; heads that begin with # stand above numbers."""
    drawn = list(rows)
    if not drawn:
        return element("div", element("p", "none", class_="none"), class_="table")
    top = (
        element("th", head.removeprefix("#"), class_="number" if head.startswith("#") else None)
        for head in heads
    )
    table = element("table", element("thead", element("tr", *top)), element("tbody", *drawn))
    more = element("p", f"and {left_out:,} more", class_="none") if left_out > 0 else None
    return element("div", table, more, class_="table")

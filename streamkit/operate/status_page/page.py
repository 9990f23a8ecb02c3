"""The status page: a worker's consumers, for people to read. Pure; HTML without scripts.

In: views, and what the reader has asked for. Out: text. The page shows names of the app and of
streamkit, numbers and states; of items only how many, unless a token lets its reader see errors.
Everything is escaped. A browser reloads the page by itself; what was opened stays open, because it
is part of the page's address.
"""

import math
from collections.abc import Sequence

from streamkit.operate.explanation import Explanation
from streamkit.operate.remaining import catches_up_in
from streamkit.operate.spending import Spending
from streamkit.operate.status_page import tables
from streamkit.operate.status_page.charts import bar, chart
from streamkit.operate.status_page.checks import Verdict
from streamkit.operate.status_page.markup import UNKNOWN, Child, Markup, duration, element
from streamkit.operate.status_page.style import CSS
from streamkit.operate.status_page.views import Asked, ConsumerView, ProcessFacts
from streamkit.progress.clock import utc
from streamkit.worker.report import WorkerReport

REFRESH_SECONDS = 10
_PACE_POINTS = 40
"""The pace at which a backlog shrinks is that of ten minutes."""

_RETENTION_WARN_SECONDS = 6 * 3600
_AT_THE_TIP_SECONDS = 60


def render(process: ProcessFacts, views: Sequence[ConsumerView], asked: Asked | None = None) -> str:
    """Return the page."""
    asked = asked or Asked()
    title = ", ".join(view.report.consumer for view in views if "." not in view.report.consumer)
    again = f"{REFRESH_SECONDS};url={tables.address(asked)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        None if asked.explained else element("meta", http_equiv="refresh", content=again),
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
    said = element("p", asked.said, class_="said") if asked.said else None
    body = element(
        "body",
        header,
        element(
            "main",
            said,
            _reasons(process.ready),
            *(_consumer(view, asked) for view in views),
            _search(asked) if views else None,
        ),
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


def _consumer(view: ConsumerView, asked: Asked) -> Markup:
    report, status, name = view.report, view.status, view.report.consumer
    what = "resume" if report.paused else "pause"
    parts: list[Child] = [
        element("h2", name, " ", _state(report)),
        tables.action(name, what, asked),
        _tiles(view, asked),
        _charts(view, asked),
    ]
    if view.trouble:
        parts.append(element("p", f"The table could not be read: {view.trouble}.", class_="bad"))
    for one in (status and status.halts) or ():
        at = f"{utc(one.since):%Y-%m-%d %H:%M:%S UTC}"
        text = f"{one.consumer} does not run: it halted at its start, at {at}: {one.why}"
        parts.append(element("p", text, class_="bad"))
    parts += [element("p", text, class_="bad") for text in (status and status.refused) or ()]
    if view.copies:
        parts.append(_archive(report))
    if status is not None:
        parts += [element("h3", "Shards"), tables.shards_table(status.shards, report, asked)]
    parts += [element("h3", "Handlers"), tables.handlers_table(view, asked.history)]
    if status is not None:
        parts += [element("h3", "Parked changes"), tables.parked_table(view, status, asked)]
        parts += [element("h3", "Fan-outs"), tables.fan_outs_table(status)]
        parts += [element("h3", "Workers"), tables.workers_table(status, report)]
    parts += [element("h3", "Under way"), tables.operations_table(view)]
    return element("section", *parts)


def _charts(view: ConsumerView, asked: Asked) -> Markup:
    name, drawn = view.report.consumer, []
    for what, text, shown in (
        ("lag", "seconds behind", duration(view.report.lag)),
        ("changes", "changes a second", ""),
        ("parked", "parked items", f"{view.report.parked:,}"),
    ):
        points = asked.history.points(f"{name}:{what}")
        picture = chart(points, f"{text}, last hour")
        top = f"up to {max(value for _, value in points):,.1f}" if points else ""
        caption = element("figcaption", f"{text} {shown}", element("span", top, class_="soft"))
        drawn.append(element("figure", caption, picture) if picture else None)
    return element("div", *drawn, class_="charts")


def _archive(report: WorkerReport) -> Markup:
    """Draw how many of the shards that are copied here have been copied up to now."""
    known = [lag for lag in report.lags.values() if not math.isnan(lag)]
    done = sum(lag < _AT_THE_TIP_SECONDS for lag in known)
    text = f"Archive: {done} of {len(report.lags)} shards read here are stored up to now. "
    return element("p", text, bar(done / len(report.lags)) if report.lags else None)


def _search(asked: Asked) -> Markup:
    found = asked.explained
    shown: Child = None
    if isinstance(found, Explanation):
        shown = tables.explanation_table(found)
    elif found is not None:
        shown = element("p", found, class_="warn")
    form = element(
        "form",
        element("input", name="pk", placeholder="partition key", required=""),
        element("input", name="sk", placeholder="sort key, if there is one"),
        element("button", "explain"),
        method="post",
        action="/",
    )
    note = "What became of one item? Its key is sent, and not stored or logged."
    return element("section", element("h2", "An item"), element("p", note), form, shown)


def _state(report: WorkerReport) -> Markup:
    if report.paused:
        return _pill("paused", "warn")
    tones = {"active": "good", "waiting": "warn", "unfit": "bad", "ended": "bad"}
    words = {"waiting": "stands by", "unfit": "cut off from the stream"}
    return _pill(words.get(report.state, report.state), tones.get(report.state, "soft"))


def _tiles(view: ConsumerView, asked: Asked) -> Markup:
    report, status = view.report, view.status
    left = report.time_to_loss if status is None else status.time_to_loss_seconds
    parked = sum(status.parked.values()) if status else report.parked
    stuck = status.stuck_queues if status else report.stuck
    unread = max(report.unread, len(status.unread_shards) if status else 0)
    speed = asked.history.points(f"{report.consumer}:changes")
    tiles = [
        _tile(duration(report.lag), _behind(report, asked), "warn" if report.lag > 60 else ""),
        _tile(f"{speed[-1][1]:,.1f}" if speed else UNKNOWN, "changes a second, here", ""),
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


def _behind(report: WorkerReport, asked: Asked) -> str:
    """Return what stands beside the lag: at the pace of the last minutes, when all is read."""
    left = catches_up_in(asked.history.points(f"{report.consumer}:lag")[-_PACE_POINTS:])
    return "behind, here" if left is None else f"behind, here; all is read in {duration(left)}"


def _units(spending: Spending) -> str:
    units = ", ".join(f"{value:,.0f} {kind}" for kind, value in sorted(spending.units.items()))
    sure = "" if spending.error is None else f" ±{spending.error:.0%}"
    return f"a day{sure}: {units} units; counted for {duration(spending.seconds)}"


def _tone_of_loss(left: float | None) -> str:
    if left is None or math.isnan(left):
        return ""
    return "bad" if left < _RETENTION_WARN_SECONDS else ""


def _tile(value: str, text: str, tone: str) -> Markup:
    return element(
        "div", element("b", value, class_=tone or None), element("span", text), class_="tile"
    )

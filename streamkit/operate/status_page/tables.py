"""Tables: the rows of the status page, one function for each table. Pure."""

from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from streamkit.changes import Kind
from streamkit.observe.pricing import DOLLARS
from streamkit.operate.explanation import Explanation
from streamkit.operate.fan_outs import FanOutStatus
from streamkit.operate.shards import ShardStatus
from streamkit.operate.status import Status
from streamkit.operate.status_page.charts import bar, chart
from streamkit.operate.status_page.history import History
from streamkit.operate.status_page.markup import UNKNOWN, Child, Markup, duration, element, together
from streamkit.operate.status_page.views import Asked, ConsumerView, HandlerView
from streamkit.worker.report import WorkerReport

_ROWS_MAX = 200
_DEPTH_MAX = 12
_NAME_MAX = 18


def address(asked: Asked, **changes: str) -> str:
    """Return the link to the page as it was asked for, with some parameters changed."""
    finished = "1" if asked.finished else ""
    known = {"shards": asked.shards, "finished": finished, "errors": asked.errors}
    query = urlencode({name: text for name, text in (known | changes).items() if text})
    return f"/?{query}" if query else "/"


def shards_table(shards: Sequence[ShardStatus], report: WorkerReport, asked: Asked) -> Markup:
    """Draw the open shards that were asked for, those that are behind first; finished ones last."""
    wanted = [s for s in shards if asked.shards in s.name or asked.shards in (s.owner or "")]
    open_ = [shard for shard in wanted if shard.state != "finished"]
    done = len(wanted) - len(open_)
    if asked.finished:
        shown = wanted  # as the tree of their splits
    else:
        shown = sorted(open_, key=lambda shard: -(_lag(shard, report) or 0.0))
    rows = [_shard(one, report, asked, tree=asked.finished) for one in shown[:_ROWS_MAX]]
    heads = ("shard", "#behind", "last hour", "state", "owner", "#queues", "#parked", "#epoch")
    box = element("input", name="shards", value=asked.shards, placeholder="shard or owner")
    keep = [
        element("input", type="hidden", name=name, value=text)
        for name, text in (("finished", "1" if asked.finished else ""), ("errors", asked.errors))
        if text
    ]
    form = element("form", box, *keep, element("button", "filter"), method="get", action="/")
    text = f"hide {done:,} finished" if asked.finished else f"show {done:,} finished"
    fold = address(asked, finished="" if asked.finished else "1")
    link = element("a", text, href=fold) if done else None
    bar_ = element("div", form, link, class_="tools")
    return together([bar_, table(heads, rows, len(shown) - _ROWS_MAX)])


def _lag(shard: ShardStatus, report: WorkerReport) -> float | None:
    return report.lags.get(shard.name, shard.lag_seconds)


def _shard(shard: ShardStatus, report: WorkerReport, asked: Asked, *, tree: bool) -> Markup:
    depth = min(shard.depth, _DEPTH_MAX) if tree else 0
    branch = element("i", "\u00a0\u00a0" * (depth - 1) + "└\u00a0") if depth else None
    state = None
    if shard.lag == "lost" or shard.lost:
        state = element("span", "lost", class_="bad")
    elif shard.waits_for:
        state = element("span", f"waits for {', '.join(shard.waits_for)}", class_="warn")
    points = asked.history.points(f"{report.consumer}:shard:{shard.name}")
    return row(
        (element("span", branch, short(shard.name), class_="tree", title=shard.name), ""),
        (UNKNOWN if shard.state == "finished" else duration(_lag(shard, report)), "number"),
        (chart(points, f"seconds behind, {shard.name}", small=True), ""),
        (state or shard.state, ""),
        (short(shard.owner or UNKNOWN), ""),
        (shard.parked_queues, "number"),
        (sum(shard.parked.values()), "number"),
        (shard.epoch, "number"),
        class_="done" if shard.state == "finished" else None,
    )


def short(name: str) -> str:
    """Return the end of a name, because the names of shards and workers differ there."""
    return name if len(name) <= _NAME_MAX else f"…{name[1 - _NAME_MAX :]}"


def handlers_table(view: ConsumerView, history: History) -> Markup:
    """Draw the handlers: how far behind, how busy, and which one costs what."""
    heads = (
        *("handler", "listens to", "effects", "#behind", "behind, last hour", "#changes"),
        *("changes a second", "#runs", "#mean", "#of the time", "#$ a day for writes", ""),
    )
    return table(heads, [_handler(seen, view, history) for seen in view.handlers])


def _handler(seen: HandlerView, view: ConsumerView, history: History) -> Markup:
    handler, name = seen.handler, f"{view.report.consumer}:{seen.handler.name}"
    rebuild = set(view.status.needs_rebuild) if view.status is not None else set[str]()
    kinds = ", ".join(sorted(kind.value for kind in handler.kinds))
    note = "needs rebuild" if handler.name in rebuild else "shadow" if handler.shadow else ""
    time = sum(one.mean * one.runs for one in view.handlers)
    behind = chart(history.points(f"{name}:behind"), f"seconds, {handler.name}", small=True)
    speed = chart(history.points(f"{name}:changes"), f"a second, {handler.name}", small=True)
    cells: list[tuple[Child, str]] = [
        (element("code", handler.name), ""),
        (f"{handler.entity.__name__}: {'all' if len(handler.kinds) == len(Kind) else kinds}", ""),
        (handler.delivered.replace("_", " "), ""),
        (duration(seen.behind), "number"),
        (behind, ""),
        (seen.changes, "number"),
        (speed, ""),
        (seen.runs, "number"),
        (f"{seen.mean * 1000:.1f} ms" if seen.runs else UNKNOWN, "number"),
        (f"{seen.mean * seen.runs / time:.0%}" if time else UNKNOWN, "number"),
        (_writes(seen, view), "number"),
        (element("span", note, class_="warn"), ""),
    ]
    return row(*cells)


def _writes(seen: HandlerView, view: ConsumerView) -> str:
    """Return a handler's part of what writes cost a day, by its part of the effects here."""
    effects = sum(one.effects for one in view.handlers)
    if view.spending is None or not effects:
        return UNKNOWN
    dollars = view.spending.units["write"] * DOLLARS["write"]
    return f"about ${dollars * seen.effects / effects:,.2f}"


def parked_table(view: ConsumerView, status: Status, asked: Asked) -> Markup:
    """Draw how many changes are parked for which handler; their errors, if they were asked for."""
    consumer = view.report.consumer
    rows = [
        row(
            (element("code", name), ""),
            (count, "number"),
            (action(consumer, "redrive", asked, name), ""),
        )
        for name, count in status.parked.items()
    ]
    found = table(("handler", "#changes", ""), rows)
    if not rows:
        return found
    if asked.errors != consumer:
        link = element("a", "show errors", href=address(asked, errors=consumer))
        return together([found, element("p", link)])
    errors = [
        row(
            (element("code", one.handler), ""),
            (one.queue, "tree"),
            (one.error, ""),
            (one.detail if asked.proof else None, "text"),
            (one.attempts, "number"),
        )
        for one in view.parked
        if one.error is not None
    ]
    text = "text of the error" if asked.proof else "its text: with a token"
    link = element("a", "hide errors", href=address(asked, errors=""))
    heads = ("handler", "queue", "error", text, "#attempts")
    return together([found, table(heads, errors[:_ROWS_MAX], len(errors) - _ROWS_MAX), link])


def action(consumer: str, what: str, asked: Asked, handler: str = "") -> Markup | None:
    """Return a form that acts; nothing where no token is configured."""
    if not asked.proof:
        return None
    given = {"act": what, "consumer": consumer, "handler": handler, "proof": asked.proof}
    hidden = [element("input", type="hidden", name=n, value=v) for n, v in given.items() if v]
    return element("form", *hidden, element("button", what), method="post", action="/")


def fan_outs_table(status: Status) -> Markup:
    """Draw fan-outs, with how far each is and how long it still takes, where that is known."""
    counts = ("#served", "#done", "#time left", "#a second", "#parked", "#waiting changes")
    heads = ("handler", "state", "", *counts)
    return table(heads, [_fan_out(one) for one in status.fan_outs])


def _fan_out(one: FanOutStatus) -> Markup:
    unknown = element("progress") if one.state == "serving" else None
    cells: list[tuple[Child, str]] = [
        (element("code", one.handler), ""),
        (one.state, ""),
        (unknown if one.share is None else bar(one.share), ""),
        (one.served, "number"),
        (UNKNOWN if one.share is None else f"{one.share:.0%}", "number"),
        (duration(one.left), "number"),
        (UNKNOWN if one.speed is None else f"{one.speed:,.1f}", "number"),
        (one.parked, "number"),
        (one.waiting, "number"),
    ]
    return row(*cells)


def workers_table(status: Status, report: WorkerReport) -> Markup:
    """Draw the fleet."""
    heads = ("worker", "state", "#shards", "#generation", "#last heartbeat", "")
    rows = [
        row(
            (element("span", short(one.name), title=one.name, class_="tree"), ""),
            ("silent", "bad") if one.silent else ("late", "warn") if one.late else (one.state, ""),
            (one.shards, "number"),
            (one.generation, "number"),
            (f"{duration(one.beat_age_seconds)} ago", "number"),
            ("leads" if one.leads and not (one.late or one.silent) else "", ""),
        )
        for one in status.workers
    ]
    newest = f"Generation {status.generation}" if status.generation else "No generation yet"
    told = "" if status.current or report.state == "starting" else ", with other handlers"
    return together([table(heads, rows), element("p", f"{newest}{told}.", class_="soft")])


def operations_table(view: ConsumerView) -> Markup:
    """Draw what is under way: migrations, rebuilds, moves and rewinds, and how long they take."""
    found = [
        row(
            (element("code", line.migration), ""),
            (line.phase, ""),
            (None if line.done is None else bar(line.done), ""),
            (line.share, "number"),
            (duration(line.left), "number"),
            (line.errors, "number"),
            (line.note, ""),
        )
        for line in view.migrations
    ]
    others = view.status.operations if view.status is not None else ()
    found += [
        row(
            (element("span", f"{one.kind} of ", element("code", one.name)), ""),
            (f"{one.phase}, paused" if one.paused else one.phase, ""),
            (None if one.share is None else bar(one.share), ""),
            (UNKNOWN if one.share is None else f"{one.share:.0%}", "number"),
            (duration(one.left), "number"),
            (UNKNOWN, "number"),
            ("", ""),
        )
        for one in others or ()
        if one.kind != "migration"
    ]
    heads = ("operation", "phase", "", "#done", "#time left", "#errors", "")
    return table(heads, found)


def explanation_table(found: Explanation) -> Markup:
    """Draw what became of an item, which is shown only by its hash."""
    what = found.entity or ("streamkit's own" if found.kind == "control" else "no known entity")
    there = f"{len(found.attributes)} attributes" if found.exists else "it does not exist now"
    rows = [
        row(
            (element("code", f"{one.consumer}/{one.handler}"), ""),
            (one.state, ""),
            (one.queue, "tree"),
            (len(one.parked), "number"),
            (one.parked[0].error if one.parked else None, ""),
        )
        for one in found.listening
    ]
    written = f", last written by {found.written_by}" if found.written_by else ""
    head = element("p", f"{what}, hash {found.digest}: {there}{written}.")
    problem = element("p", found.problem, class_="bad") if found.problem else None
    return together([head, problem, table(("handler", "state", "queue", "#parked", "error"), rows)])


def row(*cells: tuple[Child, str], class_: str | None = None) -> Markup:
    """Return a row; each cell is its contents and its class."""
    drawn = (element("td", value, class_=kind or None) for value, kind in cells)
    return element("tr", *drawn, class_=class_)


def table(heads: Sequence[str], rows: Iterable[Markup], left_out: int = 0) -> Markup:
    """Draw a table; heads that begin with # stand above numbers."""
    drawn = list(rows)
    if not drawn:
        return element("div", element("p", "none", class_="none"), class_="table")
    top = (
        element("th", head.removeprefix("#"), class_="number" if head.startswith("#") else None)
        for head in heads
    )
    body = element("table", element("thead", element("tr", *top)), element("tbody", *drawn))
    more = element("p", f"and {left_out:,} more", class_="none") if left_out > 0 else None
    return element("div", body, more, class_="table")

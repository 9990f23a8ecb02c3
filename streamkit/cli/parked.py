"""`streamkit parked`: list, show, redrive and discard parked changes."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.exits import ExitCode
from streamkit.cli.options import (
    AppArgument,
    JsonOption,
    ListenerOption,
    command_group,
    duration,
    with_options,
)
from streamkit.cli.printing import WARN, print_json, say, say_next, tell
from streamkit.cli.running import app_named, exit_with, with_aws
from streamkit.progress.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.core.consumer import Consumer
    from streamkit.core.parked.queues import Selection
    from streamkit.operate.redrive import QueueReport, Told

parked = command_group("List, show, redrive or discard parked changes.")

FILTERS: dict[str, Any] = {
    "handler": Annotated[
        str | None, typer.Option("--handler", help="Only changes that are parked for this handler.")
    ],
    "queue": Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="Only this parked queue, as `list` names it (may be given several times).",
        ),
    ],
    "entity": Annotated[
        str | None, typer.Option("--entity", help="Only changes of this entity's items.")
    ],
    "error": Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="KIND",
            help="Only changes that failed with this error, such as ValueError.",
        ),
    ],
    "older_than": Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            parser=duration,
            help="Only changes parked longer ago than this, such as 2h or 30d.",
        ),
    ],
    "stuck": Annotated[
        bool, typer.Option("--stuck", help="Only changes that are not tried again by themselves.")
    ],
}
"""These options choose parked queues. Entity, error and age are those of
a queue's first change."""
AllOption = Annotated[bool, typer.Option("--all", help="Choose every parked queue.")]


with_filters = with_options(FILTERS, {"stuck": False}, place=1)
"""Gives a command the options that choose queues; the command takes them as `**filters`."""


async def _selection(filters: dict[str, Any], app: "App", aws: "Aws") -> "Selection":
    """Return what the options choose; ages are by the table's clock: this machine's may err."""
    from streamkit.core.parked.queues import Selection
    from streamkit.core.tables import open_store

    age, before = filters["older_than"], None
    if age is not None:
        before = await (await open_store(app, aws)).time(SystemClock()) - age
    return Selection(
        queues=frozenset(filters["queue"] or ()),
        handler=filters["handler"],
        entity=filters["entity"],
        error=filters["error"],
        stuck=filters["stuck"],
        parked_before=before,
    )


@parked.command("list")
@with_filters
def list_(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    json: JsonOption = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 5 if anything is parked.")
    ] = False,
    **filters: Any,
) -> None:
    """List parked changes, queue by queue, in order."""
    from streamkit.cli.describe_parked import describe_parked, parked_fields
    from streamkit.cli.following import after_parked
    from streamkit.core.parked.queues import ParkedQueue, list_parked
    from streamkit.core.parking import Parked
    from streamkit.core.tables import open_store
    from streamkit.operate.fan_outs import fan_outs, serving

    loaded = app_named(app, listener)

    async def read(aws: "Aws") -> tuple[list[ParkedQueue], list[Parked]]:
        store = await open_store(loaded, aws)
        queues = await (await _selection(filters, loaded, aws)).choose(store)
        return queues, await list_parked(store, queues)

    queues, found = with_aws(read)
    by_name = {queue.name: queue for queue in queues}
    if json:
        print_json([parked_fields(change, by_name.get(change.queue)) for change in found])
    else:
        served = serving(fan_outs(loaded, queues, found))
        describe_parked(found, by_name, served, chosen=any(filters.values()))
        for command in after_parked(found, served):
            say_next(app, command, listener)
    if _unknown(loaded, filters, queues) or (found and exit_code):
        exit_with(ExitCode.PROBLEMS)


@parked.command()
def show(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    queue: Annotated[str, typer.Option("--queue", help="The parked queue, as `list` names it.")],
    position: Annotated[
        str | None,
        typer.Option(
            "--position",
            help="The position of the change; without it, the first change of the queue.",
        ),
    ] = None,
) -> None:
    """Print a parked change as JSON, with its item data.

    `detail` is what was raised and your innermost line, and `called` is the handler with its
    arguments.
    """
    from streamkit.cli.describe_parked import call_of, parked_fields
    from streamkit.core.parked.queues import show as read_one
    from streamkit.core.parking import Parked
    from streamkit.core.tables import open_store
    from streamkit.stream.decode.envelope import POSITION_DIGITS

    loaded = app_named(app, listener)
    padded = None if position is None else position.zfill(POSITION_DIGITS)

    async def read(aws: "Aws") -> Parked | None:
        return await read_one(await open_store(loaded, aws), queue, padded)

    found = with_aws(read)
    if found is None:
        tell("there is no such parked change (any more); `streamkit parked list` shows all")
        exit_with(ExitCode.PROBLEMS)
    handlers = {handler.name: handler for handler in loaded.handlers}
    print_json({**parked_fields(found), "called": call_of(handlers.get(found.handler))})


@parked.command()
@with_filters
def redrive(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    every: AllOption = False,
    json: JsonOption = False,
    **filters: Any,
) -> None:
    """Run the handlers of parked changes again.

    A parked queue is redriven in order until it is empty, or until a change fails again, which then
    stays first. Exits with 5 if a change failed, or if there is no queue with the name in --queue.
    """
    from streamkit.operate.redrive import redrive as redrive_queues

    _require_choice(filters, every=every)
    loaded = app_named(app, listener)
    reports = _each_queue(redrive_queues, "redriven", loaded, filters, json=json)
    if not json:
        failed = [report.queue for report in reports if report.failed]
        say_next(app, ("parked show", "--queue", failed[0]) if failed else (), listener)
    if _missing(loaded, filters, reports) or any(report.failed for report in reports):
        exit_with(ExitCode.PROBLEMS)


@parked.command()
@with_filters
def discard(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    every: AllOption = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Also discard the changes that wait behind the first one."),
    ] = False,
    json: JsonOption = False,
    **filters: Any,
) -> None:
    """Delete the first change of parked queues, without processing it.

    The change behind it is then first. With --older-than, --whole stops at the first change that is
    younger. An aggregate whose change is discarded needs a rebuild; the command that mends it, or
    the copies of a mirror, or derived items, is printed. Exits with 5 if there is no queue with the
    name in --queue.
    """
    from streamkit.cli.following import after_discard
    from streamkit.operate.redrive import discard as discard_queues

    _require_choice(filters, every=every)
    loaded, run = app_named(app, listener), partial(discard_queues, whole=whole)
    reports = _each_queue(run, "discarded", loaded, filters, json=json)
    if not json:
        for text, words in after_discard(loaded, {one.handler for one in reports if one.done}):
            say(text, **WARN)
            say_next(app, words, listener)
    if _missing(loaded, filters, reports):
        exit_with(ExitCode.PROBLEMS)


def _require_choice(filters: dict[str, Any], *, every: bool) -> None:
    if not (every or any(filters.values())):
        raise typer.BadParameter(
            "choose parked queues with --queue, --handler or another filter, or all with --all"
        )


def _each_queue(
    run: "Callable[..., Awaitable[list[QueueReport]]]",
    verb: str,
    app: "App",
    filters: dict[str, Any],
    *,
    json: bool,
) -> "list[QueueReport]":
    """Redrive or discard queues; print each report at once: an interrupt leaves what was done."""
    from streamkit.cli.describe_parked import describe_report
    from streamkit.operate.redrive import no_one

    told: Told = no_one if json else lambda report: describe_report(report, verb)

    async def work(aws: "Aws") -> "list[QueueReport]":
        return await run(app, aws, await _selection(filters, app, aws), told=told)

    reports = with_aws(work)
    if json:
        print_json([report.to_dict() for report in reports])
    elif not reports:
        say("no such change is parked" if any(filters.values()) else "no change is parked")
    return reports


def _missing(app: "Consumer", filters: dict[str, Any], reports: "list[QueueReport]") -> bool:
    """Name on stderr what was named and had nothing to do; return whether there is such a name."""
    missing = sorted({*(filters["queue"] or ())} - {report.queue for report in reports})
    for queue in missing:
        tell(f"queue {queue}: no such change is parked there (any more)")
    return _unknown(app, filters, reports) or bool(missing)


def _unknown(app: "Consumer", filters: dict[str, Any], found: Sequence[Any]) -> bool:
    """Report a name that neither the app nor a parked change has; return whether there is one.

    A name that only the parked changes have is that of a handler or an entity of an older version.
    """
    known = {
        "handler": {handler.name for handler in app.handlers},
        "entity": {entity.__name__ for entity in app.known},
    }
    unknown = [what for what, names in known.items() if filters[what] not in (None, *names)]
    for what in () if found else unknown:
        names = ", ".join(sorted(known[what])) or "none"
        tell(f"{app.name} has no {what} {filters[what]!r}; it has {names}")
    return bool(unknown) and not found

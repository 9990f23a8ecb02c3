"""`streamkit consumers`: list, pause, resume and delete; `streamkit rewind`."""

from datetime import datetime
from typing import Annotated

import typer

from streamkit.cli.options import AppArgument, InFlightOption, JsonOption, ListenerOption

consumers = typer.Typer(
    help="List the consumers of a table; pause, resume or delete one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="the table's name")]
ControlOption = Annotated[
    str | None,
    typer.Option("--control-table", help="where streamkit keeps its items, if not in the table"),
]

_ALL = "trim-horizon"


@consumers.command("list")
def list_(
    table: TableArgument, *, control_table: ControlOption = None, json: JsonOption = False
) -> None:
    """List the consumers of a table, those of its former streams too."""
    from streamkit.cli.printing import moment, print_json, say
    from streamkit.cli.printing import table as print_table
    from streamkit.cli.running import with_aws
    from streamkit.operate.consumers import list_consumers

    found = with_aws(lambda aws: list_consumers(aws, table, control_table))
    if json:
        print_json([consumer.to_dict() for consumer in found])
        return
    if not found:
        say("no consumer has run on this table")
        return
    rows = [
        (
            f"{one.name} (paused)" if one.paused else one.name,
            one.stream if one.current else f"{one.stream} (replaced)",
            str(one.generation or "-"),
            one.host or "-",
            str(one.shards),
            str(one.workers),
            f"{moment(one.since)} UTC" if one.since else "the oldest record",
            ", ".join(one.needs_rebuild) or "-",
        )
        for one in found
    ]
    print_table(
        (
            "consumer",
            "stream",
            "generation",
            "run by",
            "shards",
            "workers",
            "counts from",
            "needs rebuild",
        ),
        rows,
    )


@consumers.command()
def pause(app: AppArgument = None, *, listener: ListenerOption = None) -> None:
    """Let a consumer do nothing more until it is resumed, whether workers or functions run it.

    Workers commit what they have begun and keep its shards. Lambda functions answer every batch
    with its first record, so that it comes again. Parked changes wait too. Changes are trimmed 24
    hours after they were made, whether they were read or not: `status` says how long is left.
    """
    _set_paused(app, listener, paused=True)


@consumers.command()
def resume(app: AppArgument = None, *, listener: ListenerOption = None) -> None:
    """Let a paused consumer read on where it stopped."""
    _set_paused(app, listener, paused=False)


def _set_paused(app: str | None, listener: str | None, *, paused: bool) -> None:
    from streamkit.cli.printing import say
    from streamkit.cli.running import app_named, with_aws
    from streamkit.fleet.hosting import LAMBDA
    from streamkit.operate.consumers import pause_consumer, resume_consumer

    loaded = app_named(app, listener)
    change = pause_consumer if paused else resume_consumer
    host = with_aws(lambda aws: change(loaded, aws))
    who = (
        "workers see it in seconds" if host != LAMBDA else "functions see it with their next batch"
    )
    say(f"{loaded.name} {'is paused' if paused else 'reads on'}; its {who}")
    if paused and host == LAMBDA:
        say("batches come again until then; for hours, or if it gives up, disable the mapping")


@consumers.command()
def delete(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="then the argument is a consumer's name, and needs no code"),
    ] = None,
    control_table: ControlOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Delete everything that streamkit keeps of a consumer, its parked changes too.

    Stop its workers first; or disable its mapping, and wait for the time-out of its function,
    because a function that is invoked afterwards begins anew. What its handlers wrote stays,
    aggregates too: delete their items before the app starts again.
    """
    from streamkit.cli.printing import say
    from streamkit.cli.running import app_named, settings, with_aws
    from streamkit.operate.consumers import delete_consumer

    if table is None:
        loaded = app_named(app, listener)
        name, table, control_table = loaded.name, loaded.table, loaded.control_table
    elif app is None:
        raise typer.BadParameter("say which consumer of the table")
    else:
        name = app
    if not yes:
        raise typer.BadParameter(
            f"this deletes the positions and parked changes of {name} on {table}; say --yes"
        )
    deleted = with_aws(
        lambda aws: delete_consumer(
            aws, table, name, control_table=control_table, lease_seconds=settings().lease
        )
    )
    say(f"{name} on {table}: {deleted} items deleted")


def rewind(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    to: Annotated[
        str,
        typer.Option("--to", help=f"a time such as 2026-01-31T12:00:00Z, or {_ALL}"),
    ],
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="a handler that may run twice (may be given several times)"),
    ] = None,
    in_flight: InFlightOption = 900.0,
    json: JsonOption = False,
) -> None:
    """Let all handlers of an app run again for the changes since a time.

    Stop the workers first; where Lambda functions run it, pause it, and create the mapping anew at
    TRIM_HORIZON before you resume it. Refused for aggregates and whatever else would count twice,
    and while changes are parked: it exits with 5 then, and nothing has changed. If it is
    interrupted, the next worker finishes it.
    """
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.printing import moment, print_json, say
    from streamkit.cli.running import app_named, exit_with, settings, with_aws
    from streamkit.fleet.hosting import LAMBDA
    from streamkit.operate.rewind import RewindRefused
    from streamkit.operate.rewind import rewind as rewind_consumer

    loaded = app_named(app, listener)
    moment_to = None if to == _ALL else time_of(to, "--to", _ALL)
    try:
        done = with_aws(
            lambda aws: rewind_consumer(
                loaded,
                aws,
                moment_to,
                allow=allow or (),
                lease_seconds=settings().lease,
                in_flight=in_flight,
            )
        )
    except RewindRefused as refused:
        for reason in refused.reasons:
            typer.echo(f"refused: {reason}", err=True)
        exit_with(ExitCode.PROBLEMS)
    if json:
        print_json(done.to_dict())
        return
    where = f"{moment(done.since)} UTC" if done.since else "the oldest record there is"
    say(f"{done.consumer} reads again from {where}, in generation {done.generation}")
    if done.host == LAMBDA:
        say("delete the mapping, create it at TRIM_HORIZON, then: streamkit consumers resume")


def time_of(text: str, option: str, *words: str) -> datetime:
    """Return the time that a text with a zone stands for.

    `words` are the other values of the option, named in the error.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        takes = "".join(f"{word}, or " for word in words)
        raise typer.BadParameter(f"{option} takes {takes}a time with its zone, not {text!r}")
    return time

"""`streamkit consumers`: list, pause, resume and delete; `streamkit rewind`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamkit.cli.options import (
    AppArgument,
    InFlightOption,
    JsonOption,
    ListenerOption,
    command_group,
)
from streamkit.cli.printing import moment, print_json, print_report, say
from streamkit.cli.printing import table as print_table
from streamkit.cli.running import app_named, settings, with_aws

if TYPE_CHECKING:
    from streamkit.operate.rewind import Rewound

consumers = command_group("List the consumers of a table; pause, move or delete one.")

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")]
ControlOption = Annotated[
    str | None,
    typer.Option(
        "--control-table", help="The table in which streamkit keeps its items, if another one."
    ),
]

_ALL = "trim-horizon"


AllowLossOption = Annotated[
    bool,
    typer.Option("--allow-loss", help="Begin although the archive has gaps since then."),
]


@consumers.command("list")
def list_(
    table: TableArgument, *, control_table: ControlOption = None, json: JsonOption = False
) -> None:
    """List the consumers of a table, also those of former streams."""
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
    heads = ("consumer", "stream", "generation", "run by", "shards", "workers", "counts from")
    print_table((*heads, "needs rebuild"), rows)


OnlyOption = Annotated[
    Literal["move", "rewind"] | None,
    typer.Option("--only", help="Only this operation of the consumer, which goes on itself."),
]


@consumers.command()
def pause(
    app: AppArgument = None, *, listener: ListenerOption = None, only: OnlyOption = None
) -> None:
    """Stop the work of a consumer until it is resumed.

    Workers finish the commits that they have begun, and keep their shards. Lambda functions return
    every batch undone, so that it comes again. Parked changes wait too. AWS trims changes 24 hours
    after they were made, whether they were read or not: `status` says how long is left.

    With --only, a move or a rewind that is under way waits, and takes no further step. Between two
    hosts, none reads the stream, so a move must go on within a day. A rewind can wait until it has
    decided; a worker that starts meanwhile ends it.
    """
    _set_paused(app, listener, only, paused=True)


@consumers.command()
def resume(
    app: AppArgument = None, *, listener: ListenerOption = None, only: OnlyOption = None
) -> None:
    """Continue a paused consumer, or its paused operation."""
    _set_paused(app, listener, only, paused=False)


def pause_named(
    app: str | None, operation: str, listener: str | None = None, *, paused: bool
) -> None:
    """Pause or resume an operation of an app's consumer, and say so."""
    from streamkit.operate.consumers import pause_operation

    loaded = app_named(app, listener)
    with_aws(lambda aws: pause_operation(loaded, aws, operation, paused=paused))
    how = "waits until it is resumed" if paused else "goes on"
    say(f"{operation} of {loaded.name} {how}")


def _set_paused(app: str | None, listener: str | None, only: str | None, *, paused: bool) -> None:
    if only is not None:
        pause_named(app, only, listener, paused=paused)
        return
    from streamkit.fleet.hosting import LAMBDA
    from streamkit.operate.consumers import pause_consumer, resume_consumer

    loaded = app_named(app, listener)
    change = pause_consumer if paused else resume_consumer
    host = with_aws(lambda aws: change(loaded, aws))
    seen = (
        "workers see it within seconds"
        if host != LAMBDA
        else "functions see it with their next batch"
    )
    say(f"{loaded.name} {'is paused' if paused else 'continues'}; its {seen}")
    if paused and host == LAMBDA:
        say("batches come again until it is resumed; for a pause of hours, disable the mapping")


@consumers.command()
def delete(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            help="The table; the argument is then a consumer's name, and no code is loaded.",
        ),
    ] = None,
    control_table: ControlOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it; without this nothing is deleted.")
    ] = False,
) -> None:
    """Delete all that streamkit stores for a consumer.

    That includes its parked changes. Stop its workers first. On Lambda disable its mapping and wait
    for the time-out of its function, because a function that is invoked afterwards begins again.
    What its handlers wrote stays, including aggregates: delete their items before the app starts
    again.
    """
    from streamkit.operate.deletion import delete_consumer

    if table is None:
        loaded = app_named(app, listener)
        name, table, control_table = loaded.name, loaded.table, loaded.control_table
    elif app is None:
        raise typer.BadParameter("name the consumer to delete, before --table")
    else:
        name = app
    if not yes:
        raise typer.BadParameter(
            f"this deletes positions and parked changes of {name} on {table}; add --yes to do it"
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
        typer.Option(
            "--to", help=f"Read again from this time on, such as 2026-01-31T12:00:00Z, or {_ALL}."
        ),
    ],
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Let this handler run twice (may be given several times)."),
    ] = None,
    in_flight: InFlightOption = 900.0,
    allow_loss: AllowLossOption = False,
    drop_parked: Annotated[
        bool, typer.Option("--drop-parked", help="Drop parked changes: they are read again.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run all handlers of an app again for the changes since a time.

    A time more than 23 hours ago needs App(archive=...), and an archive without gaps from then on.

    Stop the workers first. If Lambda functions run the app, pause it, and create the mapping again
    at TRIM_HORIZON before you resume it. The command refuses, changes nothing, and exits with 5 for
    aggregates and other handlers that would count twice, and while changes are parked, unless
    --drop-parked says that they go: those made before the time do not come again. If it is
    interrupted, the next worker finishes it.
    """
    from streamkit.operate.rewind import Despite
    from streamkit.operate.rewind import rewind as rewind_consumer

    loaded = app_named(app, listener)
    moment_to = None if to == _ALL else time_of(to, "--to", _ALL)
    done = with_aws(
        lambda aws: rewind_consumer(
            loaded,
            aws,
            moment_to,
            allow=allow or (),
            lease_seconds=settings().lease,
            in_flight=in_flight,
            despite=Despite(loss=allow_loss, parked=drop_parked),
        )
    )
    print_report(done, _describe_rewound, as_json=json)


def _describe_rewound(done: "Rewound") -> None:
    from streamkit.fleet.hosting import LAMBDA

    if done.parked:
        say(f"{done.parked} parked queues were dropped")
    where = f"{moment(done.since)} UTC" if done.since else "the oldest record"
    say(f"{done.consumer} reads again from {where}, in generation {done.generation}")
    if done.host == LAMBDA:
        say("now delete the mapping, create it at TRIM_HORIZON, then: streamkit consumers resume")


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
        raise typer.BadParameter(
            f"{option} takes {takes}a time with its zone, such as 2026-01-31T12:00Z, not {text!r}"
        )
    return time

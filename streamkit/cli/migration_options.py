"""Migration options: the migration commands share the loading of the app, options and limits."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.commands import Limit

NumberArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The number of the migration, such as 0003, or its name."),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="ID",
        help="Only this migration, all of lower numbers, and those that they need.",
    ),
]
AtOnceOption = Annotated[
    int,
    typer.Option("--at-once", min=1, help="Work on this many segments at a time in this process."),
]
SegmentsOption = Annotated[
    int | None,
    typer.Option(
        "--segments",
        min=1,
        help="Cut the table into this many segments; by default one for each 64 MB.",
    ),
]
PageOption = Annotated[
    int,
    typer.Option(
        "--page",
        min=1,
        help="Read this many items at a time; a crash repeats at most one such page.",
    ),
]
StayOption = Annotated[
    bool,
    typer.Option(
        "--stay",
        help="Follow changes until stopped, also during a pause and when nothing else is to do.",
    ),
]
AcceptOption = Annotated[
    bool, typer.Option("--accept-change", help="Go on although the definition was changed.")
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Only change the state; processes that run `join` do the work."),
]

_LIMITS: dict[str, Any] = {
    "max_wcu": Annotated[
        float | None,
        typer.Option(
            "--max-wcu",
            min=0.0,
            help="Use at most this many write units a second; 0 means no limit.",
        ),
    ],
    "max_rcu": Annotated[
        float | None,
        typer.Option(
            "--max-rcu",
            min=0.0,
            help="Use at most this many read units a second; 0 means no limit.",
        ),
    ],
    "share": Annotated[
        str | None,
        typer.Option(
            "--share",
            metavar="50%",
            help="Use at most this share of the table's provisioned capacity.",
        ),
    ],
}


def with_limits(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that limit a migration; the command takes them as `**limits`."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _LIMITS.items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return command


async def limit_of(app: "App", aws: "Aws", limits: Mapping[str, Any]) -> "Limit":
    """Return the limits that were asked for; of two limits the smaller.

    Raises:
        ConfigurationError: a share was asked for, and the table has on-demand capacity.
    """
    from streamkit.migrate.commands import Limit, share_of

    asked = Limit(limits["max_rcu"], limits["max_wcu"])
    if limits["share"] is None:
        return asked
    found = await share_of(app, aws, _share(limits["share"]))
    return Limit(
        _smaller(asked.max_reads, found.max_reads), _smaller(asked.max_writes, found.max_writes)
    )


def _smaller(one: float | None, other: float | None) -> float | None:
    return min((limit for limit in (one, other) if limit), default=None)


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if number == text or not 0 < share <= 1:
        raise typer.BadParameter(f"--share {text} is no share of 1% to 100%; write it as in 50%")
    return share


def app_with_migrations(name: str | None) -> "App":
    """Load an app, and the files of its migrations.

    Raises:
        AppNotLoaded: the app cannot be imported, or the file of a migration is wrong.
    """
    from streamkit.cli.loading import AppNotLoaded
    from streamkit.cli.running import app_named
    from streamkit.migrate.discovery import DiscoveryError, discover

    loaded = app_named(name)
    try:
        discover(loaded)
    except DiscoveryError as error:
        raise AppNotLoaded(f"error: {error}") from None
    return loaded

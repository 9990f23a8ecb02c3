"""Migration options: the migration commands share the loading of the app, options and limits."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.commands import Limit

RequiredApp = Annotated[str, typer.Argument(metavar="MODULE:APP", help="where the app is")]
NumberArgument = Annotated[str, typer.Argument(metavar="ID", help="the number, such as 0003")]
AtOnceOption = Annotated[
    int, typer.Option("--at-once", min=1, help="segments that this process works on at a time")
]
SegmentsOption = Annotated[
    int | None, typer.Option("--segments", min=1, help="of the table; by default one for 64 MB")
]
PageOption = Annotated[
    int,
    typer.Option("--page", min=1, help="items that are read, or by a crash repeated, at a time"),
]
StayOption = Annotated[
    bool,
    typer.Option(
        "--stay",
        help="follow changes while nothing else is to do, and through a pause, until stopped",
    ),
]
AcceptOption = Annotated[
    bool, typer.Option("--accept-change", help="go on with a definition that was changed")
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="only say so; processes that run it do the work")
]

_LIMITS: dict[str, Any] = {
    "max_wcu": Annotated[
        float | None, typer.Option("--max-wcu", min=0.0, help="write units a second; 0: no limit")
    ],
    "max_rcu": Annotated[
        float | None, typer.Option("--max-rcu", min=0.0, help="read units a second; 0: no limit")
    ],
    "share": Annotated[
        str | None,
        typer.Option("--share", metavar="50%", help="of what the table is provisioned with"),
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
        raise typer.BadParameter(f"--share {text}: a share, such as 50%")
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

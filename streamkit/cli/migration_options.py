"""Migration options: the migration commands share the loading of the app, options and limits."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamkit.cli.options import JsonOption, finite, with_options
from streamkit.cli.running import app_named
from streamkit.errors import ConfigurationError

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.book.limits import Limit
    from streamkit.migrate.run.sampling import Wanted


def _sample(text: str) -> "Wanted":
    """Read the `--sample` of a look at the table: a share, or a number of items."""
    from streamkit.migrate.run.sampling import read_wanted

    try:
        return read_wanted(text)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None


def _part(text: str) -> "Wanted":
    """Read the `--sample` of a verification, which is a share."""
    from streamkit.migrate.run.sampling import Wanted

    return Wanted(share=_share(text))


def _share(text: str) -> float:
    share = _percent(text)
    if share is None:
        raise typer.BadParameter(f"{text!r} is no share up to 100%; give one such as 50%")
    return share


def _errors(text: str) -> float:
    """Read `--max-errors`: a share below 1, or a number of items."""
    errors = float(text) if text.isdecimal() else _percent(text)
    if errors is None:
        raise typer.BadParameter(
            f"{text!r} is neither a share nor a number of items; give a share such as 0.1%, a"
            " number such as 20, or 0 for no limit"
        )
    return errors if text.isdecimal() else min(errors, 0.999)


def _percent(text: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    share = float(match[1]) / 100 if match else 0.0
    return share if 0 < share <= 1 else None


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
        max=1_000_000,
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
        help="Follow changes until stopped, also during a pause, and when nothing is left to do.",
    ),
]
KeysOption = Annotated[
    str,
    typer.Option(
        "--keys-from",
        metavar="FILE|s3://BUCKET/KEY|index:NAME|table:{…}",
        help="Only these items: a list of keys, an export's manifest-summary.json, or an index.",
    ),
]
AcceptOption = Annotated[
    bool, typer.Option("--accept-change", help="Go on although the definition was changed.")
]
AnywayOption = Annotated[
    str | None,
    typer.Option(
        "--anyway",
        metavar="REASON",
        help="Do it although workers or functions of another release run; the reason is stored.",
    ),
]


StillWrites = Literal["none"]
"""What people say of code that still writes at the keys whose items are to go."""
OldCodeOption = Annotated[
    StillWrites | None,
    typer.Option(
        "--old-code",
        help="Say that no code writes at old keys any more: old items go at once, without stubs.",
    ),
]
NewCodeOption = Annotated[
    StillWrites | None,
    typer.Option(
        "--new-code",
        help="Say that no code writes at new keys any more: new items go at once.",
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Only change the state; processes that run `join` do the work."),
]

SampleOption = Annotated[
    Any,
    typer.Option(
        "--sample",
        metavar="5%|N",
        parser=_sample,
        help="Read this share or number of items as the sample.",
    ),
]
VerifyOption = Annotated[
    Any,
    typer.Option(
        "--sample", metavar="5%", parser=_part, help="Verify only this share of the table."
    ),
]

OptionGroup = dict[str, Any]
"""Options that several commands have, by name."""

_DEFAULTS = {"at_once": 4, "page": 200, "stay": False, "json": False}
JOIN: OptionGroup = {
    "at_once": AtOnceOption,
    "page": PageOption,
    "stay": StayOption,
    "json": JsonOption,
}
"""How a process works on a migration; see `migration_run.Manner`."""
LIMITS: OptionGroup = {
    "max_wcu": Annotated[
        float | None,
        typer.Option(
            "--max-wcu",
            min=0.0,
            callback=finite,
            help="Use at most this many write units a second; 0 means no limit.",
        ),
    ],
    "max_rcu": Annotated[
        float | None,
        typer.Option(
            "--max-rcu",
            min=0.0,
            callback=finite,
            help="Use at most this many read units a second; 0 means no limit.",
        ),
    ],
    "share": Annotated[
        float | None,
        typer.Option(
            "--share",
            metavar="50%",
            parser=_share,
            help="Use at most this share of the table's provisioned capacity.",
        ),
    ],
}
MAX_ERRORS: OptionGroup = {
    "max_errors": Annotated[
        float | None,
        typer.Option(
            "--max-errors",
            metavar="0.1%|N",
            parser=_errors,
            help="Block it when more items than this share or number failed; 0 means no limit.",
        ),
    ],
}
FIRST: OptionGroup = {
    "first": Annotated[
        int | None,
        typer.Option(
            "--first", min=1, help="Pause after about this many items, to look at them first."
        ),
    ],
}


taking = partial(with_options, defaults=_DEFAULTS)
"""Gives a command the options of groups."""


async def limit_of(app: "App", aws: "Aws", limits: Mapping[str, Any]) -> "Limit":
    """Return the limits that were asked for; of two limits the smaller.

    Raises:
        ConfigurationError: a share was asked for, and the table has on-demand capacity.
    """
    from streamkit.migrate.book.limits import Limit, share_of

    errors, first = limits.get("max_errors"), limits.get("first")
    asked = Limit(limits["max_rcu"], limits["max_wcu"], errors, first)
    if limits["share"] is None:
        return asked
    found = await share_of(app, aws, limits["share"])
    return replace(
        asked,
        max_reads=_smaller(asked.max_reads, found.max_reads),
        max_writes=_smaller(asked.max_writes, found.max_writes),
    )


def _smaller(one: float | None, other: float | None) -> float | None:
    return min((limit for limit in (one, other) if limit), default=None)


def app_with_migrations(name: str | None) -> "App":
    """Load an app, and the files of its migrations.

    Raises:
        AppNotLoaded: the app cannot be imported, or the file of a migration is wrong.
    """
    from streamkit.cli.loading import AppNotLoaded
    from streamkit.migrate.book.discovery import DiscoveryError, discover

    loaded = app_named(name)
    try:
        discover(loaded)
    except DiscoveryError as error:
        raise AppNotLoaded(f"error: {error}") from None
    return loaded

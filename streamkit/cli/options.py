"""Options that commands share, among them one for every setting of a worker.

The option, default, help and environment variable of a setting come from its declaration in
`streamkit.settings`, so they cannot contradict each other.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from streamkit.settings import Settings

AppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        envvar="STREAMKIT_APP",
        help="The app, as MODULE:APP, or MODULE if it has only one app.",
    ),
]
RequiredApp = Annotated[
    str,
    typer.Argument(
        metavar="[MODULE:APP]",
        help="The app, as MODULE:APP; STREAMKIT_APP names it where it is left out.",
    ),
]
"""The app of an `AppCommand`: other arguments follow."""
ListenerOption = Annotated[
    str | None,
    typer.Option(
        "--listener", metavar="NAME", help="Use this listener of the app instead of the app itself."
    ),
]
AppsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODULE:APP...",
        envvar="STREAMKIT_APP",
        help="The apps to run side by side, each as MODULE:APP.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Look again and again, until interrupted.")
]
EveryOption = Annotated[
    float,
    typer.Option(
        "--every", min=0.1, help="With --watch, wait this many seconds between two looks."
    ),
]
LooksOption = Annotated[
    int | None, typer.Option("--looks", min=1, help="With --watch, end after this many looks.")
]


def command_group(text: str) -> typer.Typer:
    """Return a group of commands, which prints this help if no command is given."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)


def with_options(
    options: Mapping[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
    *,
    place: int | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command more options; the command takes them as `**named`.

    Args:
        options: their annotations by name.
        defaults: their defaults, where that is not None.
        place: how many of the command's own parameters stand before them in the help; else all.
    """
    more = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=annotation
        )
        for name, annotation in options.items()
    ]

    def given(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        at = len(own) if place is None else place
        command.__signature__ = signature.replace(parameters=[*own[:at], *more, *own[at:]])  # type: ignore[attr-defined]
        return command

    return given


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `15m`, `2h` or `30d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is no duration; give a number with s, m, h or d, such as 2h"
        )
    return float(match[1]) * _UNITS[match[2]]


def finite(number: float | None) -> float | None:
    """Return a number, and refuse `inf`, which is read as a number and cannot be stored."""
    if number is not None and math.isinf(number):
        raise typer.BadParameter("give a number such as 500; 0 means no limit")
    return number


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each setting; it takes them as `**given`."""
    options = {name: _option(name) for name in Settings.model_fields if name != "app"}
    return with_options(options)(command)


def with_preset(given: dict[str, Any], **flags: bool) -> dict[str, Any]:
    """Return the options given, with the preset that a flag of the same name asks for.

    Raises:
        BadParameter: two presets were asked for.
    """
    asked = [name for name, is_set in flags.items() if is_set]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(f'--{name}' for name in asked)}: choose one")
    return {**given, "preset": asked[0]} if asked else given


def _option(name: str) -> Any:
    """Return the annotation of the option for a setting."""
    field = Settings.model_fields[name]
    kind = field.annotation
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        kind = str  # the settings check which values are allowed
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        envvar=f"STREAMKIT_{name.upper()}",
        help=field.description,
        show_default=str(field.default),
    )
    return Annotated[kind | None, option]  # type: ignore[operator]


InFlightOption = Annotated[
    float,
    typer.Option(
        "--in-flight",
        min=0,
        help="On Lambda: wait for this many seconds, the longest time-out of its functions.",
    ),
]
"""The seconds that a function which has already begun may still run."""

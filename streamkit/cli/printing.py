"""Printing: results go to stdout, as text for people or as JSON.

A table fits the terminal: columns that help least are left out first, then long names keep their
end. Where stdout is no terminal, tables are as wide as their contents. Colours are for terminals
alone, and NO_COLOR switches them off.
"""

import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import typer

from streamkit.cli.running import of_listener
from streamkit.progress.clock import SystemClock, utc

_NAME_LEAST = 8
"""A name is not cut to fewer characters."""
_STEM = " │├└─"
"""The branches of a tree are drawn with these, before a name."""


class Printable(Protocol):
    """What a command has found or done."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        ...


R = TypeVar("R", bound=Printable)
Style = Mapping[str, Any]
"""How a text looks on a terminal, as the arguments of `typer.style`."""
BAD: Style = {"fg": "red", "bold": True}
WARN: Style = {"fg": "yellow"}
_GOOD: Style = {"fg": "green"}
_SOFT: Style = {"dim": True}
_TONES: Mapping[str, Style] = {
    **dict.fromkeys(("RECORDS LOST", "REFUSED", "stuck"), BAD),
    **dict.fromkeys(("silent", "late", "failed", "paused", "needs rebuild"), WARN),
    **dict.fromkeys(("ok", "leads"), _GOOD),
    **dict.fromkeys(("finished", "-", "not tried"), _SOFT),
}
"""The colours of cells that hold just these texts."""


class OutputClosed(Exception):
    """Nothing reads what a command prints any more, as behind `| head`."""


def say(text: str = "", **style: Any) -> None:
    """Print a line and flush it; `style` is its colour, as in `typer.style`.

    Raises:
        OutputClosed: nothing reads it any more.
    """
    try:
        sys.stdout.write(f"{_styled(text, style)}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputClosed from None


def tell(text: str) -> None:
    """Print a line on stderr, where it does not disturb `--json`."""
    typer.echo(text, err=True)


def say_next(app: str | None, words: Sequence[str], listener: str | None = None) -> None:
    """Print the command that most people run next, ready to be pasted; nothing without words.

    Args:
        app: the argument of the command that ends; without one, the settings name the app.
        words: the command, then what follows the app.
        listener: the option of the command that ends.
    """
    if words:
        group = words[0].split()[0]
        if listener and group == "aggregate":
            app = of_listener(app, listener)
        # A worker runs an app with all of its listeners, and migrations are the app's.
        has_option = group not in ("worker", "migrate", "aggregate")
        of = ["--listener", listener] if listener and has_option else []
        given = [*words[0].split(), *([app] if app else []), *words[1:], *of]
        say(f"next: streamkit {shlex.join(given)}", bold=True)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def print_report(found: R, describe: Callable[[R], object], *, as_json: bool) -> None:
    """Print a report as JSON, or as text by `describe`."""
    if as_json:
        print_json(found.to_dict())
    else:
        describe(found)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    cut: Sequence[str] = (),
    most: int | None = None,
) -> None:
    """Print rows under their columns' names.

    Args:
        columns: the names.
        rows: the cells of each row.
        drop: columns that a narrow terminal leaves out, the first one first.
        cut: columns whose cells may lose their beginning on a terminal that is still too narrow.
        most: how many rows are printed; of the others only the number is.
    """
    all_rows = list(rows)
    whole = [list(columns), *map(list, all_rows[:most])]
    room = _room()
    for name in drop:
        if _width(whole) > room:
            place = whole[0].index(name)
            whole = [[*cells[:place], *cells[place + 1 :]] for cells in whole]
    places = [whole[0].index(name) for name in cut]
    while _width(whole) > room:
        widths = _widths(whole)
        place = max(places, key=lambda one: widths[one], default=-1)
        if place < 0 or widths[place] <= _NAME_LEAST:
            break
        for cells in whole:
            cells[place] = _cut(cells[place], widths[place] - 1)
    widths = _widths(whole)
    for number, cells in enumerate(whole):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        if not number:
            say("  ".join(padded).upper().rstrip(), bold=True)
            continue
        drawn = [
            _styled(text, _TONES.get(cell, {})) for text, cell in zip(padded, cells, strict=True)
        ]
        say("  ".join(drawn).rstrip())
    if most is not None and len(all_rows) > most:
        say(f"and {len(all_rows) - most} more; --json shows all")


def _widths(whole: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*whole, strict=True)]


def _width(whole: Sequence[Sequence[str]]) -> int:
    widths = _widths(whole)
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(cell: str, width: int) -> str:
    """Return a cell with the end of its name, which is where names of shards and workers differ."""
    if len(cell) <= width:
        return cell
    name = cell.lstrip(_STEM)
    stem = cell[: len(cell) - len(name)][: max(0, width - _NAME_LEAST)]
    return f"{stem}…{name[len(name) - (width - len(stem) - 1) :]}"


def _room() -> int:
    """Return the terminal's columns; for other outputs there is no limit."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return 1_000_000
    return shutil.get_terminal_size().columns


def _styled(text: str, style: Style) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if not (style and text) or plain or not sys.stdout.isatty():
        return text
    return typer.style(text, **style)


def is_rich() -> bool:
    """Return True if stdout is a terminal and rich is installed."""
    return sys.stdout.isatty() and importlib.util.find_spec("rich") is not None


def seconds(value: float | None) -> str:
    """Return a duration as text for people."""
    if value is None:
        return "?"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def moment(at: float) -> str:
    """Return epoch seconds as text, in UTC."""
    return f"{utc(int(at)):%Y-%m-%d %H:%M:%S}"


def clock_text() -> str:
    """Return the time of day, for lines that follow each other."""
    return f"{utc(SystemClock().time()):%H:%M:%S}"

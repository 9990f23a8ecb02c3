"""Printing: results go to stdout, as text for people or as JSON.

Where rich is installed and stdout is a terminal, rich draws tables and colours; else the output is
plain, aligned lines.
"""

import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from streamkit.progress.clock import utc


def say(text: str = "") -> None:
    """Print a line and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their columns' names."""
    rows = list(rows)
    if is_rich():
        _rich_table(columns, rows)
        return
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for cells in ([name.upper() for name in columns], *rows):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        say("  ".join(padded).rstrip())


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


def moment(at: int) -> str:
    """Return epoch seconds as text, in UTC."""
    when: datetime = utc(at)
    return when.strftime("%Y-%m-%d %H:%M:%S")


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        drawn.add_column(name)
    for cells in rows:
        drawn.add_row(*map(Text, cells))
    Console().print(drawn)

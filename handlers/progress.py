"""A demo's progress: a bar that moves on a terminal, plain lines anywhere else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Tells what happens, as it happens."""

    def say(self, text: str) -> None:
        """Tell an event, with the time since the beginning."""

    def advance(self, done: int) -> None:
        """Tell how much of the whole is done."""


class PlainProgress:
    """Lines: one for each event, and one for each tenth of the whole."""

    def __init__(self, total: int, noun: str) -> None:
        self._total = total
        self._noun = noun
        self._tenths = 0
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Write a line."""
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stdout.flush()

    def advance(self, done: int) -> None:
        """Write a line when another tenth is done."""
        tenths = done * 10 // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            self.say(f"{done:,} {self._noun}")


@contextmanager
def progress(total: int, noun: str) -> Iterator[Progress]:
    """Show progress towards a total of something, in the way that fits where it is shown."""
    if not sys.stdout.isatty():
        yield PlainProgress(total, noun)
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        yield PlainProgress(total, noun)
        return
    columns = (TextColumn(noun), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, transient=True) as bar:
        task = bar.add_task(noun, total=total)
        began = time.monotonic()

        class Live:
            def say(self, text: str) -> None:
                bar.console.print(f"{time.monotonic() - began:6.1f} s  {text}", highlight=False)

            def advance(self, done: int) -> None:
                bar.update(task, completed=min(done, total))

        yield Live()

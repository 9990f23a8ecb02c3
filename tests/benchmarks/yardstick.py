"""Rows of the table that `make bench` prints: what is measured, beside what, and what it must reach.

A figure is a ratio to a yardstick that ran beside it in the same run: the client's raw calls, the
usual decoding, a bare read. So it says the same on every machine. Both are measured in CPU time, in
turns. Where rounds are short, the best one of each counts: other work on a machine can only make a
round slower. Where they take seconds, each is compared with the yardstick right beside it, and the
median counts: a processor that is shared runs at half its speed for seconds, and then does not.

A row is one function:

    @row("count only", unit="changes/CPU s", of="the usual way", bar=3.0)
    def count_only() -> Figure:
        mine, usual = in_turns(read_and_count, read_the_usual_way)
        return Figure(1 / mine, usual / mine)
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDS = 7


@dataclass(frozen=True)
class Figure:
    """What was measured.

    Attributes:
        value: in the row's unit, on this machine.
        ratio: to the yardstick; None for what does not depend on a machine, such as write units.
    """

    value: float
    ratio: float | None = None

    @property
    def judged(self) -> float:
        """Return what is held against the bar."""
        return self.value if self.ratio is None else self.ratio


Measure = Callable[[], Figure]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured.
        unit: of the value.
        of: the yardstick, if there is one: the ratio is so many times that.
        bar: what the ratio, or the value without one, must reach.
        less: whether less is better; then the bar is the most that it may be.
        measure: makes the figure.
    """

    name: str
    unit: str
    of: str
    bar: float
    less: bool
    measure: Measure

    def holds(self, figure: Figure) -> bool:
        """Return whether a figure reaches the bar."""
        return figure.judged <= self.bar if self.less else figure.judged >= self.bar

    def better(self, one: Figure, other: Figure) -> Figure:
        """Return the better one of two figures."""
        if self.less:
            return min(one, other, key=lambda figure: figure.judged)
        return max(one, other, key=lambda figure: figure.judged)

    def taken(self, tries: int = 3) -> Figure:
        """Measure; below the bar, measure again, because a busy machine makes a figure worse."""
        figure = self.measure()
        for _ in range(tries - 1):
            if self.holds(figure):
                break
            figure = self.better(figure, self.measure())
        return figure


ROWS: dict[str, Row] = {}
"""All rows by name, in the order of the table."""


def row(
    name: str, *, unit: str, bar: float, of: str = "", less: bool = False
) -> Callable[[Measure], Measure]:
    """Make a function a row of the table."""

    def add(measure: Measure) -> Measure:
        assert name not in ROWS, f"two rows are called {name!r}"
        ROWS[name] = Row(name, unit, of, bar, less, measure)
        return measure

    return add


def median_of(rounds: Sequence[tuple[float, float]]) -> Figure:
    """Return how many units a CPU second handles, and how many times the yardstick that is.

    Args:
        rounds: CPU seconds of a unit, and of the same by the yardstick right beside it.
    """
    rate = statistics.median(1 / mine for mine, _ in rounds)
    return Figure(rate, statistics.median(yardstick / mine for mine, yardstick in rounds))


def in_turns(*contestants: Callable[[], object], rounds: int = ROUNDS) -> Sequence[float]:
    """Run each contestant in every round, and one round before to warm up.

    A contestant that returns a float has measured its CPU seconds itself, in another process for
    example.

    Returns:
        The fewest CPU seconds of each.
    """
    best = [float("inf")] * len(contestants)
    for turn in range(rounds + 1):
        for place, run in enumerate(contestants):
            began = time.process_time()
            spent = run()
            seconds = spent if isinstance(spent, float) else time.process_time() - began
            if turn:
                best[place] = min(best[place], seconds)
    return best

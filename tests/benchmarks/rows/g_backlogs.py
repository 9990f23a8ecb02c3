"""Runs of handlers for each change of a long backlog: no pair of kinds makes it grow."""

from itertools import combinations

from tests.benchmarks.yardstick import Figure, row
from tests.simulation.backlogs import KINDS, runs_per_change


@row("runs of a handler for a change, worst pair, 1,000 waiting", unit="runs", bar=2, less=True)
def worst_pair() -> Figure:
    return Figure(max(runs_per_change(kinds, 1000) for kinds in combinations(KINDS, 2)))


@row(
    "runs of a handler for a change, beside an aggregate, 4,000 waiting",
    unit="runs",
    bar=1.5,
    less=True,
)
def long_backlog() -> Figure:
    return Figure(max(runs_per_change(("top", kind), 4000) for kind in ("add", "read")))

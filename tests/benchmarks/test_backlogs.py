"""Runs of handlers for each change of a long backlog: no pair of kinds makes it grow."""

from itertools import combinations

import pytest

from tests.simulation.backlogs import KINDS, runs_per_change

pytestmark = pytest.mark.benchmark

RUNS_MAX = 2


@pytest.mark.parametrize("kinds", list(combinations(KINDS, 2)), ids="+".join)
def test_runs_for_each_change_do_not_grow_with_the_backlog(kinds):
    runs = [runs_per_change(kinds, backlog) for backlog in (250, 1000, 4000)]
    print(" + ".join(kinds), *(f"{run:.2f}" for run in runs))
    assert max(runs) <= RUNS_MAX

"""Work grows linearly with what is pending, whatever handlers stand side by side.

`tests/benchmarks/rows/g_backlogs.py` does the same with longer backlogs.
"""

from itertools import combinations

import pytest

from tests.simulation.backlogs import KINDS, runs_per_change


@pytest.mark.parametrize("kinds", list(combinations(KINDS, 2)), ids="+".join)
def test_two_handlers_run_at_most_twice_for_each_change_of_a_backlog(kinds):
    assert 1 <= runs_per_change(kinds, 250) <= 2


@pytest.mark.parametrize("kinds", [("top", "add"), ("top", "read")], ids="+".join)
def test_a_backlog_longer_takes_no_more_runs_for_each_change(kinds):
    assert 1 <= runs_per_change(kinds, 600) <= 1.5


def test_changes_that_read_and_write_one_item_share_a_commit():
    assert 1 <= runs_per_change(("read",), 250, groups=1) <= 2

"""Units, money and time of a migration, from those of a sample that is all of the table."""

from types import SimpleNamespace

import pytest

from streamkit.migrate.book.limits import Limit
from streamkit.migrate.plan.estimates import forecast
from streamkit.migrate.plan.expenses import Spent
from streamkit.migrate.run.sampling import Part, Sample

ALL = Sample(1, (Part([], 0),))
IN_PLACE = {
    ("scan", "read", ""): 10,
    ("rewrite", "write", ""): 6,
    ("rewrite", "write", "GSI1"): 20,
    ("verify", "read", ""): 15,
}
MOVED = IN_PLACE | {
    ("switch", "read", ""): 8,
    ("switch", "write", ""): 40,
    ("contract", "read", ""): 12,
    ("contract", "write", ""): 50,
    ("at once", "read", ""): 6,
    ("at once", "write", ""): 30,
}


def made(units, **limits):
    spent = Spent()
    spent.update(units)
    moves = SimpleNamespace(moves=units is MOVED)
    return forecast(moves, ALL, [spent], Limit(**limits))


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({}, None),
        ({"max_reads": 5}, 2 + 3),
        ({"max_writes": 10}, 2),  # of the index
        ({"max_reads": 5, "max_writes": 2}, 10 + 3),
    ],
)
def test_the_steps_of_a_group_take_the_time_of_the_scarcest_units_and_groups_follow(
    limits, seconds
):
    assert made(IN_PLACE, **limits).seconds == seconds


def test_each_step_has_its_own_units_by_index():
    found = {cost.step: cost for cost in made(IN_PLACE).steps}
    assert list(found) == ["scan", "rewrite", "verify"]
    assert {n: one.value for n, one in found["rewrite"].writes.items()} == {"": 6, "GSI1": 20}
    assert (found["verify"].reads.value, made(IN_PLACE).choices) == (15, ())


def test_a_move_has_two_ways_to_its_end_and_each_counts_all_that_comes_before():
    found = made(MOVED, max_writes=10)
    assert [one.name for one in found.choices] == ["contract", "contract --old-code none"]
    assert [one.reads.value for one in found.choices] == [45, 39]
    assert [one.writes.value for one in found.choices] == [116, 96]
    assert [one.seconds for one in found.choices] == [2 + 4 + 5, 2 + 4 + 3]
    assert (found.one_pass.value, made(IN_PLACE).one_pass) == (4, None)

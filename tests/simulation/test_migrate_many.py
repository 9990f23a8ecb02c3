"""The comparison of large moves: it finds what a move has lost, and nothing where nothing is lost."""

import pytest

from tests.simulation import both_shapes
from tests.simulation.migrate_many import run_whole

WAYS_BACK = {True: both_shapes.moved_back, False: both_shapes.without_its_note}


@pytest.mark.parametrize("right", [True, False])
def test_orders_that_come_back_without_their_notes_are_found(right):
    app = both_shapes.app_of(WAYS_BACK[right])
    ran, wrong = run_whole("back", app, items=20, seed=6, acts=30, processes=2)
    assert ran.states[-1].phase == "rolled back"
    assert bool(wrong) is not right


def test_orders_come_to_their_new_place_as_they_were_written():
    app = both_shapes.app_of(both_shapes.moved_back)
    ran, wrong = run_whole("moved", app, items=20, seed=3, acts=30, processes=2)
    assert ran.states[-1].phase == "done"
    assert wrong == []

"""No write at an old key is lost by the end of a migration, in any order; the naive ends lose one."""

import pytest

from tests.models.contract_end import NAIVE, OURS, Model
from tests.models.explorer import explore


def test_no_write_at_an_old_key_is_lost_in_any_order():
    found = explore(Model(OURS))
    assert found.broken == {}
    assert len(found.worlds) > 1000
    assert sum(world.phase == "done" for world in found.worlds) > 10


@pytest.mark.parametrize("name", NAIVE)
def test_an_end_that_looks_simpler_loses_a_write(name):
    assert "lost" in explore(Model(NAIVE[name]), until="lost").broken

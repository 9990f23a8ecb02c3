"""No write at an old key is lost by the end of a migration, in any order; the naive ends lose one."""

import pytest

from tests.models.contract_end import NAIVE, OURS, explore


def test_no_write_at_an_old_key_is_lost_in_any_order():
    trace, worlds, ended = explore(OURS)
    assert trace is None
    assert worlds > 1000
    assert ended > 10


@pytest.mark.parametrize("name", NAIVE)
def test_an_end_that_looks_simpler_loses_a_write(name):
    trace, _, _ = explore(NAIVE[name])
    assert trace is not None

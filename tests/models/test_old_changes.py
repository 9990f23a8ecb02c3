"""No schedule of a replay beside a live handler goes wrong, and what looks simpler breaks."""

import pytest

from tests.models.explorer import explore, stuck
from tests.models.old_changes import (
    NAIVE,
    SAFE,
    Model,
    ended,
    helps,
)


@pytest.mark.parametrize("name", SAFE)
def test_no_schedule_of_a_replay_goes_wrong(name):
    rules, bound = SAFE[name]
    found = explore(Model(rules, bound))
    assert found.broken == {}
    assert len(found.worlds) > 500


@pytest.mark.parametrize("name", [name for name in SAFE if SAFE[name][0].whole])
def test_a_replay_ends(name):
    rules, bound = SAFE[name]
    assert stuck(Model(rules, bound), ended, helps) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_replay_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert breaks in explore(Model(rules, bound), until=breaks).broken

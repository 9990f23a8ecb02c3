"""No schedule of a handler that joins its app goes wrong, and what looks simpler breaks."""

import pytest

from tests.models.explorer import explore, stuck
from tests.models.joins import (
    BOUNDS,
    NAIVE,
    SAFE,
    STANDS_STILL,
    UNSEEN,
    Bound,
    Model,
    Rules,
    flows,
    helps,
    of_the_app,
)


@pytest.mark.parametrize("name", BOUNDS)
def test_no_schedule_of_a_join_goes_wrong(name):
    found = explore(Model(Rules(), BOUNDS[name]))
    assert found.broken == {}
    assert len(found.worlds) > 500


@pytest.mark.parametrize("name", BOUNDS)
def test_the_handler_does_every_change_in_the_end(name):
    model = Model(Rules(), BOUNDS[name])
    assert stuck(model, model.seen, helps) is None


@pytest.mark.parametrize("name", BOUNDS)
def test_the_app_goes_on_while_the_handlers_consumer_does_nothing(name):
    assert stuck(Model(Rules(), BOUNDS[name]), flows, of_the_app) is None


STOPS = [name for name in BOUNDS if not (BOUNDS[name].root or BOUNDS[name].older)]


@pytest.mark.parametrize("name", STOPS)
def test_no_schedule_of_a_command_that_stops_both_goes_wrong(name):
    model = Model(Rules(how="stop"), BOUNDS[name])
    assert explore(model).broken == {}
    assert stuck(model, model.seen, helps) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_join_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert breaks in explore(Model(rules, bound), until=breaks).broken


@pytest.mark.parametrize("name", UNSEEN)
def test_a_join_that_looks_simpler_leaves_changes_undone(name):
    rules, bound = UNSEEN[name]
    model = Model(rules, bound)
    assert explore(model).broken == {}
    assert stuck(model, model.seen, helps) is not None


@pytest.mark.parametrize("name", SAFE)
def test_a_join_that_asks_for_less_is_as_safe(name):
    assert explore(Model(SAFE[name])).broken == {}


def test_an_app_that_waits_at_a_barrier_stands_still():
    assert stuck(Model(STANDS_STILL, Bound()), flows, of_the_app) is not None

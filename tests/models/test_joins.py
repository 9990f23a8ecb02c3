"""No schedule of a handler that joins its app goes wrong, and what looks simpler breaks."""

import pytest

from streamkit.operate.moves.into_app import apart
from streamkit.progress.control import START, Cursor
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


NAMES = ("parent", "child")


def cursors(model, there, *, own):
    """Return what the table has where a world has these cursors."""
    found = {}
    for shard, name in enumerate(NAMES):
        one = there[shard]
        if one is not None:
            position = START if one.pos == model.begins[shard] else f"{one.pos:040d}"
            finished = one.state == "finished" if own else one.finished
            done = frozenset({f"{one.pos + 1:040d}:h"}) if own and one.half else frozenset()
            state, parent = "finished" if finished else "active", NAMES[0] if shard else None
            found[name] = Cursor(name, parent, position=position, state=state, done=done)
    return found


@pytest.mark.parametrize(
    "bound", [Bound(takes=0), Bound((3, 2), takes=0), Bound(takes=0, halves=1)]
)
def test_the_command_asks_for_what_the_model_asks_for_in_every_world(bound):
    model, looks = Model(Rules(how="stop"), bound), set()
    for world in explore(model).worlds:
        if world.phase == "joining":
            mine = cursors(model, world.app, own=False)
            done = cursors(model, world.own, own=True)
            fits = apart(mine, done) == ([], [])
            assert fits == model.fits(world), world
            looks.add((fits, *mine, *done))
    assert {True, False} == {fits for fits, *_ in looks}
    assert len(looks) > 5


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

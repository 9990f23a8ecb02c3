"""No interleaving breaks our rewind, the naive ones are found out, and the code's steps are ours."""

from functools import partial

import pytest

from streamkit.operate import rewind as module
from streamkit.testing.loop import run_virtually
from tests.models.explorer import counter_example
from tests.models.rewound import (
    FUNCTIONS,
    FUNCTIONS_NAIVE,
    NAIVE,
    OURS,
    PAUSED,
    REGIMES,
    Model,
    Rules,
    broken,
)
from tests.simulation.test_rewind import back, make_app, make_world, put, run


@pytest.mark.parametrize("name", REGIMES)
def test_no_interleaving_of_a_rewind_with_workers_goes_wrong(name):
    worlds, found = broken(Rules(), REGIMES[name])
    assert found == {}
    assert worlds > 100


def test_no_interleaving_of_a_rewind_with_functions_goes_wrong():
    worlds, found = broken(Rules(FUNCTIONS), PAUSED)
    assert found == {}
    assert worlds > 1000


@pytest.mark.parametrize("name", NAIVE)
def test_a_rewind_that_looks_simpler_breaks(name):
    rules, regime, breaks = NAIVE[name]
    assert counter_example(Model, rules, REGIMES[regime], breaks=breaks)


def test_a_rewind_that_looks_at_workers_first_is_safe_where_none_freezes():
    """So the order alone is what breaks the naive one there."""
    rules, *_ = NAIVE["one generation, workers first"]
    assert broken(rules, REGIMES["leaves"])[1] == {}


@pytest.mark.parametrize("name", FUNCTIONS_NAIVE)
def test_a_rewind_of_functions_that_looks_simpler_breaks(name):
    assert counter_example(Model, FUNCTIONS_NAIVE[name], PAUSED, breaks="stale")


STEPS = {
    "_unless_paused": ["read"],
    "_parked": ["parked"],
    "live_workers": ["live"],
    "ask_rewind": ["ask"],
    "capture": ["raise"],
    "begin_rewind": ["decide"],
    "finish_rewind": ["drop", "finish"],
}
"""What the code calls, and which steps of the model that is."""


def test_the_code_takes_the_steps_of_the_model(monkeypatch):
    taken = []

    async def noted(function, steps, *args, **options):
        taken.extend(steps)
        return await function(*args, **options)

    async def scenario():
        world, app = make_world(), make_app()
        put(world, "x", 1)
        await run(world, app)
        for name, steps in STEPS.items():
            monkeypatch.setattr(module, name, partial(noted, getattr(module, name), steps))
        await back(world, app, None)

    run_virtually(scenario)
    assert tuple(taken) == OURS

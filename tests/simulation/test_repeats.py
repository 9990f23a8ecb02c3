"""One seed is one run: what a seed has found can be played again, call by call."""

import anyio
import pytest

from streamkit.core.table_shape import TableShape
from streamkit.testing import trial
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrations import migrate
from tests.simulation.conformance import Market, add_migrations, make_app
from tests.simulation.migrating import OldOrder, Order, Orders, old_then_new, rekey
from tests.simulation.test_conformance import HOSTS, JOBS, TROUBLE


def made(world):
    """Return the calls of a run, with all that they sent."""
    return [(call.at, call.operation, call.payload) for call in world.calls]


def test_a_run_makes_the_same_calls_whenever_it_is_played_again():
    def calls():
        orders = Orders(old_then_new(OldOrder, Order))
        ran = migrate(rekey(), "0001", orders, seed=2, acts=10, worker=True)
        assert ran.met["crash"]
        assert ran.met["freeze"]
        return made(ran.world)

    first = calls()
    assert len(first) > 1000
    assert calls() == first


@pytest.mark.parametrize("host", [*HOSTS, *JOBS])
def test_a_trial_makes_the_same_calls_in_every_host(host):
    def calls():
        worlds, app = [], make_app(tables=["Elsewhere"])
        if host in JOBS:
            add_migrations(app)

        def in_a_world(app, world, *rest):
            worlds.append(world)
            return (HOSTS | JOBS)[host](app, world, *rest)

        options = {"seed": 1, "acts": 20, "trouble": TROUBLE, "host": in_a_world}
        trial(app, Market(app), others={"Elsewhere": TableShape()}, **options)
        return made(worlds[0])

    first = calls()
    assert len(first) > 300
    assert calls() == first


def test_tasks_that_are_cancelled_together_wake_in_the_same_order_wherever_they_are_in_memory():
    async def main():
        woken = []

        async def sleeper(number):
            try:
                await anyio.sleep_forever()
            finally:
                woken.append(number)

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(sleeper, number)
            await anyio.sleep(1)
            group.cancel_scope.cancel()
        return tuple(woken)

    # Each run finds the memory of the one before free, in another order.
    assert len({run_virtually(main, seed=1) for _ in range(5)}) == 1

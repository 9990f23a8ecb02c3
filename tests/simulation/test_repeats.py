"""One seed is one run: what a seed has found can be played again, call by call."""

import anyio

from streamkit.testing.loop import run_virtually
from streamkit.testing.migrations import migrate
from tests.simulation.migrating import OldOrder, Order, Orders, old_then_new, rekey


def test_a_run_makes_the_same_calls_whenever_it_is_played_again():
    def calls():
        orders = Orders(old_then_new(OldOrder, Order))
        ran = migrate(rekey(), "0001", orders, seed=3, acts=20, worker=True)
        assert ran.met["crash"]
        assert ran.met["freeze"]
        return [(call.at, call.operation, call.payload) for call in ran.world.calls]

    first = calls()
    assert len(first) > 1000
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

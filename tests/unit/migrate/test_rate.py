"""How much a migration takes: by what calls have cost, and never more than it may."""

import anyio
import pytest

from streamkit.migrate.rate import Limits, Rate
from streamkit.testing.loop import VirtualClock, run_virtually


def table(units):
    return {"CapacityUnits": units, "Table": {"CapacityUnits": units}}


def with_index(units, index):
    return table(units) | {"GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": index}}}


async def seconds_for(calls, units, *, limits, processes=1, consumed=table):
    clock = VirtualClock()
    rate = Rate(clock, limits, processes)
    began = clock.monotonic()
    for _ in range(calls):
        await rate.ready("write")
        rate.charge_write(consumed(units))
    await rate.ready("write")
    return clock.monotonic() - began


@pytest.mark.parametrize(
    ("limits", "processes", "low", "high"),
    [
        (Limits(writes=100), 1, 8.5, 10.5),
        (Limits(writes=100), 4, 36, 41),
        (Limits(), 1, 0, 0),
    ],
)
def test_a_thousand_units_take_as_long_as_the_limit_says(limits, processes, low, high):
    async def main():
        return await seconds_for(100, 10, limits=limits, processes=processes)

    assert low <= run_virtually(main, seed=1) <= high


def test_an_index_that_takes_more_than_the_table_sets_the_pace():
    async def main():
        def consumed(units):
            return with_index(units, 3 * units)

        return await seconds_for(100, 10, limits=Limits(writes=100), consumed=consumed)

    assert 27 <= run_virtually(main, seed=1) <= 31


def test_a_throttle_takes_a_third_back_and_it_grows_again():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limits(writes=100))
        await rate.ready("write")
        speeds = []
        for step in range(3):
            if step == 1:
                rate.ease("throttled")
                rate.ease("throttled")  # of the same moment: it counts once
            began = clock.monotonic()
            for _ in range(20):
                rate.charge_write(table(10))
                await rate.ready("write")
            speeds.append(200 / (clock.monotonic() - began))
        return speeds, rate.reason

    (before, eased, later), _ = run_virtually(main, seed=1)
    assert eased < 0.9 * before
    assert later > eased


def test_without_a_limit_a_throttle_sets_one_for_a_while():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock)
        for _ in range(50):
            await rate.ready("write")
            rate.charge_write(table(100))
        began = clock.monotonic()
        rate.ease("throttled")
        for _ in range(5):
            rate.charge_write(table(10))
            await rate.ready("write")
        return clock.monotonic() - began

    assert run_virtually(main, seed=1) > 0


def test_calls_that_wait_together_do_not_go_at_once():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limits(writes=5))
        began, done = clock.monotonic(), []

        async def call():
            await rate.ready("write")
            await anyio.sleep(0.02)
            rate.charge_write(table(1))
            done.append(clock.monotonic() - began)

        async with anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(call)
        return done

    done = run_virtually(main, seed=1)
    within = [sum(at <= moment < at + 5 for moment in done) for at in range(2, 10)]
    assert max(within) <= 5 * 5 * 1.3
    assert 9 <= max(done) <= 14

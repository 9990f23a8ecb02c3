"""How much a migration takes: by what calls have cost, and never more than it may."""

import anyio
import pytest

from streamkit.migrate.book.limits import Limit, Share
from streamkit.migrate.sending.rate import Rate
from streamkit.testing.loop import VirtualClock, run_virtually


def table(units):
    return {"CapacityUnits": units, "Table": {"CapacityUnits": units}}


def with_index(units, index):
    return table(units) | {"GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": index}}}


async def write(rate, consumed):
    reserved = await rate.ready("write")
    rate.charge(consumed, "write")
    rate.settle("write", reserved)


async def seconds_for(calls, units, *, limits, part=1.0, consumed=table):
    clock = VirtualClock()
    rate = Rate(clock, limits, Share(part, 1e9))
    began = clock.monotonic()
    for _ in range(calls):
        await write(rate, consumed(units))
    await rate.ready("write")
    return clock.monotonic() - began


@pytest.mark.parametrize(
    ("limits", "part", "low", "high"),
    [
        (Limit(max_writes=100), 1.0, 9.9, 10.5),
        (Limit(max_writes=100), 0.25, 39.5, 41),
        (Limit(), 1.0, 0, 0),
    ],
)
def test_a_thousand_units_take_as_long_as_the_limit_says(limits, part, low, high):
    async def main():
        return await seconds_for(100, 10, limits=limits, part=part)

    assert low <= run_virtually(main, seed=1) <= high


def test_an_index_that_takes_more_than_the_table_sets_the_pace():
    async def main():
        def consumed(units):
            return with_index(units, 3 * units)

        return await seconds_for(100, 10, limits=Limit(max_writes=100), consumed=consumed)

    assert 27 <= run_virtually(main, seed=1) <= 31


def test_a_throttle_takes_a_third_back_and_it_grows_again():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=100))
        speeds = []
        for step in range(3):
            if step == 1:
                rate.ease("throttled")
                rate.ease("throttled")  # of the same moment: it counts once
            began = clock.monotonic()
            for _ in range(20):
                await write(rate, table(10))
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
            await write(rate, table(100))
        began = clock.monotonic()
        rate.ease("throttled")
        for _ in range(5):
            await write(rate, table(10))
        return clock.monotonic() - began

    assert run_virtually(main, seed=1) > 0


@pytest.mark.parametrize("units", [1, 10])
@pytest.mark.parametrize("index", [0, 3], ids=["table", "index"])
def test_calls_that_wait_together_never_take_more_than_the_limit_in_a_second(units, index):
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=60))
        began, done = clock.monotonic(), []

        async def call():
            reserved = await rate.ready("write")
            await anyio.sleep(0.02)
            rate.charge(with_index(units, index * units), "write")
            rate.settle("write", reserved)
            done.append(clock.monotonic() - began)

        async with anyio.create_task_group() as group:
            for _ in range(600 // units):
                group.start_soon(call)
        return done

    done, cost = run_virtually(main, seed=1), units * max(1, index)
    taken = [cost * sum(at <= moment < at + 1 for moment in done) for at in range(9)]
    assert max(taken) <= 60 + 2 * cost + 3
    assert sum(taken) / 9 >= 0.95 * 60


def test_nothing_is_taken_on_a_share_that_is_out_of_date():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=10), Share(1.0, clock.monotonic() + 2))
        for _ in range(100):
            with anyio.move_on_after(10) as scope:
                await write(rate, table(1))
            if scope.cancelled_caught:
                break
        return rate.writes[""]

    assert 18 <= run_virtually(main, seed=1) <= 22


def test_a_pause_is_not_made_up_for():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=100))
        await write(rate, table(1))
        await anyio.sleep(60)
        began, count = clock.monotonic(), 0
        while clock.monotonic() - began < 1:
            await write(rate, table(1))
            count += 1
        return count

    assert 98 <= run_virtually(main, seed=1) <= 107


def test_a_refused_write_is_taken_for_as_dear_as_others():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=10))
        await write(rate, table(5))
        began = clock.monotonic()
        for _ in range(10):
            rate.settle("write", await rate.ready("write"), cost=True)
        await rate.ready("write")
        return clock.monotonic() - began, rate.writes

    seconds, writes = run_virtually(main, seed=1)
    assert 5 <= seconds <= 6
    assert writes == {"": 55}


def test_a_limit_is_told_as_the_reason_only_if_it_was_waited_for_since():
    async def main():
        rate = Rate(VirtualClock(), Limit(max_writes=10))
        for _ in range(3):
            await write(rate, table(5))
        return rate.told(), rate.told()

    assert run_virtually(main, seed=1) == ("limit", "")

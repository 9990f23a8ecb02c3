"""Turns to call `DescribeStream`: never more than the fleet's limit, also when leaders change."""

import anyio
import pytest

from streamkit.stream.asking import AskRate, asks_a_second
from streamkit.testing.loop import run_virtually

SECOND = 10
"""Calls that the service takes in one."""


async def ask(rate, asked, seconds):
    """Take turns as fast as there are any."""
    with anyio.move_on_after(seconds):
        while True:
            await rate.turn()
            asked.append(anyio.current_time())


def most(asked):
    """Return how many calls there were within the busiest second."""
    return max((sum(at <= t < at + 1 for t in asked) for at in asked), default=0)


@pytest.mark.parametrize(
    ("workers", "leader", "other"), [(1, 9, None), (2, 6, 1), (3, 6, 1), (4, 8, 0), (500, 8, 0)]
)
def test_the_leader_has_most_turns_and_the_others_few_in_a_small_fleet(workers, leader, other):
    assert asks_a_second(workers, leads=True) == leader
    if other is not None:
        assert asks_a_second(workers, leads=False) == other


def test_turns_come_back_a_second_after_they_were_taken():
    async def main():
        rate = AskRate(lambda: 2)
        assert [rate.may_ask() for _ in range(3)] == [True, True, False]
        await anyio.sleep(1.0)
        assert not rate.may_ask()
        await anyio.sleep(0.06)
        assert [rate.may_ask() for _ in range(3)] == [True, True, False]

    run_virtually(main)


def test_who_has_no_turns_waits_until_it_has():
    async def main():
        limit, asked = [0], []
        async with anyio.create_task_group() as group:
            group.start_soon(ask, AskRate(lambda: limit[0]), asked, 9.9)
            await anyio.sleep(5)
            assert asked == []
            limit[0] = 1
        assert asked[0] == pytest.approx(5, abs=0.1)
        assert len(asked) == 5

    run_virtually(main)


def test_a_leader_asks_nothing_for_a_second_after_it_took_the_lead():
    async def main():
        rate, asked = AskRate(lambda: 9), []
        await anyio.sleep(3)
        rate.hold()
        assert not rate.may_ask()
        await ask(rate, asked, 3)
        assert 4.0 < asked[0] < 4.2

    run_virtually(main)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 4), (4, 3), (2, 3), (8, 1)])
def test_a_fleet_that_grows_or_shrinks_stays_within_the_services_limit(before, after):
    async def main():
        fleet, asked = [before], []
        async with anyio.create_task_group() as group:
            for number in range(max(before, after)):

                def limit(number=number):
                    there = number < fleet[0]
                    return asks_a_second(fleet[0], leads=number == 0) if there else 0

                group.start_soon(ask, AskRate(limit), asked, 10)
            await anyio.sleep(4.3)
            fleet[0] = after
        assert most([at for at in asked if at < 4.3]) > 5
        assert most(asked) <= SECOND

    run_virtually(main)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_a_fleet_that_changes_its_leader_stays_within_the_services_limit(workers):
    async def main():
        leader, asked = [0], []
        rates = [
            AskRate(lambda n=n: asks_a_second(workers, leads=n == leader[0]))
            for n in range(workers)
        ]
        async with anyio.create_task_group() as group:
            for rate in rates:
                group.start_soon(ask, rate, asked, 10)
            await anyio.sleep(4.3)
            leader[0] = 1
            rates[1].hold()
        assert most(asked) <= SECOND

    run_virtually(main)


def test_a_leader_may_always_ask_however_many_consumers_its_process_has():
    assert asks_a_second(2, leads=True, consumers=8) == 1
    assert asks_a_second(2, leads=False, consumers=8) == 0

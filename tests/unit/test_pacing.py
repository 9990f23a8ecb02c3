"""Polling slows down while nothing happens, and pages in memory are bounded over all shards."""

import random

import anyio
import pytest

from streamkit.pacing import ByteBudget, Pace, Pacing
from streamkit.testing.loop import run_virtually


def pacing(**settings):
    return Pacing(Pace(**settings), random.Random(0))


def test_a_quiet_shard_is_polled_less_and_less_down_to_the_ceiling():
    subject = pacing(floor=0.2, ceiling=1.0)
    pauses = [subject.pause(0, 0) for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.5
    assert pauses[-1] == 1.0


def test_own_records_do_not_wake_a_quiet_shard():
    subject = pacing(floor=0.2, ceiling=1.0)
    for _ in range(8):
        subject.pause(0, 3)
    assert subject.pause(0, 3) == 1.0
    assert subject.pause(1, 4) == 0.2


def test_a_well_filled_page_is_followed_at_once():
    assert pacing().pause(500, 500) == 0.0
    assert pacing().pause(0, 500) == 0.0


def test_conflicts_in_a_row_wait_longer_until_a_commit_goes_through():
    subject = pacing()
    longest = [max(subject.contended(throttled=False) for _ in range(1)) for _ in range(12)]
    assert max(longest) <= 2.0
    subject.committed()
    assert subject.contended(throttled=False) <= 0.04


async def bounded():
    budget = ByteBudget(limit=100)
    budget.take("a", 80)
    budget.take("b", 40)
    with pytest.raises(TimeoutError), anyio.fail_after(1):
        await budget.room("a")
    with anyio.fail_after(1):
        await budget.room("c")  # a shard that holds nothing may always read one page
    async with anyio.create_task_group() as group:
        waited = []

        async def wait():
            await budget.room("a")
            waited.append("a")

        group.start_soon(wait)
        await anyio.sleep(1)
        assert waited == []
        budget.release("b", 40)
    assert waited == ["a"]
    budget.forget("a")
    with anyio.fail_after(1):
        await budget.room("b")


def test_a_shard_waits_for_room_unless_it_holds_nothing():
    run_virtually(bounded)

"""A consumer that catches up commits no faster than it may, and one that has does not wait."""

import asyncio
from dataclasses import replace
from math import nan

import anyio
import pytest

from streamkit.operate.status_page.checks import ready
from streamkit.progress.paced import CommitRate
from streamkit.testing.loop import EPOCH, VirtualClock, run_virtually
from streamkit.worker.report import WorkerReport

OLD = EPOCH - 3600


async def seconds_of(commits, units, dated, ends_after=10**9):
    """Return how long commits of 100 units each take, of changes of some age."""

    clock = VirtualClock(asyncio.get_running_loop())
    used, began = [0.0], clock.monotonic()
    rate = CommitRate(units, lambda: used[0], lambda: used[0] >= 100 * ends_after, clock)
    for _ in range(commits):
        await rate.ready(dated)
        used[0] += 100
    return clock.monotonic() - began


@pytest.mark.parametrize(("units", "least"), [(50, 17), (1000, 0), (10, 89)])
def test_commits_of_old_changes_use_no_more_than_they_may(units, least):
    took = run_virtually(lambda: seconds_of(10, units, OLD))
    assert least - 1 <= took <= least + 1


def test_commits_of_recent_changes_do_not_wait():
    assert run_virtually(lambda: seconds_of(10, 1, EPOCH - 30)) == 0


def test_nothing_waits_while_the_worker_ends():
    assert run_virtually(lambda: seconds_of(10, 1, OLD, ends_after=0)) == 0


def test_a_commit_that_waits_is_let_go_within_a_second_of_the_end_of_its_worker():
    async def waited():
        clock = VirtualClock(asyncio.get_running_loop())
        used, began = [0.0], clock.monotonic()
        rate = CommitRate(1, lambda: used[0], lambda: clock.monotonic() - began >= 5, clock)
        await rate.ready(OLD)
        used[0] += 1000
        await rate.ready(OLD)
        return clock.monotonic() - began

    assert 5 <= run_virtually(waited) <= 6


def test_the_commits_of_several_shards_keep_to_the_rate_together():
    async def shards():
        clock = VirtualClock(asyncio.get_running_loop())
        used = [0.0]
        rate = CommitRate(50, lambda: used[0], lambda: False, clock)

        async def shard():
            for _ in range(10):
                await rate.ready(OLD)
                await anyio.sleep(0.01)  # the commit, whose units the service tells
                used[0] += 100

        began = clock.monotonic()
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(shard)
        return clock.monotonic() - began

    took = run_virtually(shards)
    assert 4 * 9 * 100 / 50 - 2 <= took <= 4 * 10 * 100 / 50 + 2, "the last ones are not waited for"


def test_what_was_not_used_is_not_saved_up():
    async def rested():

        clock = VirtualClock(asyncio.get_running_loop())
        used = [0.0]
        rate = CommitRate(10, lambda: used[0], lambda: False, clock)
        await rate.ready(OLD)
        await anyio.sleep(3600)
        began = clock.monotonic()
        for _ in range(3):
            await rate.ready(OLD)
            used[0] += 100
        return clock.monotonic() - began

    assert run_virtually(rested) == pytest.approx(19, abs=1)


def test_a_roll_out_does_not_wait_for_a_handler_that_catches_up():
    behind = {"lags": {"shard": 86_400.0}}
    late = WorkerReport("shop", "active", **behind)
    assert not ready([late], [], 3600, draining=False).ok
    assert ready(
        [WorkerReport("shop.tally", "active", catches_up=True, **behind)], [], 3600, draining=False
    ).ok


def test_a_paused_consumer_is_ready_though_nothing_reads_its_shards():
    left = WorkerReport("shop", "active", unread=2, unread_lag=86_400.0)
    assert not ready([left], [], 0, draining=False).ok
    assert ready([replace(left, paused=5)], [], 3600, draining=False).ok


def test_a_lag_that_is_not_known_yet_is_no_reason_not_to_be_ready():
    assert ready([WorkerReport("shop", "active", {"a": nan})], [], 3600, draining=False).ok

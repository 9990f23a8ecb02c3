"""The polling pool: each when it is due, the most overdue first, never more than its size at once."""

import asyncio
import itertools
from functools import partial

import anyio
import pytest

from streamkit.stream.polling import PollingPool
from streamkit.testing.loop import run_virtually


class Polled:
    """Notes when it is polled; each poll takes `busy` seconds and asks for the next after `pause`."""

    def __init__(self, pool, *, pause=1.0, busy=0.0, times=None):
        self.pool, self.pause, self.busy, self.times = pool, pause, busy, times
        self.at, self.running, self.most = [], 0, 0

    async def __call__(self):
        self.at.append(anyio.current_time())
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.sleep(self.busy)
        self.running -= 1
        return self.pause if self.times is None or len(self.at) < self.times else None


async def polled_for(pool, seconds):
    async with anyio.create_task_group() as group:
        group.start_soon(pool.run)
        await anyio.sleep(seconds)
        group.cancel_scope.cancel()


def test_a_shard_is_polled_when_it_is_due():
    async def main():
        pool = PollingPool(4)
        slow, quick = Polled(pool, pause=3.0), Polled(pool, pause=1.0)
        pool.add(slow, 2.0)
        pool.add(quick)
        await polled_for(pool, 8.5)
        assert slow.at == [2.0, 5.0, 8.0]
        assert quick.at == [float(n) for n in range(9)]

    run_virtually(main)


def test_what_is_added_later_and_due_sooner_goes_first():
    async def main():
        pool = PollingPool(1)
        late, soon = Polled(pool, times=1), Polled(pool, times=1)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            pool.add(late, 100.0)
            await anyio.sleep(5)
            pool.add(soon, 1.0)
            await anyio.sleep(100)
            group.cancel_scope.cancel()
        assert (soon.at, late.at) == ([6.0], [100.0])

    run_virtually(main)


def test_no_more_than_its_size_is_polled_at_once_and_the_most_overdue_goes_first():
    async def main():
        pool, order = PollingPool(2), []

        def one(name):
            async def poll():
                order.append((anyio.current_time(), name))
                await anyio.sleep(10)

            return poll

        for name, due in (("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)):
            pool.add(one(name), due)
        await polled_for(pool, 30)
        assert order == [(1.0, "a"), (2.0, "b"), (11.0, "c"), (12.0, "d")]

    run_virtually(main)


def test_a_shard_that_says_none_is_not_polled_again_until_somebody_adds_it():
    async def main():
        pool = PollingPool(2)
        once = Polled(pool, times=1)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            pool.add(once)
            await anyio.sleep(50)
            assert once.at == [0.0]
            once.times = 2
            pool.add(once)
            await anyio.sleep(50)
            group.cancel_scope.cancel()
        assert once.at == [0.0, 50.0]

    run_virtually(main)


def test_a_thousand_quiet_shards_have_no_task_each():
    async def main():
        pool = PollingPool(8)
        quiet = [Polled(pool, pause=60.0) for _ in range(1000)]
        for poll in quiet:
            pool.add(poll, 30.0)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            await anyio.sleep(1)
            assert len(anyio.get_running_tasks()) < 5
            await anyio.sleep(40)
            group.cancel_scope.cancel()
        assert all(poll.at == [30.0] for poll in quiet)

    run_virtually(main)


def test_what_is_due_behind_others_is_polled_in_a_task_that_has_ended_its_own():
    async def main():
        pool, tasks = PollingPool(4), set()

        async def poll():
            tasks.add(asyncio.current_task())  # kept, so that no two have one address
            await anyio.sleep(1)

        for _ in range(100):
            pool.add(partial(poll))
        await polled_for(pool, 25.5)
        assert len(tasks) == 4

    run_virtually(main)


def test_a_poll_that_waits_for_nothing_leaves_the_others_their_turn():
    async def main():
        pool, polls = PollingPool(2), []

        async def hot():
            polls.append(1)
            assert len(polls) < 1000, "nothing else has run"
            return 0.0

        pool.add(hot)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert polls

    run_virtually(main)


def test_many_quiet_shards_are_polled_in_groups_and_hardly_later():
    async def main():
        pool = PollingPool(32)
        shards = [Polled(pool, pause=5.0) for _ in range(1000)]
        for number, shard in enumerate(shards):
            pool.add(shard, number / 200)
        await polled_for(pool, 31.0)
        assert all(len(shard.at) in (6, 7) for shard in shards)
        pauses = {b - a for shard in shards for a, b in itertools.pairwise(shard.at[1:])}
        assert max(pauses) <= 5.0 * (1 + 2**-6)
        late = {at for shard in shards for at in shard.at if at > 6}
        assert len(late) < 2 * 31 * 2**7 / 5

    run_virtually(main)


def test_what_a_poll_raises_ends_the_pool():
    async def main():
        async def broken():
            raise ValueError("the table is gone")

        pool = PollingPool(1)
        pool.add(broken)
        with pytest.raises(ExceptionGroup) as raised:
            await pool.run()
        assert raised.group_contains(ValueError)

    run_virtually(main)


def test_what_is_hastened_is_polled_at_once_and_not_twice():
    async def main():
        pool = PollingPool(4)
        poll = Polled(pool, pause=10.0, busy=1.0)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            pool.add(poll, 5.0)
            await anyio.sleep(2)
            pool.hasten(poll)
            await anyio.sleep(0.5)
            pool.hasten(poll)  # it is being polled
            await anyio.sleep(10)
            group.cancel_scope.cancel()
        assert poll.at == [2.0]

    run_virtually(main)


def test_a_paused_pool_polls_nothing_and_then_what_is_due():
    async def main():
        pool = PollingPool(4)
        poll = Polled(pool, pause=3.0)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            pool.add(poll)
            await anyio.sleep(4)
            pool.pause(paused=True)
            await anyio.sleep(16)
            pool.pause(paused=False)
            await anyio.sleep(4)
            group.cancel_scope.cancel()
        assert poll.at == [0.0, 3.0, 20.0, 23.0]

    run_virtually(main)


def test_a_poll_that_is_under_way_when_the_pool_is_paused_is_the_last_one():
    async def main():
        pool = PollingPool(4)
        hot = Polled(pool, pause=0.0, busy=1.0)
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run)
            pool.add(hot)
            await anyio.sleep(2.5)
            pool.pause(paused=True)
            await anyio.sleep(7)
            assert hot.at == [0.0, 1.0, 2.0]
            pool.pause(paused=False)
            await anyio.sleep(0.5)
            group.cancel_scope.cancel()
        assert hot.at == [0.0, 1.0, 2.0, 9.5]

    run_virtually(main)

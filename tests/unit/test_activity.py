"""A shard's activity: it rests when the last thing has ended, and ends as a whole."""

import anyio
import anyio.lowlevel
import pytest

from streamkit.errors import LeaseLost
from streamkit.progress.activity import Activity, each_of, task_group
from streamkit.progress.pacing import ByteBudget
from streamkit.testing.loop import run_virtually


class Shard:
    """Knows lost leases, and nothing else; counts how often its activity rested."""

    def __init__(self, group):
        self.errors, self.rests = [], 0
        self.activity = Activity(group, self.failed, self.rested)

    def failed(self, error):
        self.errors.append(error)
        return isinstance(error, LeaseLost)

    def rested(self):
        self.rests += 1


def acted(scenario):
    async def main():
        async with anyio.create_task_group() as group:
            await scenario(Shard(group))

    run_virtually(main)


def test_it_rests_when_the_last_of_several_has_ended():
    async def scenario(shard):
        for seconds in (1, 3, 2):
            shard.activity.start(anyio.sleep, seconds)
        assert shard.activity.busy
        await anyio.sleep(2.5)
        assert shard.rests == 0
        await anyio.sleep(1)
        assert shard.rests == 1
        assert not shard.activity.busy

    acted(scenario)


def test_work_in_the_callers_task_counts_and_its_result_comes_back():
    async def scenario(shard):
        async def work():
            assert shard.activity.busy
            return 5

        assert await shard.activity.within(work) == 5
        assert shard.rests == 1

    acted(scenario)


def test_a_cancelled_activity_ends_everything_rests_no_more_and_begins_nothing():
    async def scenario(shard):
        ended = []

        async def work():
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(anyio.current_time())

        shard.activity.start(work)
        shard.activity.start(work)
        await anyio.sleep(5)
        shard.activity.cancel()
        shard.activity.start(work)
        assert await shard.activity.within(work) is None
        await anyio.sleep(5)
        assert ended == [5.0, 5.0]
        assert shard.rests == 0

    acted(scenario)


def test_what_was_to_begin_when_the_shard_is_dropped_does_nothing_at_all():
    """Else it would run up to its first await, as the owner that it is not any more."""

    async def scenario(shard):
        did = []

        async def work():
            did.append("something")

        shard.activity.start(work)
        shard.activity.cancel()
        await anyio.sleep(1)
        assert did == []

    acted(scenario)


def test_a_cancelled_shard_does_not_cancel_the_pool_that_polls_it():
    async def scenario(shard):
        async def cancel_soon():
            await anyio.sleep(1)
            shard.activity.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_soon)
            assert await shard.activity.within(anyio.sleep_forever) is None
            await anyio.sleep(1)
        assert anyio.current_time() == 2.0

    acted(scenario)


def test_a_lost_lease_is_told_and_goes_no_further():
    async def scenario(shard):
        async def lose():
            raise LeaseLost("gone")

        shard.activity.start(lose)
        assert await shard.activity.within(lose) is None
        await anyio.sleep(1)
        assert [str(error) for error in shard.errors] == ["gone", "gone"]

    acted(scenario)


def test_what_the_shard_does_not_know_goes_on_to_the_worker():
    async def scenario(shard):
        async def fail():
            raise KeyError("bug")

        shard.activity.start(fail)

    with pytest.raises(ExceptionGroup) as raised:
        acted(scenario)
    assert raised.group_contains(KeyError)


def test_a_commit_that_ends_in_the_moment_in_which_its_shard_is_dropped_harms_nobody():
    """Its reply is there already, so that the cancellation comes too late for it."""

    async def scenario(shard):
        budget, replied = ByteBudget(100), anyio.Event()

        async def commit():
            await replied.wait()
            budget.release("shard", 10)

        budget.take("shard", 10)
        shard.activity.start(commit)
        await anyio.sleep(1)
        replied.set()
        budget.forget("shard")
        shard.activity.cancel()
        await anyio.sleep(1)
        assert shard.errors == []

    acted(scenario)


# -- groups of tasks -------------------------------------------------------------------------------


async def failing(error, cause=None):
    raise error from cause


async def all_fail(errors):
    async with task_group() as group:
        for error in errors:
            group.start_soon(failing, error, ValueError("why"))


@pytest.mark.parametrize("lost_first", [True, False])
async def test_a_group_that_fails_raises_one_error_and_a_lost_lease_only_if_there_is_no_worse(
    lost_first,
):
    errors = [LeaseLost("another worker has it"), KeyError("mistake")]
    with pytest.raises(KeyError) as raised:
        await all_fail(errors if lost_first else errors[::-1])
    assert isinstance(raised.value.__cause__, ValueError), "what has caused it is still known"


async def test_an_error_of_the_block_itself_ends_the_tasks_of_its_group_and_is_raised():
    ended = []

    async def waits():
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    async def lost():
        async with task_group() as group:
            group.start_soon(waits)
            await anyio.lowlevel.checkpoint()
            raise LeaseLost("another worker has it")

    with pytest.raises(LeaseLost):
        await lost()
    assert ended == [True]


@pytest.mark.parametrize(("most", "seconds"), [(1, 7.0), (3, 3.0), (10, 1.0)])
def test_each_thing_is_worked_on_once_and_no_more_of_them_at_a_time_than_may_be(most, seconds):
    did, running = [], [0]

    async def work(one):
        running[0] += 1
        assert running[0] <= most
        await anyio.sleep(1)
        running[0] -= 1
        did.append(one)

    async def main():
        await each_of(most, range(7), work)
        return anyio.current_time()

    assert run_virtually(main) == seconds
    assert sorted(did) == [*range(7)]

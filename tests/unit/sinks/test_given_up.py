"""A delivery whose call nobody waits for any more is not made again beside that call."""

from datetime import UTC, datetime

import anyio
import pytest

from streamkit.sinks.batching import UNCLAIMED_MAX, Batcher
from streamkit.sinks.sink import Delivery, Limits
from streamkit.testing.loop import VirtualClock, run_virtually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Slow:
    """A receiver that needs five seconds, and fails as often as it is told to."""

    def __init__(self, failures=0):
        self.failures, self.got = failures, []

    async def deliver(self, deliveries):
        await anyio.sleep(5)
        if self.failures:
            self.failures -= 1
            return [OSError("down")] * len(deliveries)
        self.got += deliveries
        return [None] * len(deliveries)


def one(number=1, body=None, **fields):
    values = {"key": f"k{number}", "id": "i", "group": f"g{number}", "sequence": "0" * 40}
    return Delivery(**values | {"body": body or {"a": 1}, "created_at": NOON} | fields)


def played(script, **settings):
    """Run a script with a slow receiver; return what it got and what the script returns."""

    async def run():
        slow = Slow(**settings)
        async with anyio.create_task_group() as group:
            limits = Limits(items=1, calls=4)
            batcher = Batcher("slow", limits, slow, group, VirtualClock())
            returned = await script(batcher)
        return slow.got, returned

    return run_virtually(run)


async def given_up(batcher, delivery, seconds=3):
    with anyio.move_on_after(seconds) as scope:
        await batcher.deliver(delivery)
    assert scope.cancelled_caught


@pytest.mark.parametrize("pause", [0, 1, 30])
def test_who_asks_again_during_the_call_or_after_it_gets_its_result(pause):
    async def script(batcher):
        await given_up(batcher, one())
        await anyio.sleep(pause)
        await batcher.deliver(one(traceparent="another run"))
        return anyio.current_time()

    got, _ = played(script)
    assert got == [one()]


@pytest.mark.parametrize("pause", [0, 30])
def test_a_result_is_given_once_so_that_a_later_delivery_is_made(pause):
    async def script(batcher):
        await given_up(batcher, one())
        await anyio.sleep(pause)
        for _ in range(2):
            await batcher.deliver(one())

    assert len(played(script)[0]) == 2


@pytest.mark.parametrize("pause", [0, 30])
def test_a_call_that_failed_is_made_again(pause):
    async def script(batcher):
        await given_up(batcher, one())
        await anyio.sleep(pause)
        errors = []
        while True:
            try:
                await batcher.deliver(one())
            except OSError as error:
                errors.append(error)
            else:
                return errors

    got, errors = played(script, failures=1)
    assert len(got) == 1
    assert len(errors) == (pause == 0)


@pytest.mark.parametrize("pause", [0, 30])
@pytest.mark.parametrize("other", [{"body": {"a": 2}}, {"id": "j"}, {"attributes": {"a": "b"}}])
def test_what_says_something_else_than_the_call_is_delivered_too(pause, other):
    async def script(batcher):
        await given_up(batcher, one())
        await anyio.sleep(pause)
        await batcher.deliver(one(**other))

    assert played(script)[0] == [one(), one(**other)]


def test_only_the_latest_results_are_kept():
    async def script(batcher):
        for number in range(UNCLAIMED_MAX + 4):
            await given_up(batcher, one(number))
        await anyio.sleep(10)
        await batcher.deliver(one(0))
        await batcher.deliver(one(UNCLAIMED_MAX + 3))

    keys = [delivery.key for delivery in played(script)[0]]
    assert [keys.count(key) for key in ("k0", f"k{UNCLAIMED_MAX + 3}")] == [2, 1]

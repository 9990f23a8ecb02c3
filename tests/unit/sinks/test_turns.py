"""A delivery waits for its turn longer than its call may take, and not for ever."""

from datetime import UTC, datetime

import anyio
import pytest

from streamkit.sinks.batching import Batcher
from streamkit.sinks.sink import Delivery, Limits
from streamkit.testing.loop import VirtualClock, run_virtually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALL_SECONDS = 4.0


class Slow:
    async def deliver(self, deliveries):
        await anyio.sleep(CALL_SECONDS)
        return [None] * len(deliveries)


async def delivered(count):
    """Give a sink that makes one call at a time so many deliveries; return the errors of each."""
    errors = {}
    async with anyio.create_task_group() as group:
        limits = Limits(items=1, size=1000, calls=1, seconds=60.0)
        batcher = Batcher("slow", limits, Slow(), group, VirtualClock())

        async def deliver(number):
            try:
                one = Delivery(f"k{number}", "i", f"g{number}", "0" * 40, {}, NOON, {}, "")
                await batcher.deliver(one, seconds=1.3 * CALL_SECONDS)
            except TimeoutError as error:
                errors[number] = error

        for number in range(count):
            group.start_soon(deliver, number)
    return errors


@pytest.mark.parametrize(("count", "late"), [(10, 0), (40, 24)])
def test_those_in_front_are_no_reason_to_fail_until_twelve_calls_could_have_been_made(count, late):
    assert len(run_virtually(delivered, count)) == late

"""A delivery waits for its turn longer than its call may take, and not for ever."""

from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from streamkit.sinks.batching import Batcher
from streamkit.sinks.outlets import SLOW_SECONDS, Outlets
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


def test_a_sink_is_slow_while_a_delivery_has_waited_for_more_than_three_seconds():
    async def looked():
        async with anyio.create_task_group() as group:
            batcher = Batcher("slow", Limits(), Slow(), group, VirtualClock())
            outlets = Outlets({"slow": batcher})
            group.start_soon(batcher.deliver, Delivery("k", "i", "g", "0" * 40, {}, NOON))
            seen = []
            for _ in range(3):
                await anyio.sleep(0.6 * SLOW_SECONDS)
                seen.append(outlets.is_slow("slow"))
        return seen

    assert SLOW_SECONDS < CALL_SECONDS < 1.8 * SLOW_SECONDS
    assert run_virtually(looked) == [False, True, False]


class Noting:
    """A receiver that notes the ids of each call."""

    def __init__(self):
        self.calls = []

    async def deliver(self, deliveries):
        self.calls.append("".join(one.id for one in deliveries))
        await anyio.sleep(CALL_SECONDS)
        return [None] * len(deliveries)


async def called(*waiting, **limits):
    """Deliver these bodies soon after each other, by id and group; return what each call had."""
    noting = Noting()
    async with anyio.create_task_group() as group:
        batcher = Batcher("noting", Limits(calls=1, **limits), noting, group, VirtualClock())
        for identity, group_of, body in waiting:
            one = Delivery(identity, identity, group_of, "0" * 40, body, NOON)
            group.start_soon(batcher.deliver, one)
            await anyio.sleep(0.1)
    return noting.calls


def test_a_call_has_no_more_bytes_than_its_limit_and_one_delivery_at_least():
    waiting = [
        (name, name, name * size) for name, size in zip("abcdef", (9, 4, 4, 4, 1, 1), strict=True)
    ]
    assert run_virtually(partial(called, *waiting, items=9, size=8)) == ["a", "bc", "def"]


def test_what_does_not_fit_is_not_overtaken_by_what_is_smaller():
    waiting = [("a", "f", "x"), ("b", "g", "x" * 5), ("c", "h", "x" * 4), ("d", "h", "x")]
    assert run_virtually(partial(called, *waiting, items=9, size=8)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("answers", [[], [None] * 3])
def test_a_sink_that_answers_for_others_fails_its_deliveries_and_ends_nothing(answers):
    class Wrong:
        async def deliver(self, _deliveries):
            return answers

    async def deliver():
        async with anyio.create_task_group() as group:
            batcher = Batcher("wrong", Limits(), Wrong(), group, VirtualClock())
            for _ in range(2):
                with pytest.raises(TypeError, match=f"wrong answers {len(answers)} of 1"):
                    await batcher.deliver(Delivery("k", "i", "g", "0" * 40, {}, NOON))

    run_virtually(deliver)


def test_what_waits_for_its_group_keeps_its_place_in_front_of_what_came_later():
    waiting = [("a", "g", "x"), ("b", "g", "x"), ("c", "g", "x"), ("d", "h", "x")]
    assert run_virtually(partial(called, *waiting, items=2, size=99)) == ["a", "bd", "c"]


@pytest.mark.parametrize(("count", "late"), [(10, 0), (40, 24)])
def test_those_in_front_are_no_reason_to_fail_until_twelve_calls_could_have_been_made(count, late):
    assert len(run_virtually(delivered, count)) == late

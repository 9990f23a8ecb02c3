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


def test_a_delivery_under_way_has_waited_too_so_that_no_more_are_added_to_a_slow_receiver():
    async def waited():
        async with anyio.create_task_group() as group:
            batcher = Batcher("slow", Limits(), Slow(), group, VirtualClock())
            one = Delivery("k", "i", "g", "0" * 40, {}, NOON)
            group.start_soon(batcher.deliver, one)
            await anyio.sleep(CALL_SECONDS - 1)
            during = batcher.waited
            await anyio.sleep(2)
            return during, batcher.waited

    assert run_virtually(waited) == (CALL_SECONDS - 1, 0.0)


class Counting:
    """A receiver that notes what it gets in each call, and takes its time.

    It answers for so many deliveries `more` than it was given.
    """

    def __init__(self, more=0):
        self.got, self.more = [], more

    async def deliver(self, deliveries):
        self.got.append([delivery.key for delivery in deliveries])
        await anyio.sleep(CALL_SECONDS)
        return [None] * (len(deliveries) + self.more)


def noted(sender, limits, *keys, body=None):
    """Deliver one after the other, without waiting; return the errors.

    A key begins with a group. `body` is that of all, or of some by their keys.
    """
    errors = []

    async def run():
        async with anyio.create_task_group() as group:
            batcher = Batcher("noting", limits, sender, group, VirtualClock())

            async def deliver(key):
                text = body.get(key, "x") if isinstance(body, dict) else body or "x"
                one = Delivery(key, "i", key[0], "0" * 40, text, NOON)
                try:
                    await batcher.deliver(one)
                except TypeError as error:
                    errors.append(str(error))

            for key in keys:
                group.start_soon(deliver, key)
                await anyio.sleep(0.1)

    run_virtually(run)
    return errors


@pytest.mark.parametrize("keys", [["a1", "a2", "a3", "b1", "a4"], ["a1", "a2", "a3", "a4", "b1"]])
def test_deliveries_that_wait_for_one_of_their_group_keep_their_order(keys):
    sender = Counting()
    assert noted(sender, Limits(items=2, calls=2), *keys) == []
    assert sender.got == [["a1"], ["b1"], ["a2"], ["a3"], ["a4"]]


@pytest.mark.parametrize(
    ("size", "calls"),
    [
        (20, [["a1"], ["b1", "c1"], ["d1"]]),
        (19, [["a1"], ["b1"], ["c1"], ["d1"]]),
        (3, [["a1"], ["b1"], ["c1"], ["d1"]]),
    ],
)
def test_a_call_is_filled_up_to_the_byte_and_what_alone_is_too_large_goes_alone(size, calls):
    sender = Counting()
    noted(sender, Limits(items=9, size=size, calls=1), "a1", "b1", "c1", "d1", body="x" * 10)
    assert sender.got == calls


def test_nothing_smaller_overtakes_what_was_too_large_for_the_rest_of_a_call():
    sender = Counting()
    large = {"a1": "x" * 15}
    noted(sender, Limits(items=9, size=20, calls=1), "z1", "b1", "c1", "d1", "a1", "a2", body=large)
    noted(sender, Limits(items=9, size=15, calls=1), "z1", "b1", "a1", "a2", body=large)
    assert sender.got[1:3] == [["b1", "c1", "d1", "a1"], ["a2"]]
    assert sender.got[4:] == [["b1"], ["a1"], ["a2"]]


def test_what_does_not_fit_into_a_call_stays_first_and_nothing_of_its_item_overtakes_it():
    sender = Counting()
    noted(sender, Limits(items=2, calls=1), "a1", "b1", "c1", "b2", "d1", "b3")
    assert sender.got == [["a1"], ["b1", "c1"], ["b2", "d1"], ["b3"]]


@pytest.mark.parametrize("more", [-1, 1])
def test_a_sink_that_answers_for_other_deliveries_than_it_was_given_has_failed_for_all(more):
    errors = noted(Counting(more), Limits(), "a1")
    assert errors == [f"noting answers {1 + more} of 1 deliveries"]

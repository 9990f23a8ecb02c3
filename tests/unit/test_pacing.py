"""Polling slows down while nothing happens, and pages in memory are bounded over all shards."""

import random
from itertools import pairwise

import anyio
import anyio.lowlevel

from streamkit.progress.pacing import ByteBudget, CheckpointTimer, Pace, Pacing, Turn
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


def test_pauses_grow_anew_behind_a_full_page_of_changes():
    subject = pacing(floor=0.2, ceiling=1.0)
    for _ in range(8):
        subject.pause(0, 0)
    assert subject.pause(500, 500) == 0.0
    assert subject.pause(0, 0) < 0.5


def test_a_shard_without_a_least_pause_slows_down_too_when_it_is_quiet():
    subject = pacing(floor=0.0, ceiling=1.0)
    assert subject.pause(1, 1) == 0.0
    pauses = [subject.pause(0, 0) for _ in range(12)]
    assert pauses[0] > 0
    assert pauses[-1] == 1.0


def test_a_table_that_throttles_is_left_alone_for_longer_than_an_item_in_conflict():
    slow, busy = pacing(), pacing()
    throttled = [slow.contended(throttled=True) for _ in range(100)]
    assert max(throttled) > 10
    assert max(busy.contended(throttled=False) for _ in range(100)) <= 2.0


def test_conflicts_in_a_row_wait_longer_until_a_commit_goes_through():
    subject = pacing()
    longest = [max(subject.contended(throttled=False) for _ in range(1)) for _ in range(12)]
    assert max(longest) <= 2.0
    subject.committed()
    assert subject.contended(throttled=False) <= 0.04


def test_a_shard_has_room_while_it_holds_nothing_or_all_together_hold_little():
    budget = ByteBudget(limit=100)
    budget.take("a", 80)
    assert budget.has_room("a")
    budget.take("b", 40)
    assert not budget.has_room("a")
    assert budget.has_room("c")  # a shard that holds nothing may always read one page
    budget.release("b", 40)
    assert budget.has_room("a")
    budget.take("b", 40)
    budget.forget("a")
    assert budget.has_room("b")


def test_pauses_after_a_thousand_refusals_are_as_long_as_after_ten():
    subject = Pacing(Pace(), random.Random(1))
    assert all(0 <= subject.contended(throttled=True) <= 20 for _ in range(3000))


# -- positions that are written alone --------------------------------------------------------------


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self):
        return self.now


def test_a_position_is_written_within_a_minute_of_changes_and_an_hour_of_quiet():
    clock = Clock()
    timer = CheckpointTimer(pacing(checkpoint=60.0, quiet=3600.0), clock)
    clock.now = 50.0
    assert timer.due(moved=True) == 3550.0
    timer.note_traffic()
    assert timer.due(moved=True) == 10.0
    timer.note_written(traffic=True)  # changes behind it are not committed yet
    assert timer.due(moved=True) == 60.0
    timer.note_written(traffic=False)
    assert timer.due(moved=True) == 3600.0


def test_a_position_that_the_table_has_is_never_due_and_one_that_is_wanted_is_due_at_once():
    clock = Clock()
    timer = CheckpointTimer(pacing(checkpoint=60.0, quiet=3600.0), clock)
    clock.now = 1e6
    timer.note_traffic()
    assert timer.due(moved=False) == 3600.0
    timer.note_written(traffic=False)
    timer.soon()
    assert timer.due(moved=True) <= 0


# -- the event loop --------------------------------------------------------------------------------


def test_a_loop_over_an_apps_code_gives_way_when_it_has_run_for_a_while_and_not_before():
    clock, others = Clock(), []

    async def main():
        async def other():
            while True:
                others.append(clock.now)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await anyio.lowlevel.checkpoint()
            turn = Turn(clock)
            others.clear()
            for number in range(1, 11):
                clock.now = 0.01 * number
                await turn.give_way()
            group.cancel_scope.cancel()

    run_virtually(main)
    assert {round(now, 2) for now in others} == {0.05, 0.1}


def test_of_several_loops_that_gave_way_together_each_leaves_the_others_their_turn():
    """Else they would run one behind the other, for as long as all of them together take."""
    clock, seen = Clock(), set()

    async def main():
        turn = Turn(clock)

        async def other():
            while True:
                seen.add(round(clock.now, 2))
                await anyio.lowlevel.checkpoint()

        async def slow():
            await turn.give_way()
            clock.now += 1.0

        async with anyio.create_task_group() as group:
            clock.now = 1.0
            group.start_soon(other)
            async with anyio.create_task_group() as loops:
                for _ in range(4):
                    loops.start_soon(slow)
            group.cancel_scope.cancel()

    run_virtually(main)
    assert max(later - now for now, later in pairwise(sorted(seen))) <= 2.0, "one before, one after"

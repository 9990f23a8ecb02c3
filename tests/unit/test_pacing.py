"""Polling slows down while nothing happens, and pages in memory are bounded over all shards."""

import random

from streamkit.progress.pacing import ByteBudget, Pace, Pacing


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

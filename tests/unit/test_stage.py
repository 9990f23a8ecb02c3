"""The commit stage of a shard: what a commit finishes, whichever plan has won."""

from collections import deque
from types import SimpleNamespace
from typing import Any

from streamkit.core.outcome import PendingChange
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.progress.clock import SystemClock
from streamkit.progress.commit import Batch
from streamkit.progress.control import START, Cursor
from streamkit.progress.pacing import ByteBudget

SHARD = "shard"


def make_stage(budget: ByteBudget) -> CommitStage:
    """Return a stage for which nothing was dispatched yet."""
    planner: Any = SimpleNamespace(queues={}, shard=SHARD, clock=SystemClock())
    committer: Any = SimpleNamespace(cursor=Cursor(SHARD), tables={})
    nothing: Any = None
    return CommitStage(
        nothing, planner, committer, QueuedKeys(nothing), nothing, budget, lambda: None
    )


def position(number: int) -> str:
    return f"{number:040d}"


def test_a_plan_that_wins_late_finishes_what_is_up_to_its_position_and_nothing_behind_it():
    stage = make_stage(ByteBudget())
    # It was planned with change 1, which was dropped since, as it had no effects when it ran again.
    pending = deque(PendingChange(position(number), 0.0) for number in (2, 3, 4))
    won = Batch(Cursor(SHARD, position=position(3)), changes=3)
    assert [change.position for change in stage.drop(won, pending)] == [position(2), position(3)]
    assert [change.position for change in pending] == [position(4)]
    assert stage.start.position == position(3)


def test_a_commit_at_the_start_of_a_shard_finishes_nothing():
    stage = make_stage(ByteBudget())
    pending = deque([PendingChange(position(1), 0.0)])
    assert stage.drop(Batch(Cursor(SHARD, position=START), changes=1), pending) == []
    assert len(pending) == 1


def test_a_page_makes_room_for_others_once_its_last_change_is_committed():
    budget = ByteBudget(limit=10)
    stage = make_stage(budget)
    budget.take(SHARD, 10)
    budget.take("other", 1)
    pending = deque(
        [PendingChange(position(1), 0.0), PendingChange(position(2), 0.0, page_bytes=10)]
    )
    stage.drop(Batch(Cursor(SHARD, position=position(1))), pending)
    assert not budget.has_room("other")
    stage.drop(Batch(Cursor(SHARD, position=position(2))), pending)
    assert budget.has_room("other")

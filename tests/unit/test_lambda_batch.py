"""A batch under its marks: which are read, what an invalid commit means, and which queues stay."""

from collections import deque
from types import SimpleNamespace

import pytest

from streamkit.aws_lambda.batch import BatchRun
from streamkit.changes import ItemKey
from streamkit.core.high_water_mark import HighWaterMark
from streamkit.core.loop import Overtaken
from streamkit.core.parking import queue_name
from streamkit.progress.verdicts import Invalid
from streamkit.testing.loop import run_virtually

A, B = ItemKey("A"), ItemKey("B")


def record(key, position):
    return SimpleNamespace(item_key=key, position=position)


class Marks:
    """Marks whose items are done up to a position; what is read of them is noted."""

    def __init__(self, **done):
        self.done, self.known, self.asked = done, {}, []

    async def read(self, keys):
        self.asked.append(sorted(key.pk for key in keys))
        self.known |= {key: HighWaterMark(self.done.get(key.pk, "")) for key in keys}

    def is_done(self, key, position):
        return position <= self.known[key].position

    def until(self):
        return None


def run_of(marks, *todo):
    run = BatchRun.__new__(BatchRun)
    run.marks, run.todo, run.passed, run._read = marks, deque(todo), [], 0
    run.queued_keys = SimpleNamespace(queues={})
    return run


def test_the_mark_of_an_item_is_read_once_however_often_the_item_comes():
    marks = Marks(A="3", B="1")
    run = run_of(
        marks, record(A, "1"), record(A, "2"), record(B, "1"), record(A, "3"), record(A, "4")
    )
    assert run_virtually(lambda: run.look(2))
    assert marks.asked == [["A"], ["B"], []]
    assert [one.position for one in run.looked_at] == ["4"]
    assert [one.position for one in run.passed] == ["1", "2"], "a mark at a change proves it done"
    assert run_virtually(lambda: run.look(2)), "what was looked at is there still"
    assert len(marks.asked) == 3


@pytest.mark.parametrize("moved", [True, False])
def test_a_commit_that_is_invalid_after_its_marks_have_moved_is_overtaken(moved):
    """DynamoDB stops at the first invalid action, and says nothing of the conditions."""
    marks, invalid = Marks(), Invalid((), "ItemCollectionSizeLimitExceeded")
    run = run_of(marks)
    marks.known[A] = HighWaterMark("1")

    async def send(actions, rng):
        return invalid

    async def look_again(pending):
        marks.known[A] = HighWaterMark("2" if moved else "1")
        return ["what is left"]

    run.send, run.rng, run._look_again = send, None, look_again
    run._marks_after = lambda plan, pending: {}
    verdict = run_virtually(lambda: run.commit(SimpleNamespace(actions=[]), []))
    assert verdict == (Overtaken(["what is left"]) if moved else invalid)


def test_queues_of_items_that_another_invocation_has_moved_are_read_again():
    marks, forgotten = Marks(A="1"), []
    marks.known[A] = HighWaterMark("0", queues=frozenset({"q"}))
    run = run_of(marks)
    run.queued_keys.forget = forgotten.append
    run.planner = SimpleNamespace(shard="s")
    run.dispatcher = SimpleNamespace(apart=lambda pending, shard: list(pending))
    pending = [
        SimpleNamespace(key=A, position=p, record=record(A, p), outcomes=[]) for p in ("1", "2")
    ]
    left = run_virtually(lambda: run._look_again(pending))
    assert forgotten == ["q"]
    assert [change.position for change in left] == ["2"]


def test_a_mark_keeps_the_queues_that_there_are_also_of_handlers_of_another_release():
    own = queue_name("notify", A)
    run = run_of(Marks())
    run.dispatcher = SimpleNamespace(handlers=[SimpleNamespace(name="notify")])
    plan = SimpleNamespace(queued={})
    mark = HighWaterMark("1", queues=frozenset({"of another", "healed"}))
    assert run._queues(A, mark, plan) == frozenset()
    run.queued_keys.queues = {"of another": None, own: None, "of another item": None}
    assert run._queues(A, mark, plan) == {"of another", own}
    run.queued_keys.queues, plan.queued = {}, {own: None}
    assert run._queues(A, HighWaterMark("1"), plan) == {own}

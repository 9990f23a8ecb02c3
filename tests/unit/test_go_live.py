"""How one shard counts an aggregate that is being built: with a ledger, live, or not at all."""

from types import SimpleNamespace

import pytest

from streamkit.model.builds import GUARD_SECONDS, TURN_SECONDS, Build, build_mark
from streamkit.progress.control import Cursor
from streamkit.testing.loop import run_virtually
from streamkit.worker import go_live as module
from streamkit.worker.go_live import GoLive

SCANNED = 1_000
MARKS = frozenset({build_mark("Sales", 2), build_mark("Visits", 1)})


class Counted:
    """A handler of an aggregate, and the doubts that a shard tells of."""

    name = "Sales"

    def __init__(self, build, live=()):
        self.doubts = 0
        cursor = Cursor("s", live=frozenset(live))
        builds = {} if build is None else {"Sales": build}
        self.shard = GoLive(lambda: builds, lambda: cursor, None, self.doubt)

    def in_build(self, build):
        return ("ledger", build.number)

    def doubt(self):
        self.doubts += 1

    def run(self, created_at):
        return self.shard.as_run(self, SimpleNamespace(created_at=created_at, position="1"))


def test_a_change_that_is_passed_over_while_groups_are_emptied_makes_the_shard_look_again():
    handler = Counted(Build(2, "emptying"))
    assert handler.run(SCANNED) is None
    assert handler.doubts == 1


@pytest.mark.parametrize(
    ("build", "runs"),
    [
        (None, None),
        (Build(2, "live", scanned=SCANNED), None),
        (Build(2, "scanning"), ("ledger", 2)),
        (Build(2, "counting", scanned=SCANNED), ("ledger", 2)),
    ],
)
def test_a_change_counts_as_it_is_or_with_the_ledger_of_the_build(build, runs):
    handler = Counted(build)
    assert handler.run(SCANNED) == (runs or handler)
    assert handler.doubts == 0


@pytest.mark.parametrize(("after", "late"), [(GUARD_SECONDS, True), (GUARD_SECONDS + 1, False)])
def test_a_live_shard_tells_of_a_change_that_the_scan_may_have_counted_once(
    after, late, monkeypatch
):
    told = []

    async def mark_rebuild(store, names):
        told.append(set(names))

    monkeypatch.setattr(module, "mark_rebuild", mark_rebuild)
    handler = Counted(Build(2, "counting", scanned=SCANNED), live=MARKS)
    assert handler.run(SCANNED + after) is handler
    for _ in range(2):
        run_virtually(handler.shard.settle)
    assert told == [{"Sales"}] * late


def test_a_shard_goes_live_once_all_it_has_read_is_younger_and_keeps_the_marks_of_other_builds():
    handler = Counted(Build(3, "counting", scanned=SCANNED), live=MARKS)
    assert handler.run(SCANNED) == ("ledger", 3), "the mark of build 2 says nothing about build 3"
    assert handler.shard.due(SCANNED + TURN_SECONDS) == frozenset()
    assert not handler.shard.turns(SCANNED + TURN_SECONDS)
    due = handler.shard.due(SCANNED + TURN_SECONDS + 1)
    assert handler.shard.turns(SCANNED + TURN_SECONDS + 1)
    assert due == {build_mark("Sales", 3)}
    assert handler.shard.marks_with(due) == {build_mark("Sales", 3), build_mark("Visits", 1)}

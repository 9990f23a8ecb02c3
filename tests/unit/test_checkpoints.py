"""Checkpoints: a cursor is written when its own commit wins, and not when an earlier one does."""

import random
from dataclasses import replace
from types import SimpleNamespace

from streamkit.core.checkpoints import Checkpoints
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.progress.commit import Applied, Batch
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.testing.loop import run_virtually
from tests.pending import CURSOR, SPACE, Clock, add, done, pending_change


class Late:
    """A committer whose first commit loses against a plan that was sent before it."""

    def __init__(self):
        self.cursor, self.tables = CURSOR, {}
        self.early = Batch(replace(CURSOR, position="1".zfill(40)), changes=1)
        self.tried: list[Cursor] = []

    async def commit(self, batch):
        self.tried.append(batch.cursor)
        won = self.early if len(self.tried) == 1 else batch
        self.cursor = won.cursor
        return Applied(won)


def make_stage(wrote=lambda: None):
    planner = Planner(SPACE, Clock(), "shard-1")
    runs = SimpleNamespace(have_read=False, run_chains=None)
    dispatcher = SimpleNamespace(runs=runs, committed=lambda change: None)
    pacing, held = Pacing(Pace(), random.Random(0)), QueuedKeys(None, planner.queues)
    held.store = SimpleNamespace(space=SPACE)
    return CommitStage(dispatcher, planner, Late(), held, pacing, ByteBudget(), wrote)


def test_a_checkpoint_that_an_earlier_plan_beats_is_written_again_behind_it():
    async def run():
        stage = make_stage()
        stage.pending.append(pending_change(1, done(1, add("x"))))
        await Checkpoints(stage).loss(500)
        assert [cursor.position for cursor in stage.committer.tried] == [
            "0".zfill(40),
            "1".zfill(40),
        ]
        assert stage.cursor.lost > 0
        assert not stage.pending

    run_virtually(run)


def test_a_shard_whose_end_an_earlier_plan_beats_is_finished_behind_it():
    async def run():
        stage = make_stage()
        stage.pending.append(pending_change(1, done(1, add("x"))))
        heirs = await Checkpoints(stage).end([Cursor("child", parent="shard-1")])
        assert (stage.cursor.finished, stage.cursor.position) == (True, "1".zfill(40))
        assert [heir.name for heir in heirs] == ["child"]

    run_virtually(run)


def test_what_is_pending_behind_a_commit_is_traffic_and_its_position_is_due_in_a_minute():
    async def run():
        stage = make_stage()
        stage.pending.append(pending_change(2, done(2)))
        stage.adopted(Batch(CURSOR))
        stage.pending.clear()
        stage._position = "2".zfill(40)
        assert stage.persist_due == Pace().checkpoint

    run_virtually(run)


def test_a_commit_of_items_beside_control_items_is_a_write_of_the_application():
    wrote: list[bool] = []
    stage = make_stage(lambda: wrote.append(True))
    queue = SPACE.update("lane", "queue")
    (item,) = done(1, add("x")).actions.values()
    stage.adopted(Batch(CURSOR, actions=[queue]))
    assert wrote == []
    stage.adopted(Batch(CURSOR, actions=[queue, item]))
    assert wrote == [True]


def test_a_shard_that_is_read_beyond_its_start_says_so_although_nothing_was_written():
    stage = make_stage()
    stage.committer.cursor = replace(CURSOR, seen=100, since=200)
    for seen, passed in ((150, False), (200, True)):
        stage.note_seen(seen)
        assert stage.passed_start is passed
    stage.pending.append(pending_change(1, done(1)))
    assert not stage.passed_start, "what is pending is not done"


def test_handlers_do_not_run_for_changes_that_are_left_to_another_owner():
    async def run():
        stage = make_stage()
        stage.loop.left = True
        await stage.run_later([SimpleNamespace()], [])  # a run of it would raise

    run_virtually(run)

"""The pipeline of a shard: what it writes, and when it rests."""

from types import SimpleNamespace

import anyio
import pytest

from streamkit import RetentionLost
from streamkit.stream.decode import Page
from streamkit.testing.loop import run_virtually
from streamkit.worker.pipeline import ShardPipeline


class Stage:
    """Has nothing but a position to write, as its checkpoints do; meanwhile the next page is read."""

    left = False

    def __init__(self):
        self.pending, self.persist_due, self.runs = [], 0.0, 0

    async def position(self):
        self.persist_due = 60.0
        self.pending.append("came meanwhile")

    async def run(self):
        self.runs += 1
        self.pending.clear()


def test_what_comes_while_a_position_is_written_is_not_left_lying():
    stage = Stage()
    pipeline = SimpleNamespace(stage=stage, checkpoints=stage, _committing=True)

    async def main():
        await ShardPipeline._commit(pipeline)

    run_virtually(main, seed=1)
    assert pipeline.stage.pending == []
    assert pipeline.stage.runs == 1
    assert not pipeline._committing


def named(did, **answers):
    """Return an object of functions, by their answers; each notes that it was called, and how."""

    def noting(name, answer):
        async def noted(*arguments):
            did.append((name, *arguments))
            return answer

        return noted

    return SimpleNamespace(**{name: noting(name, answer) for name, answer in answers.items()})


@pytest.mark.parametrize("pause", [None, 5.0])
def test_a_loss_is_settled_once_all_before_it_is_committed_and_is_passed_only_then(pause):
    did, lost = [], RetentionLost("gone")
    reader = SimpleNamespace(seen=100.5, resume=lambda lost: did.append(("resume", lost)))
    pipeline = SimpleNamespace(
        stage=named(did, until_quiet=None),
        reading=SimpleNamespace(losses=named(did, settle=pause)),
        checkpoints=named(did, loss=None),
        reader=reader,
        _go_on=lambda pause: did.append(("go on", pause)),
    )
    run_virtually(lambda: ShardPipeline._settle(pipeline, lost))
    passed = [("resume", lost), ("loss", 100), ("go on", 0.0)]
    assert did == [
        ("until_quiet",),
        ("settle", lost),
        *(passed if pause is None else [("go on", 5)]),
    ]


def test_a_flawed_page_of_a_suspected_shard_runs_one_by_one_too():
    did, page = [], Page((), flawed=True)
    pipeline = named(did, _process_singly=None)
    pipeline.stage = named(did, set_aside=None)
    pipeline._one_by_one = SimpleNamespace(suspects=True)
    run_virtually(lambda: ShardPipeline._process_flawed(pipeline, page))
    assert did == [("set_aside", ()), ("_process_singly", page)]


def test_a_shard_that_stops_does_not_wait_for_the_page_that_it_is_reading():
    did = []
    pipeline = SimpleNamespace(
        stage=SimpleNamespace(stopping=anyio.Event()),
        activity=SimpleNamespace(busy=True),
        rested=lambda: did.append("rested"),
        _reading=SimpleNamespace(cancel=lambda: did.append("cancelled")),
    )
    ShardPipeline.stop(pipeline)
    assert (did, pipeline.stage.stopping.is_set()) == (["cancelled"], True)
    pipeline._reading, pipeline.activity.busy = None, False
    ShardPipeline.stop(pipeline)
    assert did == ["cancelled", "rested"]


@pytest.mark.parametrize(
    ("ended", "left", "pending", "closes"),
    [
        (False, False, [], False),
        (True, False, ["one"], False),
        (True, False, [], True),
        (False, True, ["one"], True),  # a failure that may not be parked: the next owner's work
    ],
)
def test_a_shard_is_closed_once_it_is_at_its_end_or_its_rest_is_left(ended, left, pending, closes):
    closed = []
    pipeline = SimpleNamespace(
        stage=SimpleNamespace(stopping=anyio.Event(), left=left, pending=pending),
        reader=SimpleNamespace(ended=ended),
        activity=SimpleNamespace(start=closed.append),
        _closed=False,
        _close="close",
    )
    for _ in range(2):
        ShardPipeline.rested(pipeline)
    assert closed == ["close"] * closes

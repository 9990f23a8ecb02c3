"""A writer that finds the end of a chain stores nothing behind it, and stays where it finds it."""

import random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from streamkit.archive.chain import Chain
from streamkit.archive.link import ORIGIN
from streamkit.archive.objects import Flush
from streamkit.archive.tail import Tail
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.clock import SystemClock
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.testing.archives import MemoryArchive
from streamkit.worker.copying import CopyCheckpoints, CopyStage


def at(number):
    return f"{number:040}"


class Committer:
    """Refuses every commit."""

    tables = None

    def __init__(self, position):
        self.cursor = Cursor("s1", position=position)

    async def commit(self, batch):
        raise AssertionError(f"the cursor is moved to {batch.cursor.position}")


@pytest.fixture
async def chain():
    """A chain whose end another worker has stored."""
    chain = Chain(MemoryArchive(), "T/now", "s1")
    await chain.add(chain.link(ORIGIN, at(5)))
    await chain.add(msgspec.structs.replace(chain.link(at(5), at(8)), kind="end"))
    return chain


@pytest.fixture
def stage(chain):
    """The stage of a worker that stands where the chain's last link begins."""
    idle, planner = cast(Any, SimpleNamespace(rng=None)), SimpleNamespace(clock=SystemClock())
    pacing, tail = Pacing(Pace(), random.Random(0)), Tail(chain, "PK", Flush(), at(5))
    parts = (idle, planner, Committer(at(5)), idle, pacing, ByteBudget(), lambda: None)
    return CopyStage(tail, idle, lambda: 1, *parts)


async def test_a_writer_that_finds_its_shard_gone_stores_nothing_behind_the_end(chain, stage):
    stage.tail.lose(gone=True)
    await stage.store(end=True)
    assert await chain.positions() == [ORIGIN, at(5)]


async def test_a_cursor_is_not_moved_behind_the_end_where_its_next_owner_would_not_find_it(
    chain, stage
):
    assert (await chain.tip(stage.cursor.position)).kind == "end"
    assert await chain.tip(at(8)) is None
    stage.tail.last = at(6)
    await CopyCheckpoints(stage).position()
    stage.persist_soon()
    assert stage.persist_due > 0


def taken(tail):
    return [(one.link.kind, one.link.after, one.link.last) for one in tail.take()]


def test_no_link_ends_where_it_begins_because_its_name_would_be_taken_for_the_next_one(chain):
    tail = Tail(chain, "PK", Flush(), at(5))
    assert taken(tail) == []
    tail.lose(gone=False)
    own = {"PK": {"S": f"{CONTROL_PREFIX}x"}}
    tail.add([SimpleNamespace(position=at(6), created_at=1.0, keys=own)], 0.0)
    assert taken(tail) == [("data", at(5), at(6))]
    tail.lose(gone=False)
    tail.add([SimpleNamespace(position=at(9), created_at=1.0, keys=own)], 0.0)
    assert taken(tail) == [("hole", at(6), at(8)), ("data", at(8), at(9))]

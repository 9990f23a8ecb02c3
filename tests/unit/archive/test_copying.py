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

"""A writer that finds the end of a chain stores nothing behind it, and stays where it finds it."""

import random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, Lines, records_of
from streamkit.archive.objects import Flush
from streamkit.archive.tail import Tail
from streamkit.core.checkpoints import Checkpoints
from streamkit.errors import RetentionLost
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.clock import SystemClock
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.stream.decode import parse_page
from streamkit.testing.archives import MemoryArchive
from streamkit.worker.copying import CopyCheckpoints, CopyPipeline, CopyStage


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


# -- beside another writer, and where records were trimmed -------------------------------------------


def records(*numbers):
    page = {
        "Records": [
            {
                "eventID": f"{n}",
                "eventName": "INSERT",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_700_000_000 + n,
                    "Keys": {"PK": {"S": f"item {n}"}},
                    "SequenceNumber": f"{n}",
                    "SizeBytes": 20,
                    "StreamViewType": "KEYS_ONLY",
                },
            }
            for n in numbers
        ]
    }
    return parse_page(msgspec.json.encode(page))


def lines(*numbers):
    found = Lines()
    found.add(records(*numbers).records)
    return found


async def stored(chain):
    """Return the links of a chain, each with the records in it."""
    found = []
    for position in await chain.positions():
        link, body = await chain.at(position)
        numbers = [int(r.sequence_number) for page in records_of(body) for r in page.records]
        found.append((link.kind, int(link.after), int(link.last), numbers))
    return found


@pytest.fixture
async def chain_open():
    chain = Chain(MemoryArchive(), "T/now", "s1")
    await chain.add(chain.link(ORIGIN, at(5)))
    return chain


@pytest.fixture
def writer(chain_open):
    """The stage of a worker that stands at the end of an open chain."""
    idle, planner = cast(Any, SimpleNamespace(rng=None)), SimpleNamespace(clock=SystemClock())
    pacing, tail = Pacing(Pace(), random.Random(0)), Tail(chain_open, "PK", Flush(), at(5))
    parts = (idle, planner, Committer(at(5)), idle, pacing, ByteBudget(), lambda: None)
    return CopyStage(tail, idle, lambda: 1, *parts)


FIRST = ("data", 0, 5, [])


async def test_what_another_writer_has_read_is_no_hole_and_is_not_stored_again(chain_open, writer):
    await chain_open.add(chain_open.link(at(5), at(9)), lines(6, 9))
    writer.tail.lose(gone=False)
    writer.keep(records(9))
    await writer.store()
    assert await stored(chain_open) == [FIRST, ("data", 5, 9, [6, 9])]


async def test_of_what_was_read_only_what_is_behind_another_writer_is_stored(chain_open, writer):
    await chain_open.add(chain_open.link(at(5), at(9)), lines(6, 9))
    writer.tail.lose(gone=False)
    writer.keep(records(9, 11))
    await writer.store()
    assert await stored(chain_open) == [FIRST, ("data", 5, 9, [6, 9]), ("data", 9, 11, [11])]


async def test_a_position_is_not_written_while_the_end_of_a_hole_is_not_known(chain_open, writer):
    writer.tail.lose(gone=False)
    await CopyCheckpoints(writer).position()
    writer.persist_soon()
    assert writer.persist_due > 0
    assert await stored(chain_open) == [FIRST]


async def test_a_shard_that_ends_in_a_hole_is_closed_before_its_children_are_recorded(
    chain_open, writer, monkeypatch
):
    steps = []

    class Lineage:
        async def created(self, children):
            steps.append((children, [kind for kind, *_ in await stored(chain_open)]))

    async def end(self, children):
        return children

    monkeypatch.setattr(Checkpoints, "end", end)
    writer.lineage = Lineage()
    writer.keep(records(6))
    await writer.store()
    writer.tail.lose(gone=False)
    assert await CopyCheckpoints(writer).end(["child"]) == ["child"]
    assert steps == [(["child"], ["data", "data", "hole", "end"])]
    assert (await stored(chain_open))[2][2] == int(BEYOND)


async def test_what_was_read_before_a_loss_is_stored_before_the_hole(chain_open, writer):
    async def nothing(*_):
        pass

    writer.until_quiet = nothing
    reading = SimpleNamespace(losses=SimpleNamespace(settle=nothing))
    reader = SimpleNamespace(resume=lambda _: None)
    pipeline: Any = SimpleNamespace(
        stage=writer, reading=reading, reader=reader, _go_on=lambda _: None
    )
    writer.keep(records(6))
    await CopyPipeline._settle(pipeline, RetentionLost("lost", since=0, until=1))
    writer.keep(records(9))
    await writer.store()
    assert await stored(chain_open) == [
        FIRST,
        ("data", 5, 6, [6]),
        ("hole", 6, 8, []),
        ("data", 8, 9, [9]),
    ]


async def test_behind_an_end_that_was_found_nothing_more_is_stored(chain_open, writer):
    end = msgspec.structs.replace(chain_open.link(at(5), at(5)), kind="end")
    await chain_open.add(end)
    writer.keep(records(6))
    for number in (7, 8):
        await writer.store()
        assert await stored(chain_open) == [FIRST, ("end", 5, 5, [])]
        writer.keep(records(number))

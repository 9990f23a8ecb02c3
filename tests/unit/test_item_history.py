"""A history says what the archive lacks, also where nothing follows in the chain of a shard."""

from dataclasses import dataclass, replace

import msgspec
import pytest

from streamkit.archive.completeness import check
from streamkit.archive.link import BEYOND, Lines
from streamkit.archive.shards import ArchivedShards
from streamkit.changes import ItemKey
from streamkit.operate.past.history import ItemHistory
from streamkit.operate.past.past import PastChanges
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record
from streamkit.stream.decode.envelope import StreamRecord
from streamkit.testing.archives import MemoryArchive

KEY = ItemKey("NOTE#1", "NOTE#1")


async def archived(*kinds):
    """Return an archive of a shard with these links, and of its child, which is still written."""
    archive = ArchivedShards(MemoryArchive(), "Notes/now")
    await archive.begin(1.0)
    await archive.note("parent", None)
    await archive.note("child", "parent")
    for number, kind in enumerate(kinds):
        last = BEYOND if kind == "hole" else f"{number + 1:040}"
        link = archive.chain("parent").link(f"{number:040}", last)
        await archive.chain("parent").add(msgspec.structs.replace(link, kind=kind))
    child = archive.chain("child")
    await child.add(child.link(f"{0:040}", f"{9:040}"))
    return archive


@dataclass
class HasTheRest:
    """The stream of an archive; it has what follows the end of each chain."""

    archive: ArchivedShards

    async def has(self, shard, after):
        return True


class Forgotten(PastChanges):
    """A past of which the stream has nothing any more but what follows the ends of chains."""

    def __post_init__(self):
        super().__post_init__()
        self.still = HasTheRest(self.archive)

    async def again(self, chain, begin, ends, text, after=0.0):
        self._lose(f"{chain.shard} {begin} {text}")
        return []


@pytest.mark.parametrize(
    ("kinds", "gaps"),
    [(["data", "end"], 0), (["end"], 0), (["data"], 1), ([], 1), (["data", "hole"], 1)],
)
async def test_a_shard_with_children_has_its_end_or_a_gap(kinds, gaps):
    assert await gaps_of(await archived(*kinds)) == gaps


def history(archive, *written, key=KEY, began=1.0):
    """Return an item's history; these are the cursors of the archive's writer."""
    past = Forgotten(None, "arn", archive, None, began, allowed=True)
    return ItemHistory(past, "PK", key, {one.name: one for one in written})


async def gaps_of(archive, *written):
    """Return the gaps of an item's history, of which a verification finds as many or none."""
    reading = history(archive, *written)
    assert [one async for one in reading.records()] == []
    found = await check(HasTheRest(archive), "", began=1.0, written=reading.written)
    assert bool(reading.gaps) is not found.whole
    return reading.gaps


def remove(archive, parts):
    """Remove objects in which one of some parts occurs; `|` stands for the end of a name."""
    for name in [n for n in archive.objects.objects if any(part in f"{n}|" for part in parts)]:
        archive.objects.remove(name)


PARENT = "/shards/parent/", "/lineage/root/parent|"
CHILD = "/shards/child/", "/lineage/parent/child|"
WRITTEN = Cursor("child", "parent", position=f"{9:040}")


@pytest.mark.parametrize("parts", [PARENT[:1], PARENT[1:], PARENT])
async def test_a_parent_whose_chain_or_lineage_was_removed_is_a_gap(parts):
    archive = await archived("data", "end")
    remove(archive, parts)
    assert await gaps_of(archive) > 0


@pytest.mark.parametrize("parts", [CHILD[:1], CHILD[1:], CHILD])
async def test_a_shard_that_nothing_but_the_writers_cursor_knows_is_a_gap(parts):
    archive = await archived("data", "end")
    assert await gaps_of(archive, WRITTEN) == 0
    remove(archive, parts)
    assert await gaps_of(archive, WRITTEN) > 0


async def test_a_chain_that_ends_before_the_writers_cursor_has_a_gap():
    archive = await archived("data", "end")
    assert await gaps_of(archive, replace(WRITTEN, position=f"{10:040}")) == 1
    assert await gaps_of(archive, replace(WRITTEN, state="finished")) == 1
    assert await gaps_of(archive, replace(WRITTEN, position=f"{8:040}")) == 0


async def test_what_its_writer_finished_before_the_archive_began_is_no_gap():
    """A rule of the bucket may have removed it."""
    archive, old = await archived("data", "end"), Cursor("old", state="finished")
    assert await gaps_of(archive, replace(old, ended=0)) == 0
    assert await gaps_of(archive, replace(old, ended=2)) > 0


async def test_an_archive_that_was_never_written_has_no_whole_history():
    archive = ArchivedShards(MemoryArchive(), "Notes/now")
    reading = history(archive, began=await archive.began_if_known())
    assert [one async for one in reading.records()] == []
    assert reading.gaps == 1


@pytest.mark.parametrize(
    ("kinds", "ended", "asks"),
    [([], 3, False), ([], 7, True), (["data"], 3, True)],
    ids=["ended before", "ended later", "has an object"],
)
async def test_the_stream_is_not_asked_for_a_shard_without_objects_that_ended_before(
    monkeypatch, kinds, ended, asks
):
    """A rule of the bucket may have removed the objects; the writer's cursor says when it ended."""
    past, asked = Forgotten(None, "arn", await archived(*kinds), None, 1.0, allowed=True), []
    past.shards._written = {"parent": Cursor("parent", state="finished", ended=ended)}

    async def tail(shard, *_):
        asked.append(shard)

    async def held(*_):
        return []

    monkeypatch.setattr(past, "_reader_at", tail)
    monkeypatch.setattr(past, "_held", held)
    assert [one async for records in past.backwards("parent", 5.0) for one in records] == []
    assert asked == ["parent"] * asks


async def test_the_changes_of_an_item_are_found_in_whatever_order_a_record_has_its_keys():
    archive, found = await archived("data", "end"), []
    for number, names in enumerate((["PK", "SK"], ["SK", "PK"]), 10):
        keys = {name: {"S": "NOTE" if name == "PK" else "ORDER"} for name in names}
        inner = StreamRecord(keys=keys, sequence_number=str(number))
        lines = Lines()
        lines.add([Record(dynamodb=inner, event_name="REMOVE")])
        chain = archive.chain("child")
        await chain.add(chain.link(f"{number - 1:040}", f"{number:040}"), lines)
    for key in (ItemKey("NOTE", "ORDER"), ItemKey("ORDER", "NOTE")):
        reading = history(archive, key=key)
        found.append([record.sequence_number async for _, record in reading.records()])
    assert found == [["10", "11"], []]

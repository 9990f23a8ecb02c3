"""A history says what the archive lacks, also where nothing follows in the chain of a shard."""

import msgspec
import pytest

from streamkit.archive.link import BEYOND
from streamkit.archive.shards import ArchivedShards
from streamkit.changes import ItemKey
from streamkit.operate.history import ItemHistory
from streamkit.testing.archives import MemoryArchive


async def archived(*kinds):
    """Return an archive of a shard with these links, and of its child, which is still written."""
    archive = ArchivedShards(MemoryArchive(), "Notes/now")
    await archive.note("parent", None)
    await archive.note("child", "parent")
    for number, kind in enumerate(kinds):
        last = BEYOND if kind == "hole" else f"{number + 1:040}"
        link = archive.chain("parent").link(f"{number:040}", last)
        await archive.chain("parent").add(msgspec.structs.replace(link, kind=kind))
    child = archive.chain("child")
    await child.add(child.link(f"{0:040}", f"{9:040}"))
    return archive


@pytest.mark.parametrize(
    ("kinds", "gaps"),
    [(["data", "end"], 0), (["end"], 0), (["data"], 1), ([], 1), (["data", "hole"], 1)],
)
async def test_a_shard_with_children_has_its_end_or_a_gap(kinds, gaps):
    reading = ItemHistory(await archived(*kinds), ItemKey("NOTE#1", "NOTE#1"))
    assert [one async for one in reading.records()] == []
    assert reading.gaps == gaps

"""Read the history of one item: every change of it that an archive has.

In: an archive and the item's key. Out: its records, shard by shard, each shard's in order. Every
object is read. What the archive lacks or cannot read is passed over, and counted in `gaps`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from streamkit.archive.link import ORIGIN, DamagedLink, records_of
from streamkit.archive.shards import ArchivedShards
from streamkit.changes import ItemKey
from streamkit.stream.decode import Record


@dataclass
class ItemHistory:
    """The records of one item; `gaps` counts links that are missing, damaged or a hole."""

    archive: ArchivedShards
    key: ItemKey
    gaps: int = 0

    async def records(self) -> AsyncIterator[tuple[str, Record]]:
        """Yield each record with the name of its shard."""
        for shard in await self.archive.shards():
            ends = ORIGIN
            for begin in await self.archive.chain(shard.id).positions():
                self.gaps += begin != ends
                ends, found = await self._read(shard.id, begin)
                for record in found:
                    yield shard.id, record

    async def _read(self, shard: str, begin: str) -> tuple[str, list[Record]]:
        """Read one link; return where it ends, and the item's records in it."""
        try:
            found = await self.archive.chain(shard).at(begin)
            if found is None:
                return begin, []
            link, body = found
            self.gaps += link.kind == "hole"
            each = (record for page in records_of(body) for record in page.records)
            return link.last, [record for record in each if record.item_key == self.key]
        except DamagedLink:
            return begin, []  # the next link does not begin there: a gap

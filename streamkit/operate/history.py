"""Read the history of one item: every change of it that an archive has.

In: an archive and the item's key. Out: its records, shard by shard, each shard's in order. Every
object is read. What the archive lacks or cannot read is passed over, and counted in `gaps`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from streamkit.archive.shards import ArchivedShards
from streamkit.archive.walk import walk
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
            chain = self.archive.chain(shard.id)
            async for step in walk(chain, await chain.positions()):
                self.gaps += bool(step.missing) + (step.link is None or step.link.kind == "hole")
                for record in step.records:
                    if record.item_key == self.key:
                        yield shard.id, record

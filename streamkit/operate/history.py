"""Read the history of one item: every change of it that an archive has.

In: an archive and the item's key. Out: its records, shard by shard, each shard's in order. Every
object is read. What the archive lacks or cannot read is passed over, and counted in `gaps`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from streamkit.archive.chain import Chain
from streamkit.archive.completeness import ArchiveCheck, check_chain
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.walk import walk
from streamkit.changes import ItemKey
from streamkit.stream.decode import Record


@dataclass
class ItemHistory:
    """The records of one item; `gaps` counts links that are missing, damaged or a hole.

    It counts the links of a shard when all its records have been read.
    """

    archive: ArchivedShards
    key: ItemKey
    gaps: int = 0

    async def records(self) -> AsyncIterator[tuple[str, Record]]:
        """Yield each record with the name of its shard."""
        shards = await self.archive.shards()
        heads = {shard.parent for shard in shards}
        for shard in shards:
            chain, gaps, kind = self.archive.chain(shard.id), 0, ""
            async for step in walk(chain, await chain.positions()):
                kind = "" if step.link is None else step.link.kind
                gaps += bool(step.missing) + (kind in ("", "hole"))
                for record in step.records:
                    if record.item_key == self.key:
                        yield shard.id, record
            if shard.id in heads and kind != "end":  # seldom, so that it may be read again
                gaps = max(gaps, await _gaps_of_ended(chain))
            self.gaps += gaps


async def _gaps_of_ended(chain: Chain) -> int:
    """Return how many gaps a verification finds in the chain of a shard that has ended."""
    found = ArchiveCheck(chain.stream, "")
    await check_chain(chain, found, closed=True)
    return len(found.gaps)

"""Read the history of one item: every change of it that an archive has.

In: an archive and the item's key. Out: its records, shard by shard, each shard's in order. Every
object is read. What the archive lacks or cannot read is passed over, and counted in `gaps`; so are
shards that its lineage lacks.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from streamkit.archive.chain import Chain
from streamkit.archive.completeness import ArchiveCheck, check_chain, ends_of, unknown
from streamkit.archive.link import ORIGIN
from streamkit.archive.shards import ArchivedShards, DamagedArchive
from streamkit.archive.walk import walk
from streamkit.changes import ItemKey
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record


@dataclass
class ItemHistory:
    """The records of one item; `gaps` counts links that are missing, damaged or a hole.

    It counts the links of a shard when all its records have been read. `pk` names the partition key
    of the table. `written` are the cursors of the archive's writer, as they were read before.
    """

    archive: ArchivedShards
    pk: str
    key: ItemKey
    written: Mapping[str, Cursor] = field(default_factory=dict)
    gaps: int = 0

    async def records(self) -> AsyncIterator[tuple[str, Record]]:
        """Yield each record with the name of its shard."""
        try:
            began = await self.archive.began()
        except DamagedArchive:  # what it has may be whole
            began = None
        parents = {shard.id: shard.parent for shard in await self.archive.shards()}
        lacking, ends = unknown(parents, began or 0.0, self.written), ends_of(parents, self.written)
        self.gaps += (began is None) + len(lacking)
        for shard in [*parents, *sorted(lacking.keys() - parents)]:
            chain, gaps, kind, upto = self.archive.chain(shard), 0, "", ORIGIN
            async for step in walk(chain, await chain.positions()):
                kind, upto = "" if step.link is None else step.link.kind, step.ends
                gaps += bool(step.missing) + (kind in ("", "hole"))
                for record in step.records:
                    if not record.flaw and record.key_of(self.pk) == self.key:
                        yield shard, record
            end = ends.get(shard, ORIGIN)
            if kind != "end" and upto < end:  # seldom, so that it may be read again
                gaps = max(gaps, await _gaps_of(chain, end))
            self.gaps += gaps


async def _gaps_of(chain: Chain, upto: str) -> int:
    """Return how many gaps a verification finds in a chain that must lead up to a position."""
    found = ArchiveCheck(chain.stream, "")
    await check_chain(chain, found, upto)
    return len(found.gaps)

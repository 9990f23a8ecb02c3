"""Read the history of one item: every change of it that an archive has.

In: an archive and the item's key. Out: its records, shard by shard, each shard's in order. Every
object is read. What the archive lacks or cannot read is asked of the stream; what that does not
have any more, either, is passed over, and counted in `gaps`; so are shards that its lineage lacks.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.app import App
from streamkit.archive.chain import Chain
from streamkit.archive.completeness import ends_of, is_followed, unknown
from streamkit.archive.link import BEYOND, ORIGIN
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.walk import walk
from streamkit.aws import Aws
from streamkit.changes import ItemKey
from streamkit.core.tables import AppTables
from streamkit.fleet.cursors import every_cursor
from streamkit.operate.past.past import PastChanges, past_of
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record


async def history_of(
    app: App, aws: Aws, tables: AppTables, archive: ArchivedShards, key: ItemKey
) -> "ItemHistory":
    """Return the history of an item of an app's table."""
    past = await past_of(app, aws, tables, archive)
    return ItemHistory(past, tables.table.pk, key, await every_cursor(past.writer))


@dataclass
class ItemHistory:
    """The records of one item in a past whose losses are allowed.

    `gaps` counts the links that are a hole, and those that are missing or damaged, and of which the
    stream lacks records, too. It counts those of a shard when all its records have been read. `pk`
    names the partition key of the table. `written` are the cursors of the archive's writer, as they
    were read before.
    """

    past: PastChanges
    pk: str
    key: ItemKey
    written: Mapping[str, Cursor] = field(default_factory=dict)
    _noted: int = 0

    @property
    def gaps(self) -> int:
        """Return how many gaps were met."""
        return self._noted + len(self.past.losses)

    async def records(self) -> AsyncIterator[tuple[str, Record]]:
        """Yield each record with the name of its shard."""
        archive, began = self.past.archive, self.past.began
        parents = {shard.id: shard.parent for shard in await archive.shards()}
        lacking, ends = unknown(parents, began, self.written), ends_of(parents, self.written)
        self._noted += (not began) + len(lacking)
        for shard in [*parents, *sorted(lacking.keys() - parents)]:
            async for records in self._parts(archive.chain(shard), ends.get(shard, ORIGIN)):
                for record in records:
                    if not record.flaw and record.key_of(self.pk) == self.key:
                        yield shard, record

    async def _parts(self, chain: Chain, upto: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of each link of a chain, which must lead up to a position."""
        ends, kind = ORIGIN, ""
        async for step in walk(chain, await chain.positions()):
            if step.missing:
                yield await self.past.again(chain, step.missing, step.begin, "")
            if step.link is None:
                yield await self.past.again(chain, step.begin, step.ends, step.text)
            yield step.records
            ends, kind = step.ends, "" if step.link is None else step.link.kind
            self._noted += kind == "hole"
        if kind != "end" and ends < upto:
            yield await self.past.again(chain, ends, upto, "")
        elif kind != "end" and ends != BEYOND:
            self._noted += not await is_followed(self.past.still, chain.shard, ends)

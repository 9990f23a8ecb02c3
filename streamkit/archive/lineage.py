"""Lineage with an archive: what its writer records, and what its readers ask beside the stream.

The stream is always asked first. A shard disappears from the stream only after it was recorded in
the archive, so in this order no shard is overlooked. While the archive refuses its readers, they
know no children there yet: the lister of an app goes on, and asks again.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from streamkit.archive.long_pages import NotDecided
from streamkit.archive.shards import ArchivedShards, DamagedArchive
from streamkit.observe.logger import get_logger
from streamkit.progress.control import Cursor
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import Listing, StreamLineage

log = get_logger("streamkit.archive")


@dataclass(frozen=True)
class RecordedLineage(StreamLineage):
    """The lineage as the writer of an archive sees it: it records each shard of the stream.

    `now` returns the table's time, in epoch seconds.
    """

    archive: ArchivedShards
    now: Callable[[], Awaitable[float]]

    async def created(self, shards: Collection[Cursor]) -> None:
        """Record shards whose cursors are about to be created."""
        if shards:
            await self._begin()
        for cursor in shards:
            await self.archive.note(cursor.name, cursor.parent)

    async def _begin(self) -> None:
        """Begin the archive; one that is damaged goes on, because the stream does not wait."""
        try:
            await self.archive.begin(await self.now())
        except DamagedArchive as damaged:
            log.error("archive.damaged", reason=str(damaged))  # noqa: TRY400 - its text says all


@dataclass(frozen=True)
class LongLineage(StreamLineage):
    """The lineage as the readers of an archive see it: the stream's shards, and the archive's.

    Only descendants of shards with a cursor are asked for. Other shards do not belong to this
    consumer, or it has read them long ago.
    """

    archive: ArchivedShards
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def reaches_back(self) -> bool:
        """Return that the archive has shards that the stream does not list any more."""
        return True

    async def children(self, parent: str) -> Listing:
        """Return the children of a shard, from the stream, or else from the archive."""
        listing = await super().children(parent)
        if listing.shards:
            return listing
        found = await self._archived(parent)
        return replace(listing, shards=tuple(Shard(name, parent) for name in found))

    async def older(
        self, listed: Collection[Shard], cursors: Mapping[str, Cursor]
    ) -> tuple[Shard, ...]:
        """Return descendants of shards that this consumer has begun; the stream lists neither."""
        ids = {shard.id for shard in listed}
        parents = {cursor.parent for cursor in cursors.values()}
        todo = [
            name
            for name, cursor in cursors.items()
            if name not in ids and not (cursor.finished and name in parents)
        ]
        found: dict[str, Shard] = {}
        while todo:
            parent = todo.pop()
            for name in await self._children_of(parent):
                if name not in ids and name not in found and name not in cursors:
                    found[name] = Shard(name, parent)
                    todo.append(name)
        return tuple(found.values())

    async def _children_of(self, parent: str) -> tuple[str, ...]:
        if parent not in self._known:
            children = tuple(await self._archived(parent))
            if not children:
                return ()  # they may be recorded later
            self._known[parent] = children
        return self._known[parent]

    async def _archived(self, parent: str) -> list[str]:
        try:
            return await self.archive.children(parent)
        except NotDecided:  # it is refused for now; an empty answer is not final
            return []

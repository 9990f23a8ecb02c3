"""What a worker knows of its consumer's shards: cursors as last read, and their lineage roots.

Other workers take, finish and create cursors all the time. This knowledge is enough to say which
shards have to be assigned. Before a worker acts on a cursor, it reads it again. A finished cursor
leads to its children.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamkit.fleet.taken import is_over
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore


@dataclass
class KnownShards:
    """The cursors of one consumer, as this worker knows them; finished ones are left out."""

    store: CursorStore
    open: dict[str, Cursor] = field(default_factory=dict)
    _readers: dict[str, str | None] = field(default_factory=dict)

    @property
    def roots(self) -> frozenset[str]:
        """Return the lineage roots of the shards that are not finished."""
        return frozenset(cursor.root for cursor in self.open.values())

    @property
    def parents(self) -> frozenset[str | None]:
        """Return the shards that have an unfinished child."""
        return frozenset(cursor.parent for cursor in self.open.values())

    async def refresh(self, *, fresh: bool) -> None:
        """Read the directories, and the cursors that are new in them.

        Args:
            fresh: whether another worker told of new ones, so that the reading must contain them.
        """
        names = await self.store.names(fresh=fresh)
        await self.read(names - self.open.keys() - self._readers.keys())
        kept = names | self.parents
        self._readers = {name: by for name, by in self._readers.items() if name in kept}

    def heir(self, cursor: Cursor) -> str | None:
        """Return the worker that read a shard's parent to its end; None once the shard is read."""
        return None if cursor.epoch else self._readers.get(cursor.parent or "")

    async def read(self, names: Iterable[str]) -> None:
        """Read cursors again, and the children of those that are finished by now.

        If no worker has read a shard yet, its parent is read too, which names the worker that read
        that.
        """
        todo = set(names)
        while todo:
            found = await self.store.read_many(todo)
            for name in todo - found.keys():
                self.open.pop(name, None)  # deleted
            children = {child for cursor in found.values() for child in cursor.children}
            for cursor in found.values():
                self.learn(cursor)
            parents = {c.parent for c in found.values() if c.parent and not c.epoch}
            todo = (children - self.open.keys() | parents) - self._readers.keys()

    def learn(self, cursor: Cursor) -> None:
        """Record a cursor as it is in the table."""
        if is_over(cursor):
            self.open.pop(cursor.name, None)
            self._readers[cursor.name] = cursor.owner
        else:
            self.open[cursor.name] = cursor

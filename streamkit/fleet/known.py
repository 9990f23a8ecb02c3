"""What a worker knows of its consumer's shards: cursors as last read, and where they sit.

Others take, finish and create cursors all the time. What is known here is enough to say which
shards there are to assign; a cursor is read afresh before anything is done with it, and a finished
one leads to its children.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamkit.control import Cursor
from streamkit.cursor import CursorStore


@dataclass
class KnownShards:
    """The cursors of one consumer, as this worker knows them; finished ones are left out."""

    store: CursorStore
    open: dict[str, Cursor] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    @property
    def seats(self) -> frozenset[str]:
        """Where the shards sit that are not finished."""
        return frozenset(cursor.seat for cursor in self.open.values())

    @property
    def parents(self) -> frozenset[str | None]:
        """The shards that have a child which is not finished."""
        return frozenset(cursor.parent for cursor in self.open.values())

    async def refresh(self) -> None:
        """Read the directories, and the cursors that are new there."""
        names = await self.store.names()
        self._finished &= names
        await self.read(names - self.open.keys() - self._finished)

    async def read(self, names: Iterable[str]) -> None:
        """Read cursors anew, and the children of those that are finished by now."""
        todo = set(names)
        while todo:
            found = await self.store.read_many(todo)
            for name in todo - found.keys():
                self.open.pop(name, None)  # swept
            children = {child for cursor in found.values() for child in cursor.children}
            for cursor in found.values():
                self.learn(cursor)
            todo = children - self.open.keys() - self._finished

    def learn(self, cursor: Cursor) -> None:
        """Note a cursor as it is in the table."""
        if cursor.finished:
            self.open.pop(cursor.name, None)
            self._finished.add(cursor.name)
        else:
            self.open[cursor.name] = cursor

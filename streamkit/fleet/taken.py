"""Handlers that an app takes over: their marks, and where their own cursors stand.

A mark in `live` of a cursor of the app says that its shard runs a handler that had a consumer of
its own; children inherit it. The cursor of that consumer is then *handed over*. The mark also says
which join it belongs to: a later handler of the same name may join, too, and is on no shard yet.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from streamkit.fleet.generation import newest_generation
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore

HANDED_OVER = "handed over"
"""The state of a handler's own cursor once its app runs the handler on that shard."""
BEHIND = "behind the app"
"""The mark of a handler's own cursor that waits until its app has no parked changes of it."""
_TAKEN = ":taken:"


def taken_mark(handler: str, number: int) -> str:
    """Return the mark of a shard that runs a handler; generation `number` began to take it over."""
    return f"{handler}{_TAKEN}{number}"


def marks_of(joins: Collection[str]) -> dict[str, str]:
    """Return the mark of each handler that a generation takes over, by the handler's name."""
    return {mark.rpartition(_TAKEN)[0]: mark for mark in joins}


def taken(cursor: Cursor, joins: Collection[str]) -> frozenset[str]:
    """Return the handlers that a generation takes over, and that a shard runs."""
    return frozenset(name for name, mark in marks_of(joins).items() if mark in cursor.live)


def own_store(store: CursorStore, handler: str) -> CursorStore:
    """Return the control items of the consumer that a handler of an app has of its own."""
    return replace(store, space=replace(store.space, consumer=f"{store.space.consumer}.{handler}"))


def is_over(cursor: Cursor) -> bool:
    """Return whether its consumer reads nothing more of a shard: finished, or handed over."""
    return cursor.state in ("finished", HANDED_OVER)


def app_store(own: CursorStore) -> tuple[CursorStore, str]:
    """Return the control items of the app whose handler has this consumer, and its name there."""
    consumer, _, handler = own.space.consumer.rpartition(".")
    return replace(own, space=replace(own.space, consumer=consumer)), handler


def reaches(there: Cursor, here: Cursor) -> bool:
    """Return whether a handler has done all that its app has read, and all that the app drops.

    The app drops what was made before its own start, and the handler what was before its start. So
    the handler has to be past both.
    """
    begins = max(there.since, here.since)
    if begins and max(there.dated, there.seen) < begins:
        return False
    if here.position == START:
        return True
    return there.position != START and there.position >= here.position


@dataclass(frozen=True)
class Births:
    """How the cursors of new lineage roots are made while an app takes handlers over.

    The app runs these handlers (`joins` has their marks) on a root from its birth, unless their own
    consumer has its cursor already. That consumer makes a root's cursor only where the app has one
    and does not run the handler. Neither of the two can change between the look and the write: the
    app takes no handler over on a shard of which the handler's consumer has no cursor, and the end
    of the join makes the writes of that consumer's lister fail.
    """

    store: CursorStore
    joins: frozenset[str] = frozenset()
    handler: str = ""

    async def of(self, made: Sequence[Cursor], known: Collection[str]) -> list[Cursor]:
        """Return the cursors that are made now, of those that may be made."""
        found = list[Cursor]()
        for cursor in made:
            if cursor.parent in known or (self.handler and await self._is_apart(cursor.name)):
                found.append(cursor)
            elif not self.handler:
                own = {m: own_store(self.store, name) for name, m in marks_of(self.joins).items()}
                absent = [mark for mark in own if await own[mark].read(cursor.name) is None]
                found.append(replace(cursor, live=cursor.live.union(absent)))
        return found

    async def _is_apart(self, root: str) -> bool:
        newest, theirs = await newest_generation(self.store), await self.store.read(root)
        if newest is None or theirs is None or self.handler not in marks_of(newest.joins):
            return False
        return self.handler not in taken(theirs, newest.joins)

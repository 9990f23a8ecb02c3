"""Catching up: wait until a consumer has processed all that was written before now.

In: an app and its cursors. Out: whether every shard is past that moment. A quiet shard's cursor is
written once an hour, so the stream after it is read; that costs some `GetRecords` calls per shard
and second. On failure: what the table or the stream refuses.
"""

from collections.abc import Iterable, Mapping, Sequence

import anyio

from streamkit.aws import Aws, AwsError
from streamkit.core.consumer import Consumer
from streamkit.errors import RetentionLost, StreamSilent
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.lag import has_read, listens
from streamkit.fleet.taken import is_over
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor, child_of
from streamkit.progress.cursor import CursorStore
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import list_shards

_PUBLISHED_SECONDS = 3.0
"""The seconds until a write can be read from the stream and a newer cursor tells so."""
_MARGIN_SECONDS = 2.0
"""Records are stamped to the second, by a clock that is not this process's."""
_PAUSE_SECONDS, _LONGEST_SECONDS = 1.0, 5.0
"""The pause before the next look; it grows, because each look reads the cursors of all shards."""


class CatchUp:
    """Waits for one consumer, at most `patience` seconds each time."""

    def __init__(
        self,
        app: Consumer,
        aws: Aws,
        store: CursorStore,
        schema: TableSchema,
        patience: float,
        clock: Clock,
    ) -> None:
        self._aws = aws
        self._store = store
        self._stream = schema.stream_arn or ""
        self._wants = listens(app, schema)
        self._patience = patience
        self._clock = clock

    async def with_all_until_now(self) -> bool:
        """Wait, and return whether everything written before this call is processed."""
        # Not this process's own clock: if that is behind, unread changes would look newer.
        return await self.with_all_until(await self._store.time(self._clock))

    async def with_all_until(self, moment: float) -> bool:
        """Wait, and return whether everything written before a moment of the table is processed.

        A parked change counts as processed. A consumer that has never run processes nothing.
        """
        moment += _MARGIN_SECONDS
        deadline = self._clock.monotonic() + self._patience
        await anyio.sleep(_PUBLISHED_SECONDS)
        generation = await newest_generation(self._store)
        founded, pause = generation.founded if generation else 0, _PAUSE_SECONDS
        listed: Sequence[Shard] | None = None
        past = set[str]()  # what was processed once stays so: these shards are not read again
        while True:
            if listed is None:
                listed = await self._list()
            cursors = _with_children(await every_cursor(self._store), listed or ())
            for cursor in cursors:
                if cursor.name not in past and await self._is_past(cursor, moment, founded):
                    past.add(cursor.name)
            if cursors and listed and all(cursor.name in past for cursor in cursors):
                return True
            if self._clock.monotonic() >= deadline:
                return False
            await anyio.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_SECONDS)

    async def _list(self) -> Sequence[Shard] | None:
        try:
            return (await list_shards(self._aws, self._stream)).shards
        except (*AwsError, StreamSilent):
            return None  # it is asked again

    async def _is_past(self, cursor: Cursor, moment: float, founded: float) -> bool:
        try:
            return await has_read(
                self._aws, self._stream, cursor, self._wants, self._clock, moment, founded
            )
        except RetentionLost:
            return False
        except AwsError:
            return False  # it is asked again


def _with_children(known: Mapping[str, Cursor], listed: Iterable[Shard]) -> list[Cursor]:
    """Return the cursors that are not over, and those that their descendants will have.

    A shard gets its cursor when its parent is finished. While no worker is alive, shards may have
    ended and others appeared, with changes that nobody has processed.
    """
    found = {name: cursor for name, cursor in known.items() if not is_over(cursor)}
    parents = {one.id: one.parent for one in listed if one.parent and one.id not in known}
    while born := {n: p for n, p in parents.items() if p in found and n not in found}:
        found |= {n: child_of(n, found[p], generation=0, parent_name=p) for n, p in born.items()}
    return list(found.values())

"""The catalogue finds the remaining shards of a stream by id, by age and by parent.

In: shards, as they are created and closed. Out: one of them, or the ids in the order of a listing.
A stream has seven shards for each of its table's partitions, so only `all` walks over all of them.
A page of a listing, a look-up of children and forgetting the oldest cost the same in a stream of
ten shards and of a hundred thousand.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from streamkit.local.shards import EngineShard


class Catalogue:
    """An index of shards. Ids sort by age, and shards are closed in the order of time."""

    __slots__ = ("_by_id", "_children", "_closed", "_ids")

    def __init__(self) -> None:
        self._by_id: dict[str, EngineShard] = {}
        self._ids: list[str] = []
        self._children: dict[str, list[str]] = {}
        self._closed: deque[tuple[float, EngineShard]] = deque()

    def add(self, shard: EngineShard) -> None:
        """Add a new shard."""
        self._by_id[shard.id] = shard
        insort(self._ids, shard.id)
        if shard.parent_id is not None:
            insort(self._children.setdefault(shard.parent_id, []), shard.id)

    def close(self, shard: EngineShard, at: float) -> None:
        """Close a shard; `at` never decreases from call to call."""
        shard.close(at)
        self._closed.append((at, shard))

    def find(self, shard_id: str) -> EngineShard | None:
        """Return a shard by its id; None if it is forgotten."""
        return self._by_id.get(shard_id)

    def all(self) -> list[EngineShard]:
        """Return all shards in the order of their creation."""
        return list(self._by_id.values())

    def ids(self) -> Sequence[str]:
        """Return all ids, sorted. The list is the catalogue's own: do not keep or change it."""
        return self._ids

    def children(self, parent_id: str) -> Sequence[str]:
        """Return the sorted ids of a shard's children, even if the shard itself is forgotten."""
        return self._children.get(parent_id, ())

    def forget_closed(self, before: float) -> None:
        """Forget the shards that were closed before a time."""
        closed = self._closed
        while closed and closed[0][0] < before:
            self._forget(closed.popleft()[1])

    def forget_all(self) -> None:
        """Forget the records of every shard, because the stream is gone."""
        for shard in self._by_id.values():
            shard.discard()

    def _forget(self, shard: EngineShard) -> None:
        shard.discard()
        del self._by_id[shard.id]
        del self._ids[bisect_left(self._ids, shard.id)]
        if shard.parent_id is not None:
            siblings = self._children[shard.parent_id]
            siblings.remove(shard.id)
            if not siblings:
                del self._children[shard.parent_id]

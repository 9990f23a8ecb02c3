"""The rows of a table or index: by partition key, and within a partition ordered by sort key.

A row is an item with its size; table and indexes share it. A *place* is the position of a row: the
partition key's value and the entry that orders the row there. Partitions are also ordered by a hash
of their key, which is the order of a scan. It does not depend on the time of a write, so a scan
resumes after any place, even if there is no row at that place any more.
"""

from collections.abc import Iterator
from hashlib import md5
from typing import Final, TypeAlias

from streamkit.local.ordering import LAST, Entry, SortedEntries
from streamkit.local.values import Item

Row: TypeAlias = tuple[Item, int]
Place: TypeAlias = tuple[str, Entry]

HASHES: Final = 1 << 64
"""Hashes of partition keys are below this number."""


def key_hash(hash_value: str) -> int:
    """Return the hash of a partition key's value, which orders a scan."""
    digest = md5(hash_value.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


class _Partition:
    __slots__ = ("entries", "hash", "rows")

    def __init__(self, key_hash: int) -> None:
        self.hash = key_hash
        self.rows: dict[Entry, Row] = {}
        self.entries = SortedEntries()


class Partitions:
    """Rows by place."""

    __slots__ = ("_by_key", "_order")

    def __init__(self) -> None:
        self._by_key: dict[str, _Partition] = {}
        self._order = SortedEntries()

    def find(self, place: Place) -> Row | None:
        """Return the row at a place, if there is one."""
        partition = self._by_key.get(place[0])
        return None if partition is None else partition.rows.get(place[1])

    def put(self, place: Place, row: Row) -> None:
        """Set the row at a place."""
        hash_value, entry = place
        partition = self._by_key.get(hash_value)
        if partition is None:
            partition = self._by_key[hash_value] = _Partition(key_hash(hash_value))
            self._order.add((partition.hash, hash_value))
        if entry not in partition.rows:
            partition.entries.add(entry)
        partition.rows[entry] = row

    def remove(self, place: Place) -> None:
        """Remove the row at a place; nothing happens when there is none."""
        hash_value, entry = place
        partition = self._by_key.get(hash_value)
        if partition is None or partition.rows.pop(entry, None) is None:
            return
        if partition.rows:
            partition.entries.remove(entry)
        else:
            del self._by_key[hash_value]
            self._order.remove((partition.hash, hash_value))

    def query(
        self,
        hash_value: str,
        start: Entry = (),
        stop: Entry | None = None,
        *,
        descending: bool = False,
    ) -> Iterator[Row]:
        """Walk a partition's rows whose entries are from `start` on and before `stop`."""
        partition = self._by_key.get(hash_value)
        if partition is None:
            return
        entries = partition.entries
        walk = entries.descending(start, stop) if descending else entries.ascending(start, stop)
        rows = partition.rows
        for entry in walk:
            yield rows[entry]

    def scan(
        self, first: int = 0, end: int = HASHES, *, after: Place | None = None
    ) -> Iterator[Row]:
        """Walk the rows of partitions whose hash is from `first` on and before `end`.

        Args:
            first: the lowest hash.
            end: the hash at which to stop.
            after: the place after which to continue; its hash lies in this range.
        """
        start: Entry = (first,)
        if after is not None:
            hash_value, entry = after
            start = (key_hash(hash_value), hash_value, LAST)
            yield from self.query(hash_value, (*entry, LAST))
        for _, hash_value in self._order.ascending(start, (end,)):
            yield from self.query(hash_value)

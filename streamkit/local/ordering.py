"""A sorted collection that stays fast when it grows large.

`SortedEntries` keeps tuples in order, in chunks of bounded length: adding or removing an entry
moves at most a chunk, however many entries there are, and a walk may start anywhere. The bounds of
a walk are tuples too. A bound sorts before all entries that begin with it; with `LAST` at its end
it sorts after all of them. Nothing may be added or removed during a walk.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, TypeAlias, final

Entry: TypeAlias = tuple[Any, ...]

_CHUNK = 512
_highest = itemgetter(-1)


@final
class _Last:
    """A value that is greater than everything."""

    __slots__ = ()

    def __lt__(self, _other: object) -> bool:
        return False

    def __gt__(self, _other: object) -> bool:
        return True


LAST: Final = _Last()
"""At the end of a bound, it makes the bound sort after every entry with the same beginning."""


class SortedEntries:
    """Distinct tuples in ascending order."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[list[Entry]] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, entry: Entry) -> None:
        """Add an entry that is not there yet."""
        chunks = self._chunks
        if not chunks:
            chunks.append([entry])
            return
        index = 0
        if len(chunks) > 1:
            index = min(bisect_left(chunks, entry, key=_highest), len(chunks) - 1)
        chunk = chunks[index]
        insort(chunk, entry)
        if len(chunk) > 2 * _CHUNK:
            chunks.insert(index + 1, chunk[_CHUNK:])
            del chunk[_CHUNK:]

    def remove(self, entry: Entry) -> None:
        """Remove an entry that is there."""
        chunks = self._chunks
        index = bisect_left(chunks, entry, key=_highest)
        chunk = chunks[index]
        del chunk[bisect_left(chunk, entry)]
        if not chunk:
            del chunks[index]

    def ascending(self, start: Entry = (), stop: Entry | None = None) -> Iterator[Entry]:
        """Walk the entries from `start` on and before `stop`; None means to the end."""
        chunks = self._chunks
        for index in range(bisect_left(chunks, start, key=_highest), len(chunks)):
            chunk = chunks[index]
            first = bisect_left(chunk, start)
            if stop is not None and not chunk[-1] < stop:
                yield from chunk[first : bisect_left(chunk, stop)]
                return
            yield from chunk[first:] if first else chunk

    def descending(self, start: Entry = (), stop: Entry | None = None) -> Iterator[Entry]:
        """Walk the entries before `stop` down to `start`."""
        chunks = self._chunks
        index = len(chunks) - 1
        if stop is not None:
            index = min(bisect_left(chunks, stop, key=_highest), index)
        while index >= 0:
            chunk = chunks[index]
            end = len(chunk) if stop is None else bisect_left(chunk, stop)
            first = bisect_left(chunk, start)
            yield from reversed(chunk[first:end])
            if first:
                return
            index -= 1

"""A shard: the records of one range of key hashes, for some time.

A new shard is open. It takes records in the order of their changes, is closed once, and is trimmed
from its old end. Its sequence numbers grow with random gaps. A child starts above its parent's last
number, so an item's records stay ordered over every split and roll. Two unrelated shards have
nothing in common, not even the length of their numbers.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from streamkit.local.limits import CallRate, ShardReaders
from streamkit.local.records import EngineRecord
from streamkit.local.waste import Waste

HASHES = 1 << 128
"""Key hashes are below this number."""

_GAP = 999
_PAGE_BYTES = 1 << 20
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class HashRange:
    """Key hashes from `low` up to, not including, `high`."""

    low: int = 0
    high: int = HASHES

    def divide(self, parts: int) -> "list[HashRange]":
        """Return equal parts of the range, in order."""
        width = self.high - self.low
        borders = [self.low + width * part // parts for part in range(parts + 1)]
        return [HashRange(low, high) for low, high in pairwise(borders) if low < high]


class EngineShard:
    """The records of a shard, in order.

    Records are kept in chunks. A full chunk is packed, and a trimmed chunk goes to `Waste` as a
    whole, so that neither a write nor a trim takes time in proportion to all records.

    Attributes:
        start: its `StartingSequenceNumber`, below every record.
        last: the last number that it gave out; when closed, its `EndingSequenceNumber`.
        trimmed: the number of the newest record that is gone; 0 while none is.
        closed: the time when it was closed; None while it is open.
        roll_at: the time when it closes by itself.
        hidden: whether every listing leaves it out, to simulate a shard that is not listed.
        read: the rate of reads.
        readers: the readers within the last second.
    """

    def __init__(
        self,
        shard_id: str,
        hashes: HashRange,
        start: int,
        created: float,
        *,
        parent: "EngineShard | None" = None,
        roll_at: float = float("inf"),
        waste: Waste | None = None,
    ) -> None:
        self.id = shard_id
        self.parent_id = parent.id if parent is not None else None
        self.hashes = hashes
        self.start = start
        self.last = start
        self.created = created
        self.closed: float | None = None
        self.roll_at = roll_at
        self.trimmed = 0
        self.hidden = False
        self.read = CallRate()
        self.readers = ShardReaders()
        self._waste = Waste() if waste is None else waste
        self._chunks: list[list[EngineRecord]] = []
        # The number of trimmed records in the first chunk.
        self._first = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def next_number(self, rng: random.Random) -> int:
        """Give out a sequence number."""
        self.last += 1 + int(rng.random() * _GAP)
        return self.last

    def append(self, record: EngineRecord) -> None:
        """Add a record with the number that was given out last."""
        chunks = self._chunks
        if not chunks or len(chunks[-1]) == _CHUNK:
            if chunks:
                for full in chunks[-1]:
                    full.pack()
            chunks.append([])
        chunks[-1].append(record)
        self._count += 1

    def records(self) -> list[EngineRecord]:
        """Return the records that are not trimmed, oldest first."""
        return list(self._from(0, self._first))

    def close(self, at: float) -> None:
        """Close the shard: it takes no more records."""
        self.closed = at

    def trim(self, before: float) -> None:
        """Forget the records created before a time."""
        chunks, first = self._chunks, self._first
        gone = 0
        while gone < len(chunks) and chunks[gone][-1].created < before:
            self.trimmed = chunks[gone][-1].sequence
            self._count -= len(chunks[gone]) - first
            first = 0
            gone += 1
        if gone < len(chunks):
            chunk = chunks[gone]
            start = first
            while chunk[first].created < before:
                first += 1
            if first > start:
                self.trimmed = chunk[first - 1].sequence
                self._count -= first - start
        self._first = first
        if gone:
            self._waste.add(chunks[:gone])
            del chunks[:gone]

    def discard(self) -> None:
        """Forget all records, because the shard itself is forgotten."""
        self.trim(float("inf"))

    def page(self, after: int, limit: int, published: float) -> list[EngineRecord]:
        """Return the records after a number: at most `limit` and 1 MB, published by now.

        No record is larger than that: it has two images of 400 KB at most, and a key.
        """
        page: list[EngineRecord] = []
        size = 0
        for record in self._behind(after):
            size += record.size
            if record.created > published or size > _PAGE_BYTES:
                break
            page.append(record)
            if len(page) == limit:
                break
        return page

    def newest(self, published: float) -> int:
        """Return the number after which nothing is published yet."""
        for place in range(len(self._chunks) - 1, -1, -1):
            chunk = self._chunks[place]
            first = self._first if place == 0 else 0
            for index in range(len(chunk) - 1, first - 1, -1):
                if chunk[index].created <= published:
                    return chunk[index].sequence
        return max(self.start, self.trimmed)

    def before(self, moment: float) -> int:
        """Return a number just below the first record created at `moment` or later."""
        for place, chunk in enumerate(self._chunks):
            if int(chunk[-1].created) >= moment:
                for record in self._from(place, self._first if place == 0 else 0):
                    if int(record.created) >= moment:
                        return record.sequence - 1
        return self.last

    def _behind(self, number: int) -> Iterator[EngineRecord]:
        """Walk the records above a number."""
        place = bisect_right(self._chunks, number, key=_last_number)
        if place == len(self._chunks):
            return iter(())
        first = bisect_right(self._chunks[place], number, key=_number)
        return self._from(place, max(first, self._first) if place == 0 else first)

    def _from(self, place: int, first: int) -> Iterator[EngineRecord]:
        """Walk the records, beginning with record `first` of chunk `place`."""
        for chunk in self._chunks[place : place + 1]:
            yield from chunk[first:]
        for number in range(place + 1, len(self._chunks)):
            yield from self._chunks[number]


_number = attrgetter("sequence")


def _last_number(chunk: list[EngineRecord]) -> int:
    return chunk[-1].sequence

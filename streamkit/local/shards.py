"""A shard: the records of one range of key hashes, for a while.

A shard is born open, takes records in the order of their changes, is closed once, and is trimmed
from its old end. Its numbers grow from its first to its last record with random gaps; a child
starts above its parent's last, so an item's records are ordered over every split and roll, while
two unrelated shards have nothing in common, not even the length of their numbers.
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from streamkit.local.limits import CallRate, Readers
from streamkit.local.records import Record

HASHES = 1 << 128
"""Key hashes are below this."""

_GAP = 999
_PAGE_BYTES = 1 << 20
_COMPACT = 256


@dataclass(frozen=True, slots=True)
class HashRange:
    """Key hashes from `low` up to, not including, `high`."""

    low: int = 0
    high: int = HASHES

    def divide(self, parts: int) -> "list[HashRange]":
        """Cut into equal neighbours."""
        width = self.high - self.low
        borders = [self.low + width * part // parts for part in range(parts + 1)]
        return [HashRange(low, high) for low, high in pairwise(borders) if low < high]


class Shard:
    """Records in order.

    Attributes:
        start: its `StartingSequenceNumber`, below every record.
        last: the last number it gave out; when closed, its `EndingSequenceNumber`.
        trimmed: the number of the newest record that is gone; 0 while none is.
        closed: when it was closed; None while it is open.
        roll_at: when it closes by itself.
        hidden: left out of every listing, to play a shard that is not listed.
        read: how often it is read.
        readers: by whom.
    """

    def __init__(
        self,
        shard_id: str,
        hashes: HashRange,
        start: int,
        created: float,
        *,
        parent: "Shard | None" = None,
        roll_at: float = float("inf"),
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
        self.readers = Readers()
        self._records: list[Record] = []
        self._numbers: list[int] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._records) - self._first

    def next_number(self, rng: random.Random) -> int:
        """Give out a sequence number."""
        self.last += 1 + int(rng.random() * _GAP)
        return self.last

    def append(self, record: Record) -> None:
        """Take a record whose number was given out last."""
        self._records.append(record)
        self._numbers.append(record.sequence)

    def records(self) -> list[Record]:
        """Return the records that are not trimmed, oldest first."""
        return self._records[self._first :]

    def close(self, at: float) -> None:
        """Take no more records."""
        self.closed = at

    def trim(self, before: float) -> None:
        """Forget the records created before a time."""
        first, records = self._first, self._records
        while first < len(records) and records[first].created < before:
            first += 1
        if first == self._first:
            return
        self.trimmed = self._numbers[first - 1]
        if first > _COMPACT and first * 2 > len(records):
            del records[:first]
            del self._numbers[:first]
            first = 0
        else:
            # The slots stay for now, the records must not.
            records[self._first : first] = [_TRIMMED] * (first - self._first)
        self._first = first

    def page(self, after: int, limit: int, published: float) -> list[Record]:
        """Return the records after a number: at most `limit`, 1 MB and what is published by now."""
        records = self._records
        index = max(self._first, bisect_right(self._numbers, after))
        stop = min(len(records), index + limit)
        page: list[Record] = []
        size = 0
        for record in records[index:stop]:
            size += record.size
            if record.created > published or (page and size > _PAGE_BYTES):
                break
            page.append(record)
        return page

    def newest(self, published: float) -> int:
        """Return the number after which nothing is published yet."""
        for index in range(len(self._records) - 1, self._first - 1, -1):
            if self._records[index].created <= published:
                return self._numbers[index]
        return max(self.start, self.trimmed)

    def before(self, moment: float) -> int:
        """Return a number that lies just before the first record of a moment or later."""
        for record in self._records[self._first :]:
            if int(record.created) >= moment:
                return record.sequence - 1
        return self.last


_TRIMMED = Record(0, 0, 0.0, {}, None, None, view="KEYS_ONLY", region="")

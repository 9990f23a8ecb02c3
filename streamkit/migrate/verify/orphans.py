"""Find copies whose source is gone, in a table of any size, without remembering all copies. Pure.

    first pass    a copy adds the digest of its key and its source to the sum of its bucket; a
                  source that leads to that copy subtracts the same
    later passes  look only at buckets whose sum is not zero: a copy is held until its source is
                  read, and copies that are held at the end of the pass have none

So the number of held copies depends on how much is wrong, and on `HELD_MAX`, not on the number of
items. A write between two reads can make a bucket unequal without an orphan; that costs a pass.
The sums of several parts of a pass add up to those of the pass.

In: copies and what sources lead to, in any order. Out: copies without a source.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

BUCKETS = 1024
HELD_MAX = 100_000
"""Copies that one pass may hold at once, unless a single bucket has more of them."""
_MODULUS = 1 << 32
"""The sums are kept modulo this: the copies of a bucket cancel out by chance only this seldom."""
_PACKED = struct.Struct(f">{BUCKETS}I")

T = TypeVar("T")


def pair_digest(copy: str, source: str) -> int:
    """Return the digest of a copy and the source that it names, each by the hash of its key."""
    return int.from_bytes(hashlib.blake2b(f"{copy}:{source}".encode(), digest_size=8).digest())


class PairBalance:
    """The sums of one pass over everything, or of a part of it: copies add, sources subtract."""

    def __init__(self, packed: bytes = b"", copies: int = 0) -> None:
        """Continue from sums that were `packed`, and the number of copies in them."""
        self._sums = list(_PACKED.unpack(packed)) if packed else [0] * BUCKETS
        self.copies = copies

    def there(self, pair: int) -> None:
        """Add a copy that exists."""
        self._add(pair % BUCKETS, pair // BUCKETS)
        self.copies += 1

    def led_to(self, pair: int) -> None:
        """Subtract a copy that a source leads to, and that existed."""
        self._add(pair % BUCKETS, -(pair // BUCKETS))

    def add(self, other: "PairBalance") -> None:
        """Add the sums of another part."""
        theirs = other._sums  # noqa: SLF001 - of the same class
        self._sums = [(mine + one) % _MODULUS for mine, one in zip(self._sums, theirs, strict=True)]
        self.copies += other.copies

    def packed(self) -> bytes:
        """Return the sums as 4 KB, or as nothing if all of them are zero."""
        return _PACKED.pack(*self._sums) if any(self._sums) else b""

    def rounds(self) -> Iterator[frozenset[int]]:
        """Yield the unequal buckets, as many at once as one pass may hold copies of."""
        unequal = [bucket for bucket, one in enumerate(self._sums) if one]
        at_once = max(1, HELD_MAX * BUCKETS // max(1, self.copies))
        for start in range(0, len(unequal), at_once):
            yield frozenset(unequal[start : start + at_once])

    def _add(self, bucket: int, number: int) -> None:
        self._sums[bucket] = (self._sums[bucket] + number) % _MODULUS


def everything(_pair: int) -> bool:
    """Return True: every pair is wanted."""
    return True


class PairSearch(Generic[T]):
    """A pass, or a part of it, that looks only at `wanted` pairs.

    `left` are the copies without a source so far, `ahead` the pairs whose source was read before
    their copy. Parts that are put together come to the same as if one process had read everything.
    """

    def __init__(self, wanted: Callable[[int], bool] = everything) -> None:
        self.wanted = wanted
        self.left: dict[int, T] = {}
        self.ahead: set[int] = set()

    def there(self, pair: int, copy: T) -> None:
        """Hold a copy, unless its source was read before."""
        if pair in self.ahead:
            self.ahead.remove(pair)
        else:
            self.left[pair] = copy

    def led_to(self, pair: int) -> None:
        """Release a copy, because its source was read, perhaps before the copy."""
        if not self.wanted(pair):
            return
        if self.left.pop(pair, None) is None:
            self.ahead.add(pair)

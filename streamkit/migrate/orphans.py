"""Find copies whose source is gone, in a table of any size, without remembering all copies. Pure.

    first pass    a copy adds the digest of its key and its source to the sum of its bucket; a
                  source that leads to that copy subtracts the same
    later passes  look only at buckets whose sum is not zero: a copy is held until its source is
                  read, and copies that are held at the end of the pass have none

So the number of held copies depends on how much is wrong, and on `HELD_MAX`, not on the number of
items. A write between two reads can make a bucket unequal without an orphan; that costs a pass.

In: copies and what sources lead to, in any order. Out: copies without a source.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

BUCKETS = 1024
HELD_MAX = 100_000
"""Copies that one pass may hold at once, unless a single bucket has more of them."""

T = TypeVar("T")


def pair_digest(copy: str, source: str) -> int:
    """Return the digest of a copy and the source that it names, each by the hash of its key."""
    return int.from_bytes(hashlib.blake2b(f"{copy}:{source}".encode(), digest_size=8).digest())


class Balance:
    """The sums of one pass over everything: copies add, sources subtract."""

    def __init__(self) -> None:
        self._sums = [0] * BUCKETS
        self._copies = [0] * BUCKETS

    def there(self, pair: int) -> None:
        """Add a copy that exists."""
        self._sums[pair % BUCKETS] += pair
        self._copies[pair % BUCKETS] += 1

    def led_to(self, pair: int) -> None:
        """Subtract a copy that a source leads to, and that existed."""
        self._sums[pair % BUCKETS] -= pair

    def rounds(self) -> Iterator[frozenset[int]]:
        """Yield the unequal buckets, as many at once as one pass may hold copies of."""
        buckets, held = set[int](), 0
        for bucket, count in enumerate(self._copies):
            if not self._sums[bucket]:
                continue
            if buckets and held + count > HELD_MAX:
                yield frozenset(buckets)
                buckets, held = set(), 0
            buckets.add(bucket)
            held += count
        if buckets:
            yield frozenset(buckets)


class Search(Generic[T]):
    """One pass that looks only at `wanted` pairs; `left` are the copies without a source so far."""

    def __init__(self, wanted: Callable[[int], bool]) -> None:
        self.wanted = wanted
        self.left: dict[int, T] = {}
        self._led_to: set[int] = set()

    def there(self, pair: int, copy: T) -> None:
        """Hold a copy, unless its source was read before."""
        if pair in self._led_to:
            self._led_to.remove(pair)
        else:
            self.left[pair] = copy

    def led_to(self, pair: int) -> None:
        """Release a copy, because its source was read, perhaps before the copy."""
        if not self.wanted(pair):
            return
        if self.left.pop(pair, None) is None:
            self._led_to.add(pair)

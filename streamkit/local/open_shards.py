"""The open shards of a stream: which one takes a change, and which one closes next.

In: shards that cover all key hashes, and their replacements. Out: the shard of a hash, and shards
that are due to roll. Replacing one shard does not move the rest, so the time to roll all of them
is proportional to their number.
"""

from bisect import bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from streamkit.local.shards import EngineShard

_NEVER = float("inf")


class OpenShards:
    """Shards by hash range.

    Args:
        shards: in the order of their ranges, which cover all hashes; none for a disabled stream.

    Attributes:
        next_roll: no shard is due before this time.
    """

    __slots__ = ("_lows", "_rolls", "_shards", "next_roll")

    def __init__(self, shards: Iterable[EngineShard] = ()) -> None:
        self._shards = list(shards)
        self._lows = [shard.hashes.low for shard in self._shards]
        # Shards that are replaced before they are due stay in this heap until then.
        self._rolls = [(shard.roll_at, shard.id, shard) for shard in self._shards]
        heapify(self._rolls)
        self.next_roll = self._rolls[0][0] if self._rolls else _NEVER

    def __len__(self) -> int:
        return len(self._shards)

    def all(self) -> list[EngineShard]:
        """Return the shards in the order of their ranges."""
        return list(self._shards)

    def at(self, key_hash: int) -> EngineShard:
        """Return the shard whose range contains a hash."""
        return self._shards[bisect_right(self._lows, key_hash) - 1]

    def replace(self, parent: EngineShard, children: list[EngineShard]) -> None:
        """Replace a shard by its children, which divide its range in order."""
        place = bisect_right(self._lows, parent.hashes.low) - 1
        self._shards[place : place + 1] = children
        self._lows[place : place + 1] = [child.hashes.low for child in children]
        for child in children:
            heappush(self._rolls, (child.roll_at, child.id, child))
        self.next_roll = self._rolls[0][0]

    def take_due(self) -> EngineShard | None:
        """Remove the shard that is due at `next_roll` from the order of rolls.

        Returns:
            The shard, which is still open; None when it was replaced before it was due.
        """
        shard = heappop(self._rolls)[2]
        self.next_roll = self._rolls[0][0] if self._rolls else _NEVER
        return shard if shard.closed is None else None

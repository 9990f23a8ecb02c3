"""A stream: a table with a `StreamSpecification` writes its changes to one.

Every change of an item calls `Stream.append`. Disabling the stream or deleting the table calls
`Stream.disable`. A disabled stream stays readable for the retention time, then it is gone. Events
due by time happen at the next access: there is no timer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from streamkit.local.catalogue import Catalogue
from streamkit.local.limits import CallRate
from streamkit.local.open_shards import OpenShards
from streamkit.local.records import EngineRecord, Source
from streamkit.local.shards import EngineShard, HashRange
from streamkit.local.stream_settings import StreamSettings
from streamkit.local.values import Item
from streamkit.local.waste import Waste

VIEW_TYPES = ("KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")


@dataclass(frozen=True, slots=True)
class StreamCommons:
    """What all streams of an engine have in common; `waste` frees trimmed records bit by bit."""

    clock: Callable[[], float]
    rng: random.Random
    settings: StreamSettings
    waste: Waste


class Stream:
    """The changes of one table's items while the stream was enabled.

    Attributes:
        described: the rate of `DescribeStream` calls.
    """

    def __init__(
        self,
        arn: str,
        table_name: str,
        key_schema: list[dict[str, str]],
        view_type: str,
        *,
        commons: StreamCommons,
        shards: int,
    ) -> None:
        self.arn = arn
        self.label = arn.rpartition("/")[2]
        self.table_name = table_name
        self.key_schema = key_schema
        self.view_type = view_type
        self.created = commons.clock()
        self.disabled: float | None = None
        self.settings = commons.settings
        self._clock = commons.clock
        self._rng = commons.rng
        self._waste = commons.waste
        names = tuple(part["AttributeName"] for part in key_schema)
        self._source = Source(view_type, arn.split(":")[3], names)
        self._hashed = names if self.settings.spread_collections else names[:1]
        self.described = CallRate()
        self._dropped = False
        self._left = Catalogue()
        self._open = OpenShards(
            self._add(hashes, self._first_number(), self.created)
            for hashes in HashRange().divide(shards)
        )

    @property
    def status(self) -> str:
        """Return ENABLED or DISABLED."""
        return "ENABLED" if self.disabled is None else "DISABLED"

    def append(
        self,
        keys: Item,
        old: Item | None,
        new: Item | None,
        identity: dict[str, Any] | None = None,
        *,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        """Record one change. The caller has checked that the images differ, and never changes them.

        Args:
            keys: the item's key.
            old: the item before, if there was one.
            new: the item after, if there is one.
            identity: the service that made the change, if no user did.
            sizes: the sizes of `old` and `new`, if they are known.
        """
        if not self._open:
            return  # disabled between the change and its commit
        now = self._clock()
        if now >= self._open.next_roll:
            self._roll_due(now)
        shard = self._open.at(self._hash(keys) if len(self._open) > 1 else 0)
        number = shard.next_number(self._rng)
        event_id = self._rng.getrandbits(128)
        record = EngineRecord(
            event_id,
            number,
            now,
            keys,
            (old, new),
            source=self._source,
            identity=identity,
            sizes=sizes,
        )
        shard.append(record)
        if self._waste:
            self._waste.free()

    def shard(self, shard_id: str) -> EngineShard | None:
        """Return a shard that is not trimmed away, listed or not; None if there is none."""
        now = self._clock()
        self._roll_due(now)
        self._waste.free()
        shard = self._left.find(shard_id)
        if shard is not None:
            shard.trim(now - self.settings.retention)
        return shard

    def shards(self) -> list[EngineShard]:
        """Return the shards that are not trimmed away, oldest first."""
        self.settle()
        return self._left.all()

    def open_shards(self) -> list[EngineShard]:
        """Return the shards that take records, by hash range; none when disabled."""
        self._roll_due(self._clock())
        return self._open.all()

    def catalogue(self) -> Catalogue:
        """Return the catalogue of the shards that are left by now; do not keep it."""
        self._roll_due(self._clock())
        return self._left

    def split(self, shard_id: str) -> list[EngineShard]:
        """Close a shard; two children take half of its hashes each.

        Raises:
            ValueError: there is no such shard, or it is closed.
        """
        parent = self._opened(shard_id)
        return self._replace(parent, parent.hashes.divide(2), self._clock())

    def roll(self, shard_id: str) -> EngineShard:
        """Close a shard; one child takes all of its hashes.

        Raises:
            ValueError: there is no such shard, or it is closed.
        """
        parent = self._opened(shard_id)
        return self._replace(parent, [parent.hashes], self._clock())[0]

    def trim(self, before: float = float("inf")) -> None:
        """Drop everything older than a time: records, closed shards, a disabled stream."""
        for shard in self.shards():
            shard.trim(before)
        self._left.forget_closed(before)
        self._dropped = self.disabled is not None and self.disabled < before

    def disable(self) -> None:
        """Close all shards. A stream is never enabled again: the table gets a new one."""
        if self.disabled is not None:
            return
        self.settle()
        self.disabled = self._clock()
        for shard in self._open.all():
            self._left.close(shard, self.disabled)
        self._open = OpenShards()

    def gone(self) -> bool:
        """Return whether the stream was disabled so long ago that nothing is left of it."""
        if self.disabled is None:
            return False
        return self._dropped or self.disabled < self._clock() - self.settings.retention

    def forget(self) -> None:
        """Give the records to `Waste`, because the stream is gone."""
        self._left.forget_all()

    def settle(self) -> None:
        """Carry out all rolls and trims that are due by now."""
        now = self._clock()
        self._roll_due(now)
        self._waste.free()
        for shard in self._left.all():
            shard.trim(now - self.settings.retention)

    def _opened(self, shard_id: str) -> EngineShard:
        shard = self.shard(shard_id)
        if shard is None or shard.closed is not None:
            raise ValueError(f"no open shard {shard_id!r} in {self.arn}")
        return shard

    def _hash(self, keys: Item) -> int:
        text = "\0".join(
            [f"{kind}{raw}" for name in self._hashed for kind, raw in keys[name].items()]
        )
        return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest(), "big")

    def _roll_due(self, now: float) -> None:
        while now >= self._open.next_roll:
            shard = self._open.take_due()
            if shard is not None:
                self._roll_by_time(shard, now)
        # A stream without readers must not grow for ever.
        self._left.forget_closed(now - self.settings.retention - self.settings.linger)

    def _roll_by_time(self, parent: EngineShard, now: float) -> None:
        period = self.settings.roll_after
        if period is None:
            return  # the shard stays open
        # After a long jump of the clock, generations that no reader could see are left out.
        earliest = now - self.settings.retention - self.settings.linger - 2 * period
        at = parent.roll_at
        self._replace(parent, [parent.hashes], at, born=max(at, earliest))

    def _replace(
        self, parent: EngineShard, ranges: list[HashRange], at: float, *, born: float | None = None
    ) -> list[EngineShard]:
        self._left.close(parent, at)
        created = at if born is None else born
        children = [
            self._add(hashes, parent.last + self._rng.randrange(1, 1000), created, parent)
            for hashes in ranges
        ]
        self._open.replace(parent, children)
        return children

    def _add(
        self, hashes: HashRange, start: int, created: float, parent: EngineShard | None = None
    ) -> EngineShard:
        milliseconds = int(created * 1000)
        if parent is not None:
            # Ids sort by age; a child is younger even when the clock stands still.
            milliseconds = max(milliseconds, int(parent.id.split("-")[1]) + 1)
        shard_id = f"shardId-{milliseconds:020d}-{self._rng.getrandbits(32):08x}"
        period = self.settings.roll_after
        roll_at = float("inf") if period is None else created + period * self._rng.uniform(0.9, 1.1)
        shard = EngineShard(
            shard_id, hashes, start, created, parent=parent, roll_at=roll_at, waste=self._waste
        )
        self._left.add(shard)
        return shard

    def _first_number(self) -> int:
        digits = self.settings.sequence_digits
        if digits is not None:
            return self._rng.randrange(10 ** (digits - 1), 2 * 10 ** (digits - 1))
        digits = self._rng.randrange(21, 27)
        if self._rng.random() < 0.25:
            # The number is about to gain a digit, where text order and number order differ.
            return int(10**digits) - self._rng.randrange(10**5)
        return self._rng.randrange(10 ** (digits - 1), 9 * 10 ** (digits - 1))

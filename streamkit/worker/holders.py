"""Holders: the shards of one worker that have parked queues.

In: a shard when its pipeline begins, with callbacks for what becomes of its queues. Out: which
queues the worker holds now. A queue may be in two shards of one worker, as after a split.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamkit.progress.control import QueuedKey


@dataclass(frozen=True, slots=True)
class Holder:
    """A shard of this worker: its parked queues, and callbacks for emptied and new ones.

    `queues` returns its parked queues now. A queue that begins again has a new `QueuedKey` object.
    `emptied` is called with a queue that is not in the table any more; but only if the shard's
    `QueuedKey` is still the one from before the look at the table, so that the queue may be
    forgotten. `begun` is called with new queues of the shard: those of recipients for whom a
    fan-out has parked its change.
    """

    queues: Callable[[], Mapping[str, QueuedKey]]
    emptied: Callable[[str], object]
    begun: Callable[[Mapping[str, QueuedKey]], object]


class Holders:
    """The shards of one worker that have parked queues."""

    def __init__(self) -> None:
        self._shards: dict[str, Holder] = {}

    def add(self, shard: str, holder: Holder) -> None:
        """Add a shard."""
        self._shards[shard] = holder

    def remove(self, shard: str) -> None:
        """Remove a shard."""
        self._shards.pop(shard, None)

    @property
    def queues(self) -> set[str]:
        """Return the parked queues of all shards."""
        return {name for holder in self._shards.values() for name in holder.queues()}

    def holds(self, queue: str) -> dict[str, tuple[Holder, QueuedKey]]:
        """Return the entries of a parked queue in each shard, at this moment."""
        held = [(shard, one, one.queues().get(queue)) for shard, one in self._shards.items()]
        return {shard: (holder, hold) for shard, holder, hold in held if hold is not None}

    def begin(self, fan_out: str, queues: Mapping[str, QueuedKey]) -> None:
        """Add queues of recipients that a fan-out parked to the shards that list its own."""
        for holder, _ in self.holds(fan_out).values():
            holder.begun(queues)

    def begin_listed(self, shard: str, chunk: str, names: Iterable[str]) -> None:
        """Add the queues that are listed in a chunk to its shard, unless it knows them."""
        holder = self._shards.get(shard)
        if holder is not None:
            known = holder.queues()
            new = {name: QueuedKey(chunk) for name in names if name not in known}
            if new:
                holder.begun(new)

    def end(self, queue: str, before: Mapping[str, tuple[Holder, QueuedKey]]) -> None:
        """Tell the shards of a queue that it is gone. Skip shards whose queue is newer."""
        for shard, (holder, hold) in before.items():
            if self._shards.get(shard) is holder and holder.queues().get(queue) is hold:
                holder.emptied(queue)

"""Queueing: which actions park a change that failed, or queue it behind one that is parked. Pure.

In: a change, its outcome, the parked queues of its shard and of the planned commit. Out: the
actions of one commit; the queue that the change is in, for the changes behind it.
"""

from collections.abc import Mapping

import msgspec

from streamkit.changes import ItemKey
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import (
    ParkedRecord,
    chunk_of,
    next_due,
    park,
    payload_of,
    queue_behind,
    queue_name,
    stored,
)
from streamkit.errors import InvariantError
from streamkit.progress.actions import Action
from streamkit.progress.control import ControlSpace, QueuedKey

CHUNK_QUEUES = 100
"""Parked queues that a `holds` item names before a new item is begun: 24 bytes each."""


class Queueing(msgspec.Struct, frozen=True):
    """Parks and queues the changes of one shard.

    `queues` are its parked queues when planning begins. Where no cursor names the chunks of queued
    keys, `chunks` says which there are. `generation` is that of its cursor.
    """

    space: ControlSpace
    shard: str
    queues: Mapping[str, QueuedKey]
    chunks: tuple[str, ...]
    generation: int

    def actions(
        self,
        change: PendingChange,
        key: ItemKey,
        outcome: Outcome,
        begun: tuple[Mapping[str, QueuedKey], dict[str, QueuedKey]],
        now: float,
    ) -> list[Action]:
        """Return the actions that park or queue a change.

        `begun` are the queues of the changes that are planned already, and those of this change, to
        which its queue is added. `now` is in epoch seconds.
        """
        planned, queued = begun
        handler = outcome.handler
        queue = queue_name(handler.name, key)
        if handler.commutes:
            queue = f"{queue}-{change.position}"  # a queue of its own: nothing waits behind it
        parked = _parked(change, outcome, self.shard, now, self.generation)
        planned_key = planned.get(queue)
        known = planned_key or self.queues.get(queue)
        if known is None:
            chunk = self._chunk(queue, {**planned, **queued})
            queued[queue] = QueuedKey(chunk, change.position)
            return park(self.space, queue, parked, chunk)
        if known.tail is None:
            raise InvariantError(f"queue {queue} was planned before its tail was read")
        queued[queue] = QueuedKey(known.chunk, change.position)
        return queue_behind(self.space, queue, parked, known.tail, guarded=planned_key is None)

    def _chunk(self, queue: str, begun: Mapping[str, QueuedKey]) -> str:
        """Return the chunk of queued keys that a new parked queue goes to."""
        if self.chunks:
            return chunk_of(queue, self.chunks)
        mine = [
            known.chunk
            for known in (*self.queues.values(), *begun.values())
            if known.chunk.startswith(f"{self.shard}.")
        ]
        return f"{self.shard}.{len(mine) // CHUNK_QUEUES}"


def _parked(
    change: PendingChange, outcome: Outcome, shard: str, now: float, generation: int
) -> ParkedRecord:
    record, entity = change.seen_by(outcome.handler)
    if record is None or entity is None:
        raise InvariantError("the end of a page cannot be parked")
    policy, failure = outcome.handler.policy, outcome.failure
    # A deferred change must outlast the stream's 24 hours, so its whole record is stored.
    lasts = outcome.deferred or outcome.handler.broadcast is not None
    payload = payload_of(record, "whole" if lasts else policy.payload)
    return ParkedRecord(
        handler=outcome.handler.name,
        entity=entity.__name__,
        shard=shard,
        position=change.position,
        record=stored(record, payload),
        failure=failure,
        at=int(now),
        due=0 if failure is None else next_due(policy, failure, 0, now),
        payload=payload,
        build=outcome.handler.build,
        generation=generation,
    )

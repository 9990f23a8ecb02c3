"""Make recipients of a fan-out pending changes, for a commit loop.

In: the next recipients of an audience. Out: one pending change each, whose outcome has the effects
for this recipient alone; and a planner that knows how one is parked.

On failure: a recipient that still fails after its handler's attempts is parked in a queue of its
own. A recipient of a generator cannot be found again; if it fails, the fan-out stops there until it
succeeds. While most recipients fail, or too many are parked already, the fan-out itself has failed.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamkit.changes import Change, ItemKey
from streamkit.core.breaker import LEAST
from streamkit.core.draft import Draft
from streamkit.core.handler import Broadcast, Handler, OnFailure
from streamkit.core.narrowing import ALL
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parked.queues import ParkedQueue
from streamkit.core.parking import (
    Failure,
    Parked,
    ParkedRecord,
    next_due,
    park,
    payload_of,
    stored,
)
from streamkit.core.planning import Blocked, Planner, Rerun, TooLarge
from streamkit.errors import InvariantError
from streamkit.kinds.fan_out.audience import Recipient
from streamkit.kinds.fan_out.fan_out import serving
from streamkit.kinds.fan_out.place import FanOutPlace
from streamkit.progress.actions import ITEMS_MAX, Action
from streamkit.progress.commit import Batch
from streamkit.progress.control import Cursor, QueuedKey

TOGETHER = ITEMS_MAX
"""Recipients of one transaction, if each has one effect."""
APART_MAX = 1000
"""The most recipients of one fan-out that are parked: their queues' names share an item of 400
KB."""


class FanOutChange(msgspec.Struct, frozen=True):
    """A change that is being fanned out: typed, pending, and parked.

    `breaks` says that the fan-out itself fails while most of its recipients do.
    """

    handler: Handler
    broadcast: Broadcast
    change: Change[Any]
    pending: PendingChange
    queue: ParkedQueue
    head: Parked
    breaks: bool

    @classmethod
    def of(
        cls,
        handler: Handler,
        change: Change[Any],
        pending: PendingChange,
        queue: ParkedQueue,
        head: Parked,
        *,
        by_hand: bool,
    ) -> "FanOutChange":
        """Return a change whose recipients fail one by one: none blocks, and none fans out again.

        By hand, each recipient that fails is parked, however many they are.
        """
        policy, broadcast = handler.policy, handler.broadcast
        if broadcast is None:
            raise InvariantError(f"{handler.name} is not a fan-out")
        breaks = policy.breaker and not by_hand
        on_failure: OnFailure = "skip" if policy.on_failure == "skip" else "park"
        policy = replace(policy, on_failure=on_failure, breaker=False)
        # Each recipient has a queue of its own; the handler's `when` was evaluated before.
        handler = replace(handler, policy=policy, commutes=True, when=None)
        return cls(handler, broadcast, change, pending, queue, head, breaks)

    def pending_changes(self, numbered: Iterable[tuple[str, Recipient]]) -> list[PendingChange]:
        """Return recipients as pending changes, at their positions; their handlers must run."""
        (first,) = self.pending.outcomes
        return [
            replace(
                self.pending,
                position=position,
                outcomes=[
                    Outcome(
                        serving(self.handler, recipient),
                        waiting=True,
                        aim=first.aim,
                        trace=self.pending.trace,
                        to=recipient.name,
                    )
                ],
            )
            for position, recipient in numbered
        ]

    def queue_of(self, recipient: str) -> str:
        """Return the name of the queue in which the change is parked for one recipient alone."""
        text = f"{self.queue.name}\0{self.head.position}\0{recipient}"
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def parked(self, recipient: str, failure: Failure, now: float) -> ParkedRecord:
        """Return what is stored of the change for one recipient alone."""
        head, policy = self.head, self.handler.policy
        record, payload = head.record, head.payload
        if self.pending.record is not None:
            payload = payload_of(self.pending.record, policy.payload)
            record = stored(self.pending.record, payload)
        return ParkedRecord(
            handler=head.handler,
            entity=head.entity,
            shard=head.shard,
            position=head.position,
            record=record,
            failure=failure,
            at=int(now),
            due=next_due(policy, failure, 0, now),
            payload=payload,
            to=recipient,
            generation=self.queue.generation,
        )


@dataclass(kw_only=True)
class RecipientPlanner(Planner):
    """Plans commits for some recipients of a fan-out; those in `lost` cannot be read again."""

    fanned: FanOutChange
    place: FanOutPlace
    outcomes: Sequence[Outcome]
    lost: Collection[str]

    def plan(
        self,
        pending: Iterable[PendingChange],
        cursor: Cursor,
        *,
        most: int = ALL,
        split: bool = False,
    ) -> Batch | Rerun | TooLarge | Blocked:
        """Plan the next commit, unless the fan-out itself has failed because most recipients fail.

        A failure that never heals does not count: it says nothing about the other recipients.
        """
        failures = (outcome.failure for outcome in self.outcomes)
        failing = [failure for failure in failures if failure is not None and failure.heals]
        enough = self.fanned.breaks and len(self.outcomes) >= LEAST
        if enough and 2 * len(failing) > len(self.outcomes):
            return Blocked(failing[0])
        return super().plan(pending, cursor, most=most, split=split)

    def blocks(self, change: PendingChange, draft: Draft) -> bool:
        """Return whether a failed recipient stops the fan-out, because it cannot be parked."""
        (outcome,) = change.outcomes
        apart = self.place.reached.apart + len(draft.queued)
        return outcome.to in self.lost or apart >= APART_MAX

    def parking(
        self,
        change: PendingChange,  # noqa: ARG002 - it is the same change for all
        key: ItemKey,  # noqa: ARG002
        outcome: Outcome,
        draft: Draft,
        queued: dict[str, QueuedKey],
    ) -> list[Action]:
        """Return the actions that park the change for one recipient alone."""
        queue, head = self.fanned.queue_of(outcome.to), self.fanned.head
        if outcome.failure is None or queue in self.queues or queue in draft.queued:
            return []  # the audience has it twice, and it is parked already
        chunk = self.fanned.queue.chunk  # recipients are listed in the fan-out's chunk
        queued[queue] = QueuedKey(chunk, head.position)
        parked = self.fanned.parked(outcome.to, outcome.failure, self.clock.time())
        return park(self.space, queue, parked, chunk)

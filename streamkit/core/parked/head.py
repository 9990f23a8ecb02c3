"""Unparking: how a change leaves its parked queue.

In: a queue and its first change, as read. Out: one transaction. The queue's head moves to the next
change IF it is still this one, and the parked change is deleted IF it is there. The last change
ends the queue IF nothing was added behind it. Then the transaction also takes the queue off its
chunk of queued keys and, for the Lambda host's queues, off its item's high-water mark. A second
attempt finds the conditions false. A change that failed again remains where it is, with its error;
its queue says when it is due next.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streamkit.core.high_water_mark import let_go
from streamkit.core.loop import Overtaken
from streamkit.core.outcome import PendingChange
from streamkit.core.parked.queues import ParkedQueue
from streamkit.core.parking import LAMBDA_CHUNKS, Failure, Parked, waiting_state
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, Condition, absent, any_of, present
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import BYTES_MAX, MARK_GUARD, QUEUE, Action, GuardSource, Verb
from streamkit.progress.clock import Clock
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import ACTIONS_MAX, transact
from streamkit.progress.verdicts import Invalid, RefusedCommit

_START = Cursor("head")
"""The start of planning: a queue's first change has no position; it is there, or it is gone."""


@dataclass
class Head:
    """A parked queue's first change as a fence: its effects commit IF it is still the first.

    `step` says what became of the change: None until it has left its queue. A refused head means
    that it was overtaken, perhaps by an earlier commit of this same fence; the caller need not know
    which.
    """

    store: CursorStore
    schemas: Mapping[str, TableSchema]
    queue: ParkedQueue
    head: Parked
    rng: random.Random
    clock: Clock
    step: Literal["done", "overtaken"] | None = None

    @property
    def start(self) -> Cursor:
        """Return a cursor without a position: there is one change."""
        return _START

    async def commit(
        self,
        plan: Batch,
        pending: Sequence[PendingChange],  # noqa: ARG002 - there is one
    ) -> Verdict | Overtaken:
        """Take the change off its queue, together with its effects.

        Approximate effects go into the same transaction: there is room for them, so they are exact.
        """
        effects, plan.plain = [*plan.actions, *plan.plain], []
        sent = await take_off(
            self.store, self.schemas, self.queue, self.head, effects, self.rng, self.clock
        )
        if sent is None:
            self.step = "done"
            return Applied(plan)
        if isinstance(sent, RefusedCommit) and any(
            source.effect == QUEUE for source in sent.sources
        ):
            self.step = "overtaken"
            return Overtaken([])
        return sent

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> list[PendingChange]:
        """Drop the change; it was counted when it was parked."""
        for _ in range(plan.changes):
            pending.popleft()
        return []

    def adopted(self, won: Batch) -> None:
        """Do nothing: `commit` has noted in `step` that the change left its queue."""


async def take_off(
    store: CursorStore,
    schemas: Mapping[str, TableSchema],
    queue: ParkedQueue,
    head: Parked,
    effects: Sequence[Action],
    rng: random.Random,
    clock: Clock,
) -> RefusedCommit | Invalid | None:
    """Take the first change off its queue, with its effects, in one transaction; None means done.

    A concurrent change of its item's high-water mark does not refuse it: the mark is read again.
    """
    while True:
        unlist = await _unlist(store, queue, head, clock)
        advance, removal = _advance(store.space, queue, head), _removal(store.space, head)
        everything = [advance, *unlist, *removal, *effects]
        size = sum(action.size() for action in everything) + len(head.record)
        if len(everything) > ACTIONS_MAX or size > BYTES_MAX:
            return await _take_off_alone(store, schemas, queue, head, effects, rng, clock)
        # If the process dies here, the change is still first, or gone with its effects applied.
        sent = await transact(store.dynamodb, schemas, everything, rng)
        if not _outdated(sent):
            return sent


async def _take_off_alone(
    store: CursorStore,
    schemas: Mapping[str, TableSchema],
    queue: ParkedQueue,
    head: Parked,
    effects: Sequence[Action],
    rng: random.Random,
    clock: Clock,
) -> RefusedCommit | Invalid | None:
    """Take a change with many effects off its queue in several transactions: the head first.

    The queue's condition is enough, because positions are never used twice. A crash before the rest
    only costs space, and the list of queued keys is an upper bound.
    """
    advance = _advance(store.space, queue, head)
    sent = await transact(store.dynamodb, schemas, [advance, *effects], rng)
    if sent is not None:
        return sent
    removal = _removal(store.space, head)
    for start in range(0, len(removal), ACTIONS_MAX):
        some = removal[start : start + ACTIONS_MAX]
        for action in some:
            action.guards.clear()
        await transact(store.dynamodb, schemas, some, rng)
    while unlist := await _unlist(store, queue, head, clock):
        gone = [(Guard(absent), GuardSource(head.position, queue.name, QUEUE))]
        unlist.append(Action(advance.ref, Verb.CHECK, guards=gone))  # not if it was listed again
        if not _outdated(await transact(store.dynamodb, schemas, unlist, rng)):
            return None
    return None


def _outdated(sent: RefusedCommit | Invalid | None) -> bool:
    """Return whether a transaction was refused only because its item's mark has changed."""
    effects = (
        {source.effect for source in sent.sources} if isinstance(sent, RefusedCommit) else set()
    )
    return MARK_GUARD in effects and QUEUE not in effects


async def postpone(
    store: CursorStore,
    head: Parked,
    failure: Failure,
    tries: int,
    due: int | None,
    rng: random.Random,
) -> bool:
    """Record that the first change failed again, and when it is due next.

    Args:
        store: the consumer's control items.
        head: the change, as read.
        failure: why.
        tries: the queue's count of tries from now on.
        due: epoch seconds; None means stuck.
        rng: jitter of repetitions.

    Returns:
        Whether it was written: False if another process changed the queue meanwhile.
    """
    source = GuardSource(head.position, head.queue, QUEUE)
    change = store.space.update("parked", head.queue, head.position)
    change.sets |= {
        "error": {"S": failure.kind},
        "detail": {"S": failure.told(head.payload)},
        "attempts": {"N": str(head.attempts + failure.attempts)},
    }
    attempts = Attr("attempts")
    as_read: Condition = attempts.eq(head.attempts)
    if not head.attempts:  # parked without a run, or queued behind another change
        as_read = any_of(attempts.not_exists(), as_read)
    change.guards += [(Guard(present), source), (Guard(as_read), source)]
    queue = store.space.update("lane", head.queue)
    queue.sets |= {"tries": {"N": str(tries)}, **waiting_state(due)}
    queue.removes |= {"due", "stuck"} - queue.sets.keys()
    queue.guards.append((Guard(Attr("head").eq(head.position)), source))
    schemas = {store.space.schema.name: store.space.schema}
    return await transact(store.dynamodb, schemas, [queue, change], rng) is None


def _advance(space: ControlSpace, queue: ParkedQueue, head: Parked) -> Action:
    """Return the action that makes the next change the first one, or ends the queue."""
    source = GuardSource(head.position, head.queue, QUEUE)
    begun = Attr("generation")  # a rewind may have dropped it, and a later change begun it again
    same = begun.eq(queue.generation) if queue.generation else begun.not_exists()
    is_first = Attr("head").eq(head.position) & same
    if head.next is not None:
        action = space.update("lane", head.queue)
        action.sets["head"] = {"S": head.next}
        # Nothing is known yet about the next change.
        action.removes |= {"due", "tries", "stuck", "token", "served", "apart"}
        action.guards.append((Guard(is_first), source))
        return action
    action = space.delete("lane", head.queue)
    is_last = Attr("tail").eq(head.position) & Attr("chunk").eq(queue.chunk)
    action.guards.append((Guard(is_first & is_last), source))
    return action


async def _unlist(
    store: CursorStore, queue: ParkedQueue, head: Parked, clock: Clock
) -> list[Action]:
    """Return the actions that take a queue that ends off its chunk, and off its item's mark."""
    if head.next is not None:
        return []
    action = store.space.without_name(queue.name, "holds", queue.chunk, among="lanes")
    if queue.chunk not in LAMBDA_CHUNKS:
        return [action]
    return [action, *await let_go(store, head, clock.time())]


def _removal(space: ControlSpace, head: Parked) -> list[Action]:
    """Return the actions that delete a parked change, IF it is there, and its record's parts."""
    parked = space.delete("parked", head.queue, head.position)
    source = GuardSource(head.position, head.queue, QUEUE)
    parked.guards.append((Guard(present), source))
    parts = (str(number) for number in range(head.parts))
    return [parked, *(space.delete("part", head.queue, head.position, n) for n in parts)]

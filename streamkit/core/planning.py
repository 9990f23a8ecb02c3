"""Planning: choose the pending changes and the actions of the next commit. Pure.

In: the pending changes of a shard, in order, and its cursor. Out: a `Batch` that ends between two
changes and holds at most 99 items and 4 MB (with high-water marks, 100 including the mark of each
item); or a `Rerun`, when a handler must run (again) before anything behind it can go; or
`TooLarge`, for a result without room; or `Blocked`, when a failed change stays. When the handlers
of *one* change do not fit together, they go in several commits, and the cursor names the ones that
are done.

Two things are decided here, because they depend on everything before: whether a change meets a
queued key and queues, and whether what a handler read is still what the changes before it leave.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from streamkit.changes import ItemKey
from streamkit.core.draft import Draft
from streamkit.core.narrowing import ALL
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import Failure, queue_name
from streamkit.core.queueing import Queueing
from streamkit.core.reads import checks
from streamkit.errors import InvariantError
from streamkit.progress.actions import ITEMS_MAX, Action
from streamkit.progress.clock import Clock
from streamkit.progress.commit import Batch
from streamkit.progress.control import ControlSpace, Cursor, QueuedKey

SENDS_MAX = 100
"""The most outcomes with sends in one commit, so that it does not wait long for sinks."""


class Rerun(msgspec.Struct, frozen=True):
    """This outcome must be made (again), now that all changes before it are settled."""

    change: PendingChange
    outcome: Outcome


class TooLarge(msgspec.Struct, frozen=True):
    """This result alone does not fit into a commit of this host, so it must be parked.

    A result that no host has room for has failed earlier; a commit during a move also holds the
    move's token. A block is taken apart instead, also where one of its changes has to queue.
    """

    outcome: Outcome


class Blocked(msgspec.Struct, frozen=True):
    """The first change failed and is not parked here; it stays, with all that is behind it."""

    failure: Failure


@dataclass(slots=True)
class Planner:
    """Plans the commits of one shard. `queues` are the parked queues when planning begins.

    Where no cursor names the chunks of queued keys, `chunks` says which there are. A commit has
    `room` for so many actions; with `marks` each item of its changes takes one of them for its
    high-water mark. Without `parks`, a change that fails stays, with all behind it, because it is
    parked already. `generation` is that of the cursor, 0 if there is none.
    """

    space: ControlSpace
    clock: Clock
    shard: str
    queues: dict[str, QueuedKey] = field(default_factory=dict)
    chunks: tuple[str, ...] = ()
    room: int = ITEMS_MAX
    marks: bool = False
    parks: bool = True
    generation: int = 0

    def plan(
        self,
        pending: Iterable[PendingChange],
        cursor: Cursor,
        *,
        most: int = ALL,
        split: bool = False,
    ) -> Batch | Rerun | TooLarge | Blocked:
        """Plan the next commit of the pending changes.

        Args:
            pending: everything uncommitted, in order.
            cursor: as it is in the table, at the position up to which all is done.
            most: how many changes to take at most; lowered to find an invalid action.
            split: plan one handler of the first change alone, for the same purpose.
        """
        draft = Draft(self.room)
        position, dated, done, taken = cursor.position, cursor.dated, cursor.done, 0
        for change in islice(pending, most):
            todo = change.outcomes
            if done:
                todo = [outcome for outcome in todo if _mark(change, outcome) not in done]
            late = self._not_ready(change, todo, draft)
            if late is not None:
                if draft.actions or taken:
                    break
                return late
            if self.marks:
                draft.mark(change)
            if split or not self._offer(change, todo, draft):
                if draft.actions or draft.sends or (self.marks and taken):
                    break
                offered = self._handler_by_handler(change, todo, draft, only_one=split)
                if isinstance(offered, TooLarge):
                    return offered
                done |= offered
                if any(_mark(change, outcome) not in done for outcome in todo):
                    self._note_writes(change, [o for o in todo if _mark(change, o) in done], draft)
                    break
            taken += 1
            position, dated, done = change.position, int(change.dated), frozenset()
            self._note_writes(change, todo, draft)
        return draft.batch(cursor, taken, position=position, dated=dated, done=done)

    def _not_ready(
        self, change: PendingChange, todo: Sequence[Outcome], draft: Draft
    ) -> Rerun | Blocked | TooLarge | None:
        """Return the first outcome that must run before it can be planned, or that stays."""
        for outcome in todo:
            if change.block and self._queues_within(change, outcome, draft):
                return TooLarge(outcome)
            if self._is_queued(change, outcome, draft):
                continue
            if outcome.waiting:
                return Rerun(change, outcome)
            if outcome.failure is not None and self.blocks(change, draft):
                return Blocked(outcome.failure)
            for read in outcome.reads:
                if read.seen != draft.written.get(read.ref, ()):
                    return Rerun(change, outcome)
        return None

    def blocks(self, change: PendingChange, draft: Draft) -> bool:  # noqa: ARG002 - subclasses use them
        """Return whether a change that has failed stays where it is, instead of being parked."""
        return not self.parks

    def _note_writes(
        self, change: PendingChange, outcomes: Iterable[Outcome], draft: Draft
    ) -> None:
        written = draft.written
        for outcome in outcomes:
            if not self._is_queued(change, outcome, draft):
                version = (change.position, outcome.handler.name, outcome.run)
                for ref in outcome.actions:
                    written[ref] = (*written.get(ref, ()), version)

    def _is_queued(self, change: PendingChange, outcome: Outcome, draft: Draft) -> bool:
        if change.key is None or not (self.queues or draft.queued):
            return False
        return self._has_queue(change.key, outcome, draft)

    def _has_queue(self, key: ItemKey, outcome: Outcome, draft: Draft) -> bool:
        if outcome.handler.commutes:
            return False
        queue = queue_name(outcome.handler.name, key)
        return queue in self.queues or queue in draft.queued

    def _queues_within(self, block: PendingChange, outcome: Outcome, draft: Draft) -> bool:
        """Return whether a change of a block has to queue, which the block cannot do for it."""
        queues = self.queues or draft.queued
        return bool(queues) and any(self._has_queue(key, outcome, draft) for key, _ in block.steps)

    def _offer(self, change: PendingChange, outcomes: Sequence[Outcome], draft: Draft) -> bool:
        writes: list[Action] = []
        found: list[Action] = []
        queued: dict[str, QueuedKey] = {}
        for outcome in outcomes:
            more, reads = self._contribution(change, outcome, draft, queued)
            writes += more
            found += reads
        sends = [
            (change, outcome)
            for outcome in outcomes
            if outcome.sends and not (outcome.sent or self._is_queued(change, outcome, draft))
        ]
        if draft.sends and len(draft.sends) + len(sends) > SENDS_MAX:
            return False
        if not draft.offer(writes, found):
            return False
        draft.queued |= queued
        draft.sends += sends
        return True

    def _handler_by_handler(
        self, change: PendingChange, todo: Sequence[Outcome], draft: Draft, *, only_one: bool
    ) -> frozenset[str] | TooLarge:
        """Take as many handlers of one change as fit; return the names of those that are done."""
        if change.block:  # marks and cursors name handlers of one change only
            return TooLarge(todo[0])
        done: set[str] = set()
        for outcome in todo:
            if not self._offer(change, [outcome], draft):
                if done:
                    break
                if outcome.parks or self._is_queued(change, outcome, draft):
                    raise InvariantError(f"a parked change of {outcome.handler.name} does not fit")
                return TooLarge(outcome)
            done.add(_mark(change, outcome))
            if only_one and draft.actions:
                break
        return frozenset(done)

    def _contribution(
        self, change: PendingChange, outcome: Outcome, draft: Draft, queued: dict[str, QueuedKey]
    ) -> tuple[Iterable[Action], Sequence[Action]]:
        """Return the actions and checks of an outcome: its effects, its parking or queueing."""
        if change.key is None:
            return [], []
        if not (outcome.parks or self._is_queued(change, outcome, draft)):
            reads = checks(outcome.reads, change.position, outcome.handler) if outcome.reads else ()
            return outcome.actions.values(), reads
        return self.parking(change, change.key, outcome, draft, queued), []

    def parking(
        self,
        change: PendingChange,
        key: ItemKey,
        outcome: Outcome,
        draft: Draft,
        queued: dict[str, QueuedKey],
    ) -> list[Action]:
        """Return the actions that park or queue a change; add its queue to `queued`."""
        queueing = Queueing(self.space, self.shard, self.queues, self.chunks, self.generation)
        return queueing.actions(change, key, outcome, (draft.queued, queued), self.clock.time())


def _mark(change: PendingChange, outcome: Outcome) -> str:
    """Return the text by which a cursor says that a handler is done with a change."""
    return f"{change.position}:{outcome.handler.name}"

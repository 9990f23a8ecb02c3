"""Planning: which of the waiting works go into the next commit, and with which actions. Pure.

In: the works of a shard that are not committed yet, in order, and its cursor. Out: a `Batch` that
ends at a change border and holds at most 99 items and 4 MB (or, where each item of its changes has
a mark, 100 with these); or a `Rerun`, when an outcome has to be made (again) before anything behind
it can go; or a result that is `TooLarge`, or a failure that `Stays`. When the handlers of *one*
change do not fit together they go in several commits, and the cursor names the ones that are done.

Decided here, because it depends on everything before: whether a change meets a held lane and
queues, and whether what a handler read is still what the works before it leave behind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from streamkit.actions import BYTES_MAX, ITEMS_MAX, Action, ItemRef
from streamkit.changes import ItemKey
from streamkit.clock import Clock
from streamkit.control import ControlSpace, Cursor
from streamkit.errors import InvariantError
from streamkit.processing.commit import Batch
from streamkit.processing.fold import join_read, merge
from streamkit.processing.outcome import Outcome, Version, Work, with_reads
from streamkit.processing.parking import (
    Failure,
    Hold,
    ParkedRecord,
    chunk_of,
    lane_name,
    next_due,
    park,
    payload_of,
    queue,
    stored,
)

CHUNK_LANES = 100
"""Held lanes a `holds` item names before a new one is begun: 24 bytes each."""

CLAUSES_MAX = 250
"""Attributes that one update may change, whose expression may have 4 KB: 13 bytes for each."""

ALL = 1_000_000
"""Works that a commit may take, as far as they fit."""

SENDS_MAX = 100
"""Outcomes with deliveries in one commit, so that it does not wait for sinks for long."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """This outcome has to be made (again), now that all works before it are settled."""

    work: Work
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TooLarge:
    """This result has no room, alone, in a commit of this host: it has to be parked.

    One that no host has room for has failed before; but a mover's commits hold its token, too.
    """

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Stays:
    """The first change has failed and is not parked here: it stays, with all that is behind it."""

    failure: Failure


@dataclass(slots=True)
class Draft:
    """A batch being filled. `offer` takes all of some actions, or none.

    It has `room` for so many. `marked` are the items whose marks have taken theirs.
    """

    room: int = ITEMS_MAX
    marked: set[ItemKey] = field(default_factory=set)
    actions: dict[ItemRef, Action] = field(default_factory=dict)
    sizes: dict[ItemRef, int] = field(default_factory=dict)
    size: int = 0
    held: dict[str, Hold] = field(default_factory=dict)
    sends: list[tuple[Work, Outcome]] = field(default_factory=list)
    plain: dict[ItemRef, Action] = field(default_factory=dict)

    def offer(self, writes: Sequence[Action], checks: Sequence[Action]) -> bool:
        """Add the actions if they can be folded in and the batch stays within its limits."""
        changed: dict[ItemRef, Action] = {}
        plain: dict[ItemRef, Action] = {}
        for action in writes:
            mine, before = (plain, self.plain) if action.plain else (changed, self.actions)
            there = mine.get(action.ref) or before.get(action.ref)
            merged = action if there is None else _merged(there, action)
            if merged is None:
                return False
            mine[action.ref] = merged
        for check in checks:
            there = changed.get(check.ref) or self.actions.get(check.ref)
            changed[check.ref] = join_read(there, check)
        sizes = {ref: action.size() for ref, action in changed.items()}
        size, items = self.size, len(self.actions)
        for ref, new in sizes.items():
            size += new - self.sizes.get(ref, 0)
            items += ref not in self.sizes
        if size > BYTES_MAX or items > self.room:
            return False
        self.actions.update(changed)
        self.sizes.update(sizes)
        self.plain.update(plain)
        self.size = size
        return True


@dataclass(slots=True)
class Planner:
    """Plans the commits of one shard. `holds` are the lanes held when planning begins.

    Where no cursor names the chunks of holds, `chunks` says which there are. A commit has `room`
    for so many actions; with `marks` each item of its changes takes one of them for its mark.
    Without `parks` the rest stays behind a change that fails: it is parked already.
    """

    space: ControlSpace
    clock: Clock
    shard: str
    holds: dict[str, Hold] = field(default_factory=dict)
    chunks: tuple[str, ...] = ()
    room: int = ITEMS_MAX
    marks: bool = False
    parks: bool = True

    def plan(
        self, works: Iterable[Work], cursor: Cursor, *, most: int = ALL, split: bool = False
    ) -> Batch | Rerun | TooLarge | Stays:
        """Plan the next commit of the works.

        Args:
            works: everything uncommitted, in order.
            cursor: as it is in the table, at the position up to which all is done.
            most: how many works to take at most; lowered to find an invalid action.
            split: plan one handler of the first work alone, for the same purpose.
        """
        draft = Draft(self.room)
        written: dict[ItemRef, tuple[Version, ...]] = {}
        position, dated, done, taken = cursor.position, cursor.dated, cursor.done, 0
        for work in islice(works, most):
            todo = work.outcomes
            if done:
                todo = [outcome for outcome in todo if _mark(work, outcome) not in done]
            late = self._not_ready(work, todo, draft, written)
            if late is not None:
                if draft.actions or taken:
                    break
                return late
            if self.marks and work.key is not None and work.key not in draft.marked:
                draft.marked.add(work.key)
                draft.room -= 1
            if split or not self._offer(work, todo, draft):
                if draft.actions or draft.sends or (self.marks and taken):
                    break
                offered = self._handler_by_handler(work, todo, draft, only_one=split)
                if isinstance(offered, TooLarge):
                    return offered
                done |= offered
                if any(_mark(work, outcome) not in done for outcome in todo):
                    self._note_writes(
                        work, [o for o in todo if _mark(work, o) in done], draft, written
                    )
                    break
            taken += 1
            position, dated, done = work.position, int(work.dated), frozenset()
            self._note_writes(work, todo, draft, written)
        holds = cursor.holds | {hold.chunk for hold in draft.held.values()}
        then = replace(cursor, position=position, dated=dated, done=done, holds=holds)
        batch = Batch(then, list(draft.actions.values()), taken, draft.held, sends=draft.sends)
        batch.plain, batch.written = list(draft.plain.values()), written
        return batch

    def _not_ready(
        self,
        work: Work,
        todo: Sequence[Outcome],
        draft: Draft,
        written: dict[ItemRef, tuple[Version, ...]],
    ) -> Rerun | Stays | None:
        """Return the first outcome that must run before it can be planned, or is not to be."""
        for outcome in todo:
            if self._is_held(work, outcome, draft):
                continue
            if outcome.waiting:
                return Rerun(work, outcome)
            if outcome.failure is not None and self.stays(work, draft):
                return Stays(outcome.failure)
            for read in outcome.reads:
                if read.seen != written.get(read.ref, ()):
                    return Rerun(work, outcome)
        return None

    def stays(self, work: Work, draft: Draft) -> bool:  # noqa: ARG002 - others look at them
        """Say whether a change that has failed stays where it is, instead of being parked."""
        return not self.parks

    def _note_writes(
        self,
        work: Work,
        outcomes: Iterable[Outcome],
        draft: Draft,
        written: dict[ItemRef, tuple[Version, ...]],
    ) -> None:
        for outcome in outcomes:
            if not self._is_held(work, outcome, draft):
                version = (work.position, outcome.handler.name, outcome.run)
                for ref in outcome.actions:
                    written[ref] = (*written.get(ref, ()), version)

    def _is_held(self, work: Work, outcome: Outcome, draft: Draft) -> bool:
        if not (self.holds or draft.held) or outcome.handler.commutes or work.key is None:
            return False
        lane = lane_name(outcome.handler.name, work.key)
        return lane in self.holds or lane in draft.held

    def _offer(self, work: Work, outcomes: Sequence[Outcome], draft: Draft) -> bool:
        writes: list[Action] = []
        checks: list[Action] = []
        held: dict[str, Hold] = {}
        for outcome in outcomes:
            more, reads = self._contribution(work, outcome, draft, held)
            writes += more
            checks += reads
        sends = [
            (work, outcome)
            for outcome in outcomes
            if outcome.sends and not (outcome.sent or self._is_held(work, outcome, draft))
        ]
        if draft.sends and len(draft.sends) + len(sends) > SENDS_MAX:
            return False
        if not draft.offer(writes, checks):
            return False
        draft.held |= held
        draft.sends += sends
        return True

    def _handler_by_handler(
        self, work: Work, todo: Sequence[Outcome], draft: Draft, *, only_one: bool
    ) -> frozenset[str] | TooLarge:
        """Take as many handlers of one work as fit; return the marks of those that are done."""
        done: set[str] = set()
        for outcome in todo:
            if not self._offer(work, [outcome], draft):
                if done:
                    break
                if outcome.parks or self._is_held(work, outcome, draft):
                    raise InvariantError(f"a parked change of {outcome.handler.name} does not fit")
                return TooLarge(outcome)
            done.add(_mark(work, outcome))
            if only_one and draft.actions:
                break
        return frozenset(done)

    def _contribution(
        self, work: Work, outcome: Outcome, draft: Draft, held: dict[str, Hold]
    ) -> tuple[list[Action], list[Action]]:
        """Return what an outcome adds: its effects, or its parking, or its queueing."""
        if work.key is None:
            return [], []
        if not (outcome.parks or self._is_held(work, outcome, draft)):
            writes, checks = with_reads(outcome, work.position)
            return list(writes.values()), checks
        return self.parking(work, work.key, outcome, draft, held), []

    def parking(
        self, work: Work, key: ItemKey, outcome: Outcome, draft: Draft, held: dict[str, Hold]
    ) -> list[Action]:
        """Return what parks a change, or queues it; note the lane in `held`."""
        handler = outcome.handler
        lane = lane_name(handler.name, key)
        if handler.commutes:
            lane = f"{lane}-{work.position}"  # a lane of its own: nothing queues behind it
        parked = self._parked(work, outcome)
        known = draft.held.get(lane)
        hold = known or self.holds.get(lane)
        if hold is None:
            chunk = self._chunk(lane, draft, held)
            held[lane] = Hold(chunk, work.position)
            return park(self.space, lane, parked, chunk)
        if hold.tail is None:
            raise InvariantError(f"lane {lane} was planned before its tail was read")
        held[lane] = Hold(hold.chunk, work.position)
        return queue(self.space, lane, parked, hold.tail, guarded=known is None)

    def _parked(self, work: Work, outcome: Outcome) -> ParkedRecord:
        if work.record is None or work.entity is None:
            raise InvariantError("a mark cannot be parked")
        policy, failure, now = outcome.handler.policy, outcome.failure, self.clock.time()
        # What is set aside for a while has to outlast the stream, however long that takes.
        lasts = outcome.deferred or outcome.handler.broadcast is not None
        payload = payload_of(work.record, "whole" if lasts else policy.payload)
        return ParkedRecord(
            handler=outcome.handler.name,
            entity=work.entity.__name__,
            shard=self.shard,
            position=work.position,
            record=stored(work.record, payload),
            failure=failure,
            at=int(now),
            due=0 if failure is None else next_due(policy, failure, 0, now),
            payload=payload,
            build=outcome.handler.build,
        )

    def _chunk(self, lane: str, draft: Draft, held: dict[str, Hold]) -> str:
        """Name the holds item that a newly held lane goes to."""
        if self.chunks:
            return chunk_of(lane, self.chunks)
        mine = [
            hold.chunk
            for hold in (*self.holds.values(), *draft.held.values(), *held.values())
            if hold.chunk.startswith(f"{self.shard}.")
        ]
        return f"{self.shard}.{len(mine) // CHUNK_LANES}"


def _merged(first: Action, second: Action) -> Action | None:
    """Merge two actions, unless a sum of theirs has more than 38 digits, or there are too many.

    Alone the second may be fine, or DynamoDB finds it invalid: then its change is parked.
    """
    try:
        merged = merge(first, second)
    except ArithmeticError:
        return None
    return merged if merged is None or merged.clauses <= CLAUSES_MAX else None


def _mark(work: Work, outcome: Outcome) -> str:
    """Return how a cursor says that a handler is done with a change."""
    return f"{work.position}:{outcome.handler.name}"

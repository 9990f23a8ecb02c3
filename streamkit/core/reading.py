"""Reads by handlers, while the page of their change is not committed yet.

In: the pending changes of the page. A handler sees the table as the changes before its own will
leave it: `Pending` returns their uncommitted actions on an item. `ReadTracker` records what was
read. So each read becomes a check in the handler's result, and planning can recognise a stale one.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.reads import Read, Version, nothing_expected
from streamkit.core.shared_items import SharedItems
from streamkit.effects import Guard
from streamkit.entity import Entity, attribute_names
from streamkit.model.codec import decode
from streamkit.model.conditions import Condition, Existence, absent, as_it_was, present
from streamkit.model.origin import ORIGIN
from streamkit.progress.actions import OURS, Action, ItemRef, Wire
from streamkit.progress.updates import apply

_NOTHING: tuple[tuple[Version, ...], tuple[Action, ...]] = ((), ())


class Uncommitted:
    """Pending outcomes by the items that they will write, and the items read meanwhile.

    Runs between which the shard commits nothing share one object, so that finding the writes to an
    item does not walk through all pending changes.
    """

    def __init__(self, pending: Iterable[PendingChange] = ()) -> None:
        self.items = SharedItems()
        self._writers: dict[ItemRef, list[tuple[str, int, Outcome]]] = {}
        for change in pending:
            for outcome in change.outcomes:
                self.note(change, outcome)

    def note(self, change: PendingChange, outcome: Outcome) -> None:
        """Add what a run will write, in the order of the changes."""
        if not outcome.actions:
            return
        place = next(i for i, there in enumerate(change.outcomes) if there is outcome)
        entry = (change.position, place, outcome)
        for ref in outcome.actions:
            writers = self._writers.setdefault(ref, [])
            at = bisect_left(writers, entry[:2], key=_place)
            if at == len(writers) or writers[at][:2] != entry[:2]:
                writers.insert(at, entry)

    def written(self, ref: ItemRef, before: str) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcomes of changes before a position that write an item, in order."""
        for position, _, outcome in self._writers.get(ref, ()):
            if position >= before:
                return
            if ref in outcome.actions:  # the last run may write other items
                yield position, outcome

    def refs(self, before: str) -> set[ItemRef]:
        """Return every item that changes before a position will write."""
        return {ref for ref in self._writers if any(self.written(ref, before))}


def _place(entry: tuple[str, int, Outcome]) -> tuple[str, int]:
    return entry[:2]


class Pending(msgspec.Struct, frozen=True):
    """The uncommitted effects of the changes before a position."""

    uncommitted: Uncommitted = msgspec.field(default_factory=Uncommitted)
    before: str = ""

    def of(self, ref: ItemRef) -> tuple[tuple[Version, ...], tuple[Action, ...]]:
        """Return the runs that will write an item, and their actions on it, in order."""
        found = [
            (_version(position, outcome), _as_read(outcome.actions[ref], outcome.reads))
            for position, outcome in self.uncommitted.written(ref, self.before)
        ]
        if not found:
            return _NOTHING
        versions, actions = zip(*found, strict=True)
        return versions, actions

    def is_stale(self, read: Read) -> bool:
        """Return whether the pending writes to an item differ from those a handler saw."""
        written = self.uncommitted.written(read.ref, self.before)
        return read.seen != tuple(_version(position, outcome) for position, outcome in written)

    def refs(self) -> set[ItemRef]:
        """Return every item that the changes before the position will write."""
        return self.uncommitted.refs(self.before)


def _version(position: str, outcome: Outcome) -> Version:
    return position, outcome.handler.name, outcome.run


def settle(
    pending: Collection[PendingChange], written: Mapping[ItemRef, tuple[Version, ...]]
) -> None:
    """Update pending results after a commit that wrote items which they read.

    A handler saw the writes of changes before its own as if they had happened. Now some have
    happened: the item is expected as they leave it. Without this, every result behind a commit
    would have to be made again after it, and a backlog would take quadratic time. A result that has
    not seen these writes must be made again, because its commit would be refused.

    Args:
        pending: the pending changes, beginning with those that the commit has finished.
        written: the runs that wrote each item in the commit, in order.
    """
    waiting, actions = _readers(pending, written)
    # Results that were made together have read the same item: compute it once.
    left: dict[tuple[ItemRef, int], Mapping[str, Wire] | None] = {}
    for outcome in waiting:
        reads = []
        for read in outcome.reads:
            runs = written.get(read.ref, ())
            known = all((read.ref, run) in actions for run in runs)
            if not known or read.seen[: len(runs)] != runs:
                outcome.waiting = True
                break
            place = (read.ref, id(read.stored))
            if runs and place not in left:
                stored = None if read.stored is None else dict(read.stored)
                left[place] = applied((actions[read.ref, run] for run in runs), stored)
            now = left[place] if runs else read.stored
            reads.append(replace(read, seen=read.seen[len(runs) :], stored=now))
        else:
            outcome.reads = tuple(reads)


def _readers(
    pending: Collection[PendingChange], written: Mapping[ItemRef, tuple[Version, ...]]
) -> tuple[list[Outcome], dict[tuple[ItemRef, Version], Action]]:
    """Return the results that have read what a commit wrote, and the actions that it applied."""
    ran = {run for runs in written.values() for run in runs}
    waiting = [
        outcome
        for change in pending
        for outcome in change.outcomes
        # Few have read anything: in a backlog, this looks at every pending change at each commit.
        if outcome.reads
        and any(read.ref in written for read in outcome.reads)
        and _version(change.position, outcome) not in ran
    ]
    if not waiting:
        return waiting, {}
    actions = {
        (ref, version): _as_read(action, outcome.reads)
        for change in pending
        for outcome in change.outcomes
        if (version := _version(change.position, outcome)) in ran
        for ref, action in outcome.actions.items()
    }
    return waiting, actions


class Sight(msgspec.Struct, frozen=True):
    """An item as a handler sees it; only the attributes named in `check` become a condition.

    `item` has its attributes with pending effects applied, and is empty if there is no item;
    `stored` is what the table itself had.
    """

    item: Mapping[str, Wire]
    ref: ItemRef
    seen: tuple[Version, ...]
    stored: Mapping[str, Wire] | None
    reads: list[Read]

    def check(self, *names: str) -> None:
        """Require that these attributes are the same at the commit as here."""
        self.reads.append(Read(self.ref, self.seen, self.stored, partial(_same_in, names)))


@dataclass(slots=True)
class ReadTracker:
    """Records the reads of one run of one handler."""

    pending: Pending = field(default_factory=Pending)
    reads: list[Read] = field(default_factory=list)

    def note(
        self,
        ref: ItemRef,
        seen: tuple[Version, ...],
        entity: type[Entity],
        item: dict[str, Wire] | None,
        *,
        check: bool,
        also: tuple[str, ...] = (),
    ) -> None:
        """Record that an item was read; `item` is what the table held, without pending effects.

        With `check`, attributes of the entity have to be the same at the commit, and those named
        `also`.
        """
        expect = partial(unchanged, entity, also) if check else nothing_expected
        self.reads.append(Read(ref, seen, item, expect))


def applied(actions: Iterable[Action], item: dict[str, Wire] | None) -> dict[str, Wire] | None:
    """Return an item as pending actions leave it; actions that will be refused are left out."""
    for action in actions:
        if _stands(action, item):
            item = apply(action, item)
    return item


def _as_read(action: Action, reads: Iterable[Read]) -> Action:
    """Return an action that also requires its item to exist, or not, as its handler found it.

    Where the handler saw pending effects on the item, its state in the table says nothing.
    """
    found = [c for r in reads if r.ref == action.ref and not r.seen for c in r.conditions]
    guards = [(Guard(c, "retry"), OURS) for c in found if isinstance(c, Existence)]
    if guards:
        action = action.copy()
        action.guards += guards
    return action


def _stands(action: Action, item: dict[str, Wire] | None) -> bool:
    """Return whether the item exists, or not, as an action requires; other conditions are ignored.

    An action whose requirement fails will be refused. Applying it here would leave a fragment, or
    hide an item that exists.
    """
    existence = absent if item is None else present
    conditions = (guard.condition for guard, _ in action.guards)
    return all(c is existence for c in conditions if isinstance(c, Existence))


def unchanged(
    entity: type[Entity], also: tuple[str, ...], item: Mapping[str, Wire] | None
) -> tuple[Condition, ...]:
    """Return conditions that an item is still the same, in all that the entity reads."""
    if item is None:
        return (absent,)
    names = {*attribute_names(entity).values(), *entity.__also_read__, *also}
    if entity.upcasts():
        # An older shape may have other attributes, and the result may follow from any of them.
        names |= item.keys() - {ORIGIN}
    return (present, *_same_in(sorted(names), item))


def _same_in(names: Sequence[str], item: Mapping[str, Wire] | None) -> tuple[Condition, ...]:
    read = item or {}
    return tuple(as_it_was(names, {name: decode(read[name]) for name in names if name in read}))

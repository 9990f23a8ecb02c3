"""What a handler reads while its page is not committed yet.

In: the works of the page. A handler sees the table as the changes before its own will leave it:
`Pending` answers with their uncommitted actions on an item. `ReadTracker` notes what was read, so
that the read becomes a check in the handler's result and planning can tell a stale one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.actions import OURS, Action, ItemRef, Wire
from streamkit.effects import Guard
from streamkit.entity import Entity, attribute_names
from streamkit.model.codec import decode
from streamkit.model.conditions import Attr, Condition, Existence, absent, present
from streamkit.model.origin import MARK
from streamkit.processing.fold import apply
from streamkit.processing.outcome import Read, Version, Work

Memory = dict[ItemRef, dict[str, Wire] | None]
"""Items as the table had them, for runs between which this shard commits nothing."""

_NOTHING: tuple[tuple[Version, ...], tuple[Action, ...]] = ((), ())


@dataclass(frozen=True, slots=True)
class Pending:
    """The uncommitted effects of the works before a position."""

    works: Sequence[Work] = ()
    before: str = ""
    memory: Memory | None = None

    def of(self, ref: ItemRef) -> tuple[tuple[Version, ...], tuple[Action, ...]]:
        """Return who will have written an item, and what they do to it, in order."""
        if not self.works:
            return _NOTHING
        versions: list[Version] = []
        actions: list[Action] = []
        for work in self.works:
            if work.position >= self.before:
                break
            for outcome in work.outcomes:
                action = outcome.actions.get(ref)
                if action is not None:
                    versions.append((work.position, outcome.handler.name, outcome.run))
                    actions.append(_as_read(action, outcome.reads))
        return tuple(versions), tuple(actions)

    def refs(self) -> set[ItemRef]:
        """Return every item that the works before the position will have written."""
        return {
            ref
            for work in self.works
            if work.position < self.before
            for outcome in work.outcomes
            for ref in outcome.actions
        }


@dataclass(frozen=True, slots=True)
class Sight:
    """An item as a handler sees it; it becomes a check only in the attributes it asks for.

    `item` holds its attributes with pending effects applied, nothing if there is none; `stored` is
    what the table itself had.
    """

    item: Mapping[str, Wire]
    ref: ItemRef
    seen: tuple[Version, ...]
    stored: Mapping[str, Wire]
    reads: list[Read]

    def check(self, *names: str) -> None:
        """Let the result stand only if these attributes are at the commit what they were here."""
        same = tuple(_same(name, self.stored) for name in names)
        self.reads.append(Read(self.ref, self.seen, same))


@dataclass(slots=True)
class ReadTracker:
    """Notes the reads of one run of one handler."""

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
    ) -> None:
        """Note that an item was read; `item` is what the table held, without pending effects."""
        conditions = unchanged(entity, item) if check else ()
        self.reads.append(Read(ref, seen, conditions))


def applied(actions: Iterable[Action], item: dict[str, Wire] | None) -> dict[str, Wire] | None:
    """Return an item as pending actions leave it; those that will be refused are left out."""
    for action in actions:
        if _stands(action, item):
            item = apply(action, item)
    return item


def _as_read(action: Action, reads: Iterable[Read]) -> Action:
    """Return an action that also wants its item to be there, or not, as its handler found it.

    Where the handler saw pending effects on the item, what it found in the table says nothing.
    """
    found = [c for r in reads if r.ref == action.ref and not r.seen for c in r.conditions]
    guards = [(Guard(c, "retry"), OURS) for c in found if isinstance(c, Existence)]
    if guards:
        action = action.copy()
        action.guards += guards
    return action


def _stands(action: Action, item: dict[str, Wire] | None) -> bool:
    """Say whether the item is there, or is not, as an action wants it; all else is taken to hold.

    One that does not stand will be refused: it would leave a fragment, or hide what is there.
    """
    existence = absent if item is None else present
    conditions = (guard.condition for guard, _ in action.guards)
    return all(c is existence for c in conditions if isinstance(c, Existence))


def unchanged(entity: type[Entity], item: dict[str, Wire] | None) -> tuple[Condition, ...]:
    """Return the conditions that an item still has, of what the entity reads, what it had."""
    if item is None:
        return (absent,)
    conditions: list[Condition] = [present]
    names = {*attribute_names(entity).values(), *entity.__also_read__}
    if entity.upcasts():
        names |= item.keys() - {MARK}  # an older shape may have other attributes, and any may count
    conditions += [_same(name, item) for name in sorted(names)]
    return tuple(conditions)


def _same(name: str, item: Mapping[str, Wire]) -> Condition:
    """Return the condition that an attribute is still what it was, or still not there."""
    return Attr(name).eq(decode(item[name])) if name in item else Attr(name).not_exists()

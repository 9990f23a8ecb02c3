"""Two other policies of a family: each side as a whole, and a counter whose differences add up.

`item`: what one side alone has written is carried; if both have, people decide for one of them.
`counter`: field 1 is one. A side that only counted has a *difference* to what both agreed on; the
differences of both sides are added, and neither is ever a conflict. What is no counting is written
like any other field: a delete, a put anew, and the removal of the field. A field that was absent
when both agreed counts from 0, and so does a stub: nothing of what it stands for can be seen there.
An item that was absent counts from 0, too.

    mixed       a settlement has left an item that is neither what old nor what new code had there
    miscounted  it is over, and the counter is not what both sides have counted

What is expected of a counter is told apart from how it is made: each acknowledged `add` and `sub`
changes it by one. It is unknown after another write, until both sides have agreed again.

What is not here: an item that was deleted and made again as it was agreed gets its stamp back first.

In: the rules. Out: as in `families`. A `sub` at a stub is left out: 1 - 2 there looks like a delete
of the mark that this model uses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.families import (
    EVERY,
    NOTHING,
    STUB,
    Compared,
    Conflict,
    Model,
    Phase,
    Plan,
    Record,
    Rules,
    Side,
    Step,
    Values,
    World,
    _changed,
    _with,
)

COUNTER = 1
"""The field that is a counter."""
Family = tuple[Side, Side, Record | None]


@dataclass(frozen=True)
class PolicyRules(Rules):
    """How it is done; ours by default, once a policy is chosen."""

    item: bool = False
    """The migration's choice: a side is taken as a whole."""
    counter: bool = False
    """The migration's choice: field 1 is a counter."""
    merges: bool = False
    """Sides that are to be taken whole are merged by field all the same."""
    looks: str = "old new"
    """The sides that are compared with the base before one is taken whole."""
    takes_up: bool = False
    """Without a way back the base takes up a new item that a person has decided for."""
    adds: str = "always"
    """When differences are added; else the last writer or one of two equal values is right."""
    removed: str = "written"
    """What a deleted counter is; else its difference is minus what it was."""
    at_stub: str = "difference"
    """What a number at a stub is; else the counter's value."""
    at_once: bool = True
    """The record is written in the transaction of the items, and not after it."""
    asks_record: bool = True
    """A settlement that changes the record asks that it is as it was read."""


class PolicyModel(Model):
    """All that may happen next in a world, where a migration has chosen a policy."""

    rules: PolicyRules
    acts: tuple[str, ...]

    def __init__(self, rules: PolicyRules, *, subtracts: bool = False, **bounds: object) -> None:
        super().__init__(rules, **bounds)  # type: ignore[arg-type]
        self.subtracts = subtracts
        if rules.counter:
            self.acts = ("set 0", "put", "delete", "add", *(("sub",) if subtracts else ()))
        self.added = False

    def first(self) -> World:
        """Return the world in which one item is at its old key."""
        world = super().first()
        return world._replace(old=Side((0, 10)), expected=10) if self.rules.counter else world

    # -- applications ------------------------------------------------------------------------------

    def applications(self, world: World) -> Iterator[tuple[Step, World]]:
        """Write as ever, and count."""
        for step, after in super().applications(world):
            name, what = str(step[0]), str(step[1])
            seen = [getattr(one, name).seen[COUNTER] for one in (world, after)]
            expected = world.expected
            if what in ("add", "sub"):
                expected = None if expected is None else expected + (1 if what == "add" else -1)
            elif seen[0] != seen[1]:
                expected = None
            if what != "sub" or world.record is not None:  # what was undone by then, nobody saw
                yield step, self.agreed(after._replace(expected=expected))

    def write(self, side: Side, item: frozenset[int], what: str, number: int) -> Side | None:
        """Return a side after a write to one of its items; None if there is no such write."""
        if what not in ("add", "sub"):
            return super().write(side, item, what, number)
        value = side.values[COUNTER]
        if COUNTER not in item or (what == "sub" and value in (STUB, None)):
            return None
        there = any(side.values[field] is not None for field in item)
        total = _number(value) + (1 if what == "add" else -1)
        after = side.written(COUNTER, total).saw(COUNTER, frozenset({number}))
        for one in item if not there else ():
            after = after.written(one, after.values[one], stamped=False)
        return after

    def agreed(self, world: World) -> World:
        """Return a world in which it is known what to expect, if both sides agree."""
        old, new, record = world.family
        if world.expected is not None or not self.rules.counter:
            return world
        if record is None:
            nothing = old.values == new.values == NOTHING
            return world._replace(expected=0) if nothing else world
        counts = old if record.left == "new" else new
        rest = (record.left == "new" or old.values == record.old) and (
            record.left == "old" or new.values == record.new
        )
        return world._replace(expected=_number(counts.values[COUNTER])) if rest else world

    # -- a process ---------------------------------------------------------------------------------

    def is_as_read(self, world: World, plan: Plan) -> bool:
        """Return whether all that a transaction asks for is as it was read."""
        unasked = plan.before[2] == plan.after[2] or not self.rules.asks_record
        if unasked and self.settles(plan) and world.record is not None:
            plan = plan._replace(before=(*plan.before[:2], world.record))
        return super().is_as_read(world, plan)

    def send(self, world: World, m: int, plan: Plan) -> World:
        """Let a transaction arrive; a naive one leaves the record to a second one."""
        if self.rules.at_once or not self.settles(plan) or not self.is_as_read(world, plan):
            return super().send(world, m, plan)
        old, new, record = plan.after
        note = plan._replace(before=(old, new, world.record), only="record")  # type: ignore[arg-type]
        items = self.applied(world, plan._replace(after=(old, new, world.record)))
        return _with(items, m, None if record == world.record else note)

    def applied(self, world: World, plan: Plan) -> World:
        """Return a world in which a transaction wrote what it is about."""
        after = super().applied(world, plan)
        if plan.unseen:  # a part alone is no item
            return self.agreed(after)
        if self.rules.item and not self.rules.counter and self.settles(plan):
            had, left = {NOTHING, *self.whole(world)}, plan.after[2] and plan.after[2].left
            made = self.whole(after)[left == "old" : 1 if left == "new" else 2]
            after = after._replace(mixed=after.mixed or not had.issuperset(made))
        return self.agreed(after)

    def whole(self, world: World) -> list[tuple[int | None, ...]]:
        """Return what the items of both sides are, a stub as what it stands for."""
        old, new, record = world.family
        record = record or Record(NOTHING, NOTHING)
        sides = (old, new, record.old, "old"), (new, old, record.new, "new")
        return [
            tuple(
                (b if self.is_unsaid(side, record.left, base, field, name) else a)
                for field, (a, b) in enumerate(zip(side.values, other.values, strict=True))
            )
            for side, other, base, name in sides
        ]

    def people(self, world: World) -> Iterator[tuple[Step, World]]:
        """Decide; where an item was deleted or put anew, that is about its counter, too."""
        for step, after in super().people(world):
            if step[0] == "take" and world.shown is not None:
                early = world.phase == "dropping" and not self.rules.reverse
                expected = None if early or not self.counts(world.shown) else world.expected
                after = self.agreed(after._replace(expected=expected))  # noqa: PLW2901
            if step[0] == "remove":
                after = self.agreed(after._replace(expected=None))  # noqa: PLW2901
            yield step, after

    # -- settling ----------------------------------------------------------------------------------

    def _settled(self, family: Family, phase: Phase, *, take: str = "") -> Plan | None:
        """Return what brings both sides to agree; None if they do.

        Raises:
            Conflict: both have written a field that does not count, and nobody has decided.
        """
        early = phase == "dropping" and not self.rules.reverse and take
        counted = family if early else self.counted(family)
        self.added = self.counts(family)
        found = super()._settled(counted, phase, take=take)
        if counted == family:
            return found
        if found is not None:
            return Plan("settle", family, found.after)
        one, other = (side._replace(stamped=(True, True)) for side in counted[:2])
        return Plan("settle", family, (one, other, counted[2]))

    def paired(self, family: Family, phase: Phase) -> Plan | None:
        """Return what makes a pair; what was counted on both sides before is not one.

        Raises:
            Conflict: both sides have an item.
        """
        old, new, _ = family
        counters = old.values[COUNTER], new.values[COUNTER]
        if self.rules.counter and None not in counters and phase != "copying":
            raise Conflict
        return super().paired(family, phase)

    def counts(self, family: Family) -> bool:
        """Return whether both sides have only counted."""
        old, new, record = family
        return (
            self.rules.counter
            and record is not None
            and None
            not in (
                self.difference(old, record.old, "old"),
                self.difference(new, record.new, "new"),
            )
        )

    def counted(self, family: Family) -> Family:
        """Return a family in which both sides have taken up what the other one has counted."""
        old, new, record = family
        if record is None or not self.rules.counter:
            return family
        if record.left == "new":
            turned = record._replace(old=record.new, new=record.old)
            one, other, after = self.summed(new, old, turned, ("new", "old"))
            return other, one, after._replace(old=after.new, new=after.old)
        return self.summed(old, new, record, ("old", "new"))

    def summed(
        self, one: Side, other: Side, record: Record, names: tuple[str, str]
    ) -> tuple[Side, Side, Record]:
        """Carry what was counted on one side to the other, and back where that is possible."""
        nothing = one, other, record
        ours, theirs = one.values[COUNTER], other.values[COUNTER]
        back = self.rules.reverse and not record.left
        first = self.difference(one, record.old, names[0])
        second = self.difference(other, record.new, names[1])
        changed = ours != record.old[COUNTER], theirs != record.new[COUNTER]
        if first is not None and second is None and record.left and changed[0]:
            total = first + (_number(theirs) if self.rules.reverse else 0)
            return one.written(COUNTER, total), other, record
        if first is None or second is None or not (changed[0] or (back and changed[1])):
            return nothing
        if self.rules.adds == "differing" and changed == (True, True) and ours == theirs:
            return nothing
        if self.rules.adds == "last" and changed == (True, True):
            second = 0
            theirs = record.new[COUNTER]
        total = _number(theirs) + first
        if self.rules.at_stub == "value" and record.left:
            total = first
        both = other.seen[COUNTER] | one.seen[COUNTER]
        if None in (ours, theirs) and self.rules.removed == "zero":
            both = other.seen[COUNTER] if ours is None else one.seen[COUNTER]
        other = other.written(COUNTER, total).saw(COUNTER, both)
        base = total if back else _number(record.new[COUNTER]) + first
        if back:
            one = one.written(COUNTER, total).saw(COUNTER, both)
        elif record.left:
            one = one.written(COUNTER, STUB)
        agreed = [
            (side[0], value) for side, value in ((record.old, one.values[1]), (record.new, base))
        ]
        return one, other, record._replace(old=agreed[0], new=agreed[1])

    def difference(self, side: Side, base: Values, name: str) -> int | None:
        """Return what a side has counted; None if it has written the counter in another way."""
        value, before = side.values[COUNTER], base[COUNTER]
        anew = COUNTER in self.anew(side, _changed(side.values, base), name, base)
        gone = value is None and before is not None
        if (anew or gone) and not (self.rules.removed == "zero" and gone):
            return None
        return _number(value) - _number(before)

    def followed(
        self, one: Side, other: Side, record: Record, name: str, take: str
    ) -> tuple[Side, Side, Record | None] | None:
        """Carry from a side to the other one, from which nothing comes back.

        A decision for a whole item is no agreement: the first side has not seen it.
        """
        found = super().followed(one, other, record, name, take)
        decided = take not in ("", name) and self.rules.item and not self.rules.takes_up
        if found is None or found[2] is None or not decided:
            return found
        return *found[:2], found[2]._replace(new=record.new)

    def compared(
        self,
        one: Compared,
        other: Compared,
        take: str,
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Return the fields that each side may carry.

        Raises:
            Conflict: both have written what is taken whole, and nobody has decided.
        """
        counts = frozenset({COUNTER}) if self.added else frozenset[int]()
        (a, ours, name, was), (b, theirs, last, before) = one, other
        ours, theirs = ours - counts, theirs - counts
        counted = self.rules.counter and not counts and a.values[COUNTER] is not None
        if counted and COUNTER in ours & theirs:  # also if they are equal: that is no agreement
            if not take:
                raise Conflict
            if self.anew(a, ours, name, was) | self.anew(b, theirs, last, before):
                return (EVERY, frozenset()) if take == name else (frozenset(), EVERY)
        if not self.rules.item or self.rules.merges:
            both = (a, ours, name, was), (b, theirs, last, before)
            found = super().compared(*both, take)
            return found[0] - counts, found[1] - counts
        alike = all(
            STUB in pair or len(set(pair)) == 1 for pair in zip(a.values, b.values, strict=True)
        )
        if self.rules.looks == "old" and ours and theirs and name == "old":
            return ours | theirs, frozenset()
        if not (ours and theirs) or alike:
            return ours, theirs
        if not take:
            raise Conflict
        stub = EVERY - ours if STUB in was else frozenset()
        return (
            (EVERY - counts - stub, frozenset()) if take == name else (frozenset(), EVERY - counts)
        )

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        yield from super().wrong(world)
        if world.mixed:
            yield "mixed"
        if world.phase in ("done", "rolled back") and world.expected is not None:
            counts = world.new if world.phase == "done" else world.old
            if self.rules.counter and _number(counts.values[COUNTER]) != world.expected:
                yield "miscounted"


def _number(value: int | None) -> int:
    return 0 if value in (None, STUB) or value is None else value


_ITEM, _COUNTER = PolicyRules(item=True), PolicyRules(counter=True)
NAIVE: dict[str, tuple[PolicyRules, str]] = {
    "sides are merged by field": (replace(_ITEM, merges=True), "mixed"),
    "several are merged by field": (replace(_ITEM, merges=True, shape="merge"), "mixed"),
    "parts are merged by field": (replace(_ITEM, merges=True, shape="split"), "mixed"),
    "only the old side is compared": (replace(_ITEM, looks="old"), "lost"),
    "a decision is taken up as agreed": (
        replace(_ITEM, takes_up=True, reverse=False),
        "mixed",
    ),
    "the last writer counts": (replace(_COUNTER, adds="last"), "miscounted"),
    "equal counters are agreed": (replace(_COUNTER, adds="differing"), "miscounted"),
    "a deleted counter is minus what it was": (replace(_COUNTER, removed="zero"), "lost"),
    "a number at a stub is the counter": (replace(_COUNTER, at_stub="value"), "miscounted"),
    "the record follows its items": (replace(_COUNTER, at_once=False), "miscounted"),
    "the record is not asked for": (replace(_COUNTER, asks_record=False), "miscounted"),
    "the old counter is not asked for": (replace(_COUNTER, conditional="new"), "miscounted"),
    "the new counter is not asked for": (replace(_COUNTER, conditional="old"), "miscounted"),
}
"""Rules that look simpler, and what they break."""

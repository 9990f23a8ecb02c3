"""Both sides of a family may be written: an executable specification of what a move does with it.

An old item has two fields; they move to one new item, or to one each; or two old items with one
field each become one. Old code and new code write both sides at any moment. A pair record holds what both last agreed on. Two processes read the family
and send one transaction later; refused, they read again. What is on one side alone is carried to
the other. The same field with two values waits for a person. At the end the old item becomes a
stub, which is watched until nothing is left open; then the stub goes together with the record. A
rollback is the same with the sides exchanged.

Each write has a number, which is its value, and each field knows which writes it has taken in.

    lost        it is over, and a write is neither in the side that counts nor was it decided
    left        it is over, and an item is left at a key that is over

Of a split whose old item is gone a process finds only the parts that the record names, and one whose
change has led it there. So the delete may be carried past a part that new code has added meanwhile,
which is then `alone`.

People may say that no old code writes any more (`declared`): then an old item that is as agreed
goes at once, together with the record, and no stub is left. Old code that writes nevertheless is
`late`: its write is carried, or left for people.

What is not here: that a process acts under a phase that is over (`view` refuses that), and which
side handlers count. A field that is written back to what was agreed counts as not written, and so
does an item that is made and deleted where nothing was agreed.

In: the rules. Out: the steps that break them. The naive rules are BAD, each for a reason of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

FIELDS = (0, 1)
STUB = -99
"""A field of a stub: it stands for what the other side says."""
HERE = -98
"""What is agreed of an item of which a person has decided all, but not that it goes."""
EVERY = frozenset(FIELDS)

Phase = Literal["copying", "soaking", "contracting", "closing", "done", "dropping", "rolled back"]
Kind = Literal["settle", "contract", "close", "drop"]
KINDS: Mapping[Phase, Kind] = {
    "copying": "settle",
    "soaking": "settle",
    "contracting": "contract",
    "closing": "close",
    "dropping": "drop",
}
"""What a pass of a phase does with a family, once it is settled."""

Values = tuple[int | None, int | None]
Step = tuple[str | int, ...]
NOTHING: Values = (None, None)


class Side(NamedTuple):
    """The items of one side: what they hold, which writes each field has seen, and their stamps."""

    values: Values = NOTHING
    seen: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    stamped: tuple[bool, bool] = (False, False)

    def written(self, field: int, value: int | None, *, stamped: bool | None = None) -> "Side":
        """Return the side with another value, written by the number that it is."""
        values, marks = list(self.values), list(self.stamped)
        values[field] = value
        if stamped is not None:
            marks[field] = stamped
        return self._replace(values=tuple(values), stamped=tuple(marks))

    def takes(self, field: int, value: int | None, writes: frozenset[int]) -> "Side":
        """Return the side with a value in which just these writes are: others are overwritten."""
        seen = list(self.seen)
        seen[field] = writes
        return self.written(field, value)._replace(seen=tuple(seen))

    def saw(self, field: int, writes: frozenset[int]) -> "Side":
        """Return the side with a field that has taken in more writes."""
        seen = list(self.seen)
        seen[field] |= writes
        return self._replace(seen=tuple(seen))


class Record(NamedTuple):
    """What both sides last agreed on; `left` is the side of which only stubs are left."""

    old: Values
    new: Values
    left: Literal["", "old", "new"] = ""


class Plan(NamedTuple):
    """A transaction: the family as it was read, and as it is to be."""

    kind: Kind
    before: tuple[Side, Side, Record | None]
    after: tuple[Side, Side, Record | None]
    only: Literal["", "old", "new"] = ""
    unseen: frozenset[int] = frozenset()
    """The parts that the process has not found."""


class World(NamedTuple):
    """The family, the phase, what is under way, and the writes that were acknowledged."""

    old: Side = Side((0, 0))
    new: Side = Side()
    record: Record | None = None
    phase: Phase = "copying"
    plans: tuple[Plan | None, ...] = (None,)
    by_old: int = 0
    by_new: int = 0
    told: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    shown: tuple[Side, Side, Record | None] | None = None
    late: int = 0
    expected: int | None = None
    mixed: bool = False

    @property
    def family(self) -> tuple[Side, Side, Record | None]:
        """Return what a process reads."""
        return self.old, self.new, self.record


@dataclass(frozen=True)
class Rules:
    """How it is done; ours by default."""

    shape: Literal["rekey", "split", "merge"] = "rekey"
    by_field: bool = True
    """What one side has written is carried field by field, and not as its whole image."""
    conflict: Literal["person", "old", "new"] = "person"
    """Who decides if both sides wrote a field."""
    whole: bool = True
    """An item that was deleted or put anew counts as written in every field."""
    conditional: str = "old new"
    """The sides that a settlement asks to be as they were read."""
    carried: bool = True
    """Where nothing is carried back, the base takes up only what was carried."""
    compares: bool = True
    """The old item becomes a stub only if it is as agreed."""
    asks: bool = True
    """It becomes one IF it is as it was read."""
    records: bool = True
    """The end passes over records, and so sees old items that were deleted."""
    stubs: bool = True
    """Something is left at the old key, in which a write and its delete can be seen."""
    watches: bool = True
    """What is left is looked at until it goes."""
    shown: bool = True
    """A decision is about what was shown, and not about what is there later."""
    alone: Literal["person", "kept"] = "person"
    """What becomes of a part whose item is gone."""
    declared: bool = False
    """People have said before `contract` that no old code writes: old items go, without stubs."""
    reverse: bool = True
    """What new code writes is carried back; not a rule, but the migration's choice."""


Compared = tuple[Side, frozenset[int], str, Values]
"""A side, the fields that it has changed, which side it is, and what both last agreed on."""


class Conflict(Exception):
    """Both sides have written the same field, differently."""


class Settled(Protocol):
    """What brings both sides to agree; see `Model.settled`."""

    def __call__(
        self, family: tuple[Side, Side, Record | None], phase: Phase, *, take: str = ""
    ) -> Plan | None: ...


def remembered(settled: Settled) -> Settled:
    """Return what settles each family once: many worlds differ in other things."""
    known: dict[Any, Plan | type[Conflict] | None] = {}

    def look_up(
        family: tuple[Side, Side, Record | None], phase: Phase, *, take: str = ""
    ) -> Plan | None:
        key = family, phase, take
        if key not in known:
            try:
                known[key] = settled(family, phase, take=take)
            except Conflict:
                known[key] = Conflict
        found = known[key]
        if isinstance(found, type):
            raise found
        return found

    return look_up


class Model:
    """All that may happen next in a world, by rules."""

    acts: tuple[str, ...] = ("set 0", "set 1", "put", "delete")

    def __init__(
        self,
        rules: Rules,
        *,
        old: int = 2,
        new: int = 1,
        processes: int = 1,
        rollback: bool = False,
        late: int = 0,
    ) -> None:
        self.rules, self.most, self.processes = rules, (old, new), processes
        self.late = late
        self.rollback = rollback
        self.items = {"old": (EVERY,), "new": (EVERY,)}
        self.settled: Settled = remembered(self._settled)
        several = {"split": "new", "merge": "old"}.get(rules.shape)
        if several is not None:
            self.items[several] = tuple(frozenset({field}) for field in FIELDS)

    def first(self) -> World:
        """Return the world in which one item is at its old key."""
        return World(plans=(None,) * self.processes)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.phase in ("done", "rolled back"):
            return
        yield from self.applications(world)
        yield from self.people(world)
        yield from self.phases(world)
        for m, plan in enumerate(world.plans):
            if plan is not None:
                yield ("send", m), self.send(world, m, plan)
                continue
            kind = KINDS[world.phase]
            if self.plan(world.family, kind, world.phase):
                yield ("read", m), self.read(world, m, kind)
            if unseen := self.unseen(world):
                family = world.old, _without(world.new, unseen), world.record
                found = self.plan(family, kind, world.phase)
                if found:
                    yield ("miss", m), _with(world, m, found._replace(unseen=unseen))

    def unseen(self, world: World) -> frozenset[int]:
        """Return the parts that a process finds only if their change leads it to them."""
        record = world.record
        if self.rules.shape != "split" or record is None or record.left:
            return frozenset()
        if not self.rules.reverse or world.old.values != NOTHING:
            return frozenset()
        return frozenset(
            n for n in FIELDS if world.new.values[n] is not None and record.new[n] is None
        )

    # -- applications, people, phases --------------------------------------------------------------

    def applications(self, world: World) -> Iterator[tuple[Step, World]]:
        """Update, put and delete items of both sides; new code does so from `soaking` on."""
        made_by = (world.by_old, world.by_new)
        for side, made, most in zip(("old", "new"), made_by, self.most, strict=True):
            over = world.phase == "copying" if side == "new" else self.is_closed(world, side)
            if made == most or over or (side == "new" and self.is_closed(world, side)):
                continue
            late = side == "old" and self.is_declared(world)
            if late and world.late == self.late:
                continue
            number = 1 + world.by_old + world.by_new
            for place, item in enumerate(self.items[side]):
                for what in self.acts:
                    after = self.write(getattr(world, side), item, what, number)
                    if after is not None:
                        told = self.told(world, side, after, number, item)
                        yield (side, what, place), told._replace(late=world.late + late)

    def is_declared(self, world: World) -> bool:
        """Return whether people have said that no old code writes any more."""
        return self.rules.declared and world.phase in ("contracting", "closing")

    def is_closed(self, world: World, side: str) -> bool:
        """Return whether nobody looks at a side any more."""
        ended = world.record is None and getattr(world, side).values == NOTHING
        return ended and world.phase == ("closing" if side == "old" else "dropping")

    def write(self, side: Side, item: frozenset[int], what: str, number: int) -> Side | None:
        """Return a side after a write to one of its items; None if there is no such write."""
        there = any(side.values[field] is not None for field in item)
        if what == "delete":
            after = side
            for field in item if there else ():
                after = after.written(field, None, stamped=False).saw(field, frozenset({number}))
            return after if there else None
        if what == "put":
            after, first = side, min(item)
            for field in item:
                if field == first or side.values[field] is not None:
                    after = after.saw(field, frozenset({number}))
                after = after.written(field, number if field == first else None, stamped=False)
            return after
        field = int(what[-1])
        if field not in item:
            return None
        after = side.written(field, number).saw(field, frozenset({number}))
        for one in item if not there else ():
            after = after.written(one, after.values[one], stamped=False)
        return after

    def told(
        self, world: World, name: str, after: Side, number: int, item: frozenset[int]
    ) -> World:
        """Return a world in which a write was acknowledged, unless it changes nothing agreed."""
        before: Side = getattr(world, name)
        told = list(world.told)
        for field in FIELDS:
            if number in after.seen[field]:
                told[field] |= {number}
        base = NOTHING if world.record is None else getattr(world.record, name)
        # Where nothing was agreed, an item that goes again takes all that was written of it along.
        # Not so where old code makes it late: its item is at the new key, and was to be deleted.
        late = name == "old" and self.is_declared(world) and world.late > 0
        gone = world.record is None and not late and all(after.values[n] is None for n in item)
        for field in FIELDS:
            undone = after.values[field] == base[field] != before.values[field]
            if undone or (gone and field in item):  # written, and then as if it never was
                told[field] -= after.seen[field] - (world.old.seen[field] & world.new.seen[field])
        made = {"by_old": world.by_old + 1} if name == "old" else {"by_new": world.by_new + 1}
        return level(world._replace(**{name: after}, **made, told=tuple(told)))

    def people(self, world: World) -> Iterator[tuple[Step, World]]:
        """Look at what is open, and decide for a side of what was shown."""
        if world.record is None and self.is_alone(world.family) and self.is_open(world):
            gone = world.new._replace(values=NOTHING, stamped=(False, False))
            yield ("remove",), level(world._replace(new=gone))
        if world.record is None or not self.is_open(world):
            return
        if world.shown != world.family:
            yield ("look",), world._replace(shown=world.family)
        if world.shown is None or (self.rules.shown and world.shown != world.family):
            return
        early = world.phase == "dropping" and not self.rules.reverse
        for side in ("old",) if early else ("old", "new"):
            found = self.settled(world.shown, world.phase, take=side)
            if found is not None:
                yield ("take", side), self.applied(world, found)._replace(shown=None)

    def is_alone(self, family: tuple[Side, Side, Record | None]) -> bool:
        """Return whether parts are left whose item is gone."""
        return self.rules.shape == "split" and family[0].values == NOTHING != family[1].values

    def is_open(self, world: World) -> bool:
        """Return whether both sides wait for a person."""
        try:
            self.settled(world.family, world.phase)
        except Conflict:
            return True
        return False

    def phases(self, world: World) -> Iterator[tuple[Step, World]]:
        """Go on to the next phase, when nothing is open and a pass finds nothing to do."""
        old, _, record = world.family
        gone = old.values == NOTHING and not self.rules.records
        if any(world.plans) or (self.is_open(world) and not gone):
            return
        made = record is not None or old.values == world.new.values == NOTHING
        if world.phase == "copying" and made:
            yield ("next",), world._replace(phase="soaking")
        if world.phase == "soaking":
            yield ("next",), world._replace(phase="contracting")
        way_back = self.rules.reverse or world.phase == "copying"
        if self.rollback and world.phase in ("copying", "soaking") and way_back:
            yield ("back",), world._replace(phase="dropping")
        stub = record is not None and record.left == "old"
        over = record is None and old.values == NOTHING
        if world.phase == "contracting" and (over or stub or gone or not self.rules.watches):
            yield ("next",), world._replace(phase="closing" if self.rules.watches else "done")
        if world.phase == "closing" and (over or gone):
            yield ("next",), world._replace(phase="done")
        if world.phase == "dropping" and record is None and world.new.values == NOTHING:
            yield ("next",), world._replace(phase="rolled back")

    # -- a process ---------------------------------------------------------------------------------

    def read(self, world: World, m: int, kind: Kind) -> World:
        """Read the family, and go on to the transaction that it needs, if it needs one."""
        return _with(world, m, self.plan(world.family, kind, world.phase))

    def send(self, world: World, m: int, plan: Plan) -> World:
        """Let a transaction arrive; refused, the family is read again."""
        if not self.is_as_read(world, plan):
            return self.read(world, m, plan.kind)
        done = _with(self.applied(world, plan), m, None)
        waits = plan.kind == "close" or self.is_declared(world)
        if (waits and self.old_wrote(plan)) or plan.kind == "settle" or not self.settles(plan):
            return done
        return _with(done, m, self.plan(done.family, plan.kind, done.phase))

    def is_as_read(self, world: World, plan: Plan) -> bool:
        """Return whether all that a transaction asks for is as it was read."""
        now = world._replace(new=_without(world.new, plan.unseen))
        return plan.before[2] == world.record and all(
            self.seen_in(getattr(now, name), name) == self.seen_in(before, name)
            for name, before in zip(("old", "new"), plan.before[:2], strict=True)
            if self.asks(plan, name)
        )

    def seen_in(self, side: Side, name: str) -> tuple[Values, list[bool]]:
        """Return what can be read of a side: what is not there has no stamp."""
        stamps = [
            any(side.values[one] is not None for one in item) and side.stamped[min(item)]
            for item in self.items[name]
        ]
        return side.values, stamps

    def old_wrote(self, plan: Plan) -> bool:
        """Return whether a settlement carries what old code has written."""
        old, _, record = plan.before
        return self.settles(plan) and record is not None and old.values != record.old

    def asks(self, plan: Plan, name: str) -> bool:
        """Return whether a transaction asks that a side is as it was read."""
        if self.settles(plan):
            return name in self.rules.conditional
        if plan.kind == "drop" and plan.before[2] is not None and plan.before[2].left:
            return True  # the old item loses its marks
        return name == plan.only and (self.rules.asks or plan.kind != "contract")

    def settles(self, plan: Plan) -> bool:
        """Return whether a plan is a settlement, and no step to a stub or from one."""
        return plan.only == ""

    def applied(self, world: World, plan: Plan) -> World:
        """Return a world in which a transaction wrote what it is about."""
        old, new, record = plan.after
        for field in plan.unseen:
            new = new.written(field, world.new.values[field], stamped=world.new.stamped[field])
            new = new._replace(
                seen=tuple((world.new if one in plan.unseen else new).seen[one] for one in FIELDS)
            )
        if plan.only:
            old = old if plan.only == "old" else world.old
            new = new if plan.only == "new" else world.new
        if plan.kind == "contract" and plan.only:  # what both sides say alike is agreed
            for field in FIELDS:
                if plan.before[0].values[field] == world.new.values[field]:
                    new = new.saw(field, plan.before[0].seen[field])
        return level(world._replace(old=old, new=new, record=record))

    def plan(
        self, family: tuple[Side, Side, Record | None], kind: Kind, phase: Phase
    ) -> Plan | None:
        """Return the transaction that a family needs in a phase; None for nothing."""
        old, new, record = family
        if kind in ("contract", "close") and old.values == NOTHING and not self.rules.records:
            return None
        live = record is not None and not record.left
        skips = live and kind in ("contract", "close") and not self.rules.compares
        try:
            found = None if skips else self.settled(family, phase)
        except Conflict:
            return None
        return found._replace(kind=kind) if found else self.step(family, kind, skips=skips)

    def step(
        self, family: tuple[Side, Side, Record | None], kind: Kind, *, skips: bool = False
    ) -> Plan | None:
        """Return what is done with a family that is settled."""
        old, new, record = family
        if record is None or kind == "settle":
            return None
        if kind == "drop":
            if record.left == "new":
                gone = new._replace(values=NOTHING, stamped=(False, False))
                return Plan(kind, family, (old, gone, None), "new")
            stub = self.stub(new, "new")
            left = record._replace(new=stub.values, left="new")
            return Plan(kind, family, (old, stub, left if stub.values != NOTHING else None), "new")
        if record.left == "" and (skips or old.values == record.old):
            if self.rules.declared:
                gone = old._replace(values=NOTHING, stamped=(False, False))
                return Plan("contract", family, (gone, new, None), "old")
            stub = self.stub(old, "old") if self.rules.stubs else old._replace(values=NOTHING)
            keeps = self.rules.watches
            left = record._replace(old=stub.values, left="old") if keeps else None
            return Plan("contract", family, (stub, new, left), "old")
        if kind == "close" and record.left == "old" and old.values == record.old:
            return Plan(kind, family, (old._replace(values=NOTHING), new, None), "old")
        return None

    def stub(self, side: Side, name: str) -> Side:
        """Return what is left of the items of a side."""
        values: list[int | None] = [None, None]
        for item in self.items[name]:
            for field in item:
                there = any(side.values[one] is not None for one in item)
                keeps = name == "old" and len(self.items[name]) == 1
                values[field] = STUB if there or keeps else None
        return side._replace(values=tuple(values), stamped=(True, True))

    # -- settling ----------------------------------------------------------------------------------

    def _settled(
        self, family: tuple[Side, Side, Record | None], phase: Phase, *, take: str = ""
    ) -> Plan | None:
        """Return what brings both sides to agree; None if they do.

        Raises:
            Conflict: both have written a field, and nobody has decided.
        """
        old, new, record = family
        if record is None:
            return self.paired(family, phase)
        if record.left == "new":
            if not self.rules.reverse and new.values != record.new:
                return self.early_at_stub(family, record, take)
            swapped = record._replace(old=record.new, new=record.old)
            found = self.followed(new, old, swapped, "new", take)
            if found is None:
                return None
            news, olds, after = found
            after = after and after._replace(old=after.new, new=after.old)
            return Plan("settle", family, (olds, news, after))
        if record.left == "old" or not self.rules.reverse:
            if phase == "dropping" and new.values != record.new and not record.left:
                return self.early(family, take)
            found = self.followed(old, new, record, "old", take)
            return None if found is None else Plan("settle", family, found)
        return self.carried(family, take)

    def early(self, family: tuple[Side, Side, Record | None], take: str) -> Plan:
        """Let a person decide for the old item where nothing can be brought back to it.

        Raises:
            Conflict: nobody has.
        """
        old, new, _ = family
        if take != "old":
            raise Conflict
        seen = [old.seen[field] | new.seen[field] for field in FIELDS]
        side = Side(old.values, (seen[0], seen[1]), (True, True))
        after = None if side.values == NOTHING else Record(side.values, side.values)
        return Plan("settle", family, (side, side, after))

    def early_at_stub(
        self, family: tuple[Side, Side, Record | None], record: Record, take: str
    ) -> Plan:
        """Let a person decide against what was written at a stub that leads back to nothing.

        Raises:
            Conflict: nobody has.
        """
        if take != "old":
            raise Conflict
        old, new, _ = family
        for field in FIELDS:
            old = old.saw(field, new.seen[field])
        stub = new._replace(values=record.new, stamped=(True, True))
        return Plan("settle", family, (old._replace(stamped=(True, True)), stub, record))

    def paired(self, family: tuple[Side, Side, Record | None], phase: Phase) -> Plan | None:
        """Return what makes a pair: the missing side, and the record."""
        old, new, _ = family
        if old.values != NOTHING and self.rules.declared and phase in ("contracting", "closing"):
            raise Conflict  # its item went from there, and nobody knows what was done since
        if old.values == new.values:
            return None
        if new.values == NOTHING and phase != "dropping":
            made = Side(old.values, old.seen, (True, True))
            record = Record(old.values, old.values)
            return Plan("settle", family, (old._replace(stamped=(True, True)), made, record))
        if self.rules.reverse and phase != "copying" and self.is_alone(family):
            if self.rules.alone == "kept":
                return None
            raise Conflict
        back = self.rules.reverse and phase in ("soaking", "dropping")
        if old.values == NOTHING and back:
            made = Side(new.values, new.seen, (True, True))
            record = Record(new.values, new.values)
            return Plan("settle", family, (made, new._replace(stamped=(True, True)), record))
        if NOTHING in (old.values, new.values):
            return None
        raise Conflict

    def carried(self, family: tuple[Side, Side, Record | None], take: str) -> Plan | None:
        """Return what carries both ways."""
        old, new, record = family
        assert record is not None
        ours, theirs = _changed(old.values, record.old), _changed(new.values, record.new)
        if not ours and not theirs:
            return None
        ours, theirs = self.compared(
            (old, ours, "old", record.old), (new, theirs, "new", record.new), take
        )
        made: list[int | None] = []
        seen = []
        for field in FIELDS:
            side = old if field in ours and field not in theirs else new
            both = old.seen[field] | new.seen[field]
            made.append(side.values[field])
            agreed = old.values[field] == new.values[field] or take
            seen.append(both if agreed else side.seen[field])
        if not self.rules.by_field and _changed(old.values, record.old):
            made, seen = list(old.values), list(old.seen)
        values = (made[0], made[1])
        side = Side(values, (seen[0], seen[1]), (True, True))
        after = None if values == NOTHING else Record(values, values)
        return Plan("settle", family, (side, side, after))

    def followed(
        self, one: Side, other: Side, record: Record, name: str, take: str
    ) -> tuple[Side, Side, Record | None] | None:
        """Carry from a side to the other one, from which nothing comes back."""
        ours, theirs = _changed(one.values, record.old), _changed(other.values, record.new)
        if not ours:
            return None
        last = "new" if name == "old" else "old"
        both = (one, ours, name, record.old), (other, theirs, last, record.new)
        kept, _ = self.compared(*both, take)
        anew = [self.anew(*side) for side in both]
        asked = (ours | anew[0]) & (theirs | anew[1])
        for field in FIELDS if take and asked & (anew[0] | anew[1]) else ():
            one, other = one.saw(field, other.seen[field]), other.saw(field, one.seen[field])
        if one.values == NOTHING and not take and len(self.items["old"]) == 1:
            kept = EVERY  # what came of it goes with it
        base: list[int | None] = list(record.new)
        for field in kept:
            value = self.said(one, other, record, field, name)
            if take or value == other.values[field]:
                one = one.saw(field, other.seen[field])
            other = other.takes(field, value, one.seen[field])
            base[field] = value
        for field in EVERY - kept if take else ():
            other = other.saw(field, one.seen[field])
            if field in ours | asked:
                base[field], one = other.values[field], one.saw(field, other.seen[field])
        if base == [None, None] and not record.left and not anew[0]:
            base[0] = HERE if take and record.new != NOTHING else None
        if not self.rules.carried:
            base = list(other.values)
        left = self.stub(one, name) if record.left else one
        if other.values == NOTHING and NOTHING in (one.values, left.values):
            return one, other, None
        if record.left and one.values == NOTHING and not take:
            left = one
        after = record._replace(old=left.values, new=(base[0], base[1]))
        return left._replace(stamped=(True, True)), other._replace(stamped=(True, True)), after

    def said(self, one: Side, other: Side, record: Record, field: int, name: str) -> int | None:
        """Return what a side says of a field: a stub what the other says, if that can be told."""
        if not self.is_unsaid(one, record.left, record.old, field, name):
            return one.values[field]
        return other.values[field] if self.rules.reverse or name == "new" else None

    def is_unsaid(self, side: Side, left: str, base: Values, field: int, name: str) -> bool:
        """Return whether a side of stubs says nothing of a field, also where no item ever was."""
        value = side.values[field]
        never = value is None is base[field] and len(self.items[name]) > 1
        return value == STUB or (left == name and never)

    def compared(
        self,
        one: Compared,
        other: Compared,
        take: str,
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Return the fields that each side may carry.

        Raises:
            Conflict: both have written a field, and nobody has decided.
        """
        (a, changed_a, name, _), (b, changed_b, *_) = one, other
        anew = self.anew(*one), self.anew(*other)
        both = (changed_a | anew[0]) & (changed_b | anew[1])
        clash = frozenset(n for n in both if a.values[n] != b.values[n])
        if not clash:
            return changed_a, changed_b
        if take:
            if clash & (anew[0] | anew[1]):  # there is no half of such an item
                clash |= (anew[0] | anew[1]) & (changed_a | changed_b)
            ours = changed_a | clash, changed_b - clash
            return ours if take == name else (changed_a - clash, changed_b | clash)
        if self.rules.conflict == "person":
            raise Conflict
        wins = self.rules.conflict == name
        return (changed_a, changed_b - clash) if wins else (changed_a - clash, changed_b)

    def anew(self, side: Side, changed: frozenset[int], name: str, base: Values) -> frozenset[int]:
        """Return the fields of items that were deleted or put anew, if the side has changed.

        An item that was made where nothing was has written what is in it, and nothing else. With
        the last of several items, the one that they became is deleted.
        """
        if not changed or not self.rules.whole:
            return frozenset()
        if side.values == NOTHING:
            return EVERY
        return frozenset(
            field
            for item in self.items[name]
            for field in item
            if not side.stamped[field] and any(base[one] is not None for one in item)
        )

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold once it is over."""
        if world.phase not in ("done", "rolled back"):
            return
        counts, other = world.new, world.old
        if world.phase == "rolled back":
            counts, other = other, counts
        if any(world.told[field] - counts.seen[field] for field in FIELDS):
            yield "lost"
        if other.values != NOTHING:
            yield "left"


def level(world: World) -> World:
    """Where nothing is on either side, and no record, both sides agree."""
    old, new, record = world.family
    if record is None and old.values == new.values == NOTHING:
        for field in FIELDS:
            both = old.seen[field] | new.seen[field]
            old, new = old.saw(field, both), new.saw(field, both)
    return world._replace(old=old, new=new)


def _without(side: Side, unseen: frozenset[int]) -> Side:
    for field in unseen:
        side = side.written(field, None, stamped=False)
    return side


def _changed(values: Values, base: Values) -> frozenset[int]:
    return frozenset(field for field in FIELDS if values[field] != base[field])


def _with(world: World, m: int, plan: Plan | None) -> World:
    return world._replace(plans=(*world.plans[:m], plan, *world.plans[m + 1 :]))


NAIVE: dict[str, Rules] = {
    "the old image replaces the new item": Rules(by_field=False),
    "the old write wins": Rules(conflict="old"),
    "the new write wins": Rules(conflict="new"),
    "a delete is merged field by field": Rules(whole=False),
    "the old item is not asked for": Rules(conditional="new"),
    "the new item is not asked for": Rules(conditional="old"),
    "the base takes up what was not carried": Rules(reverse=False, carried=False),
    "contract does not compare": Rules(compares=False, asks=False, stubs=False, watches=False),
    "contract compares, and deletes by the mark": Rules(asks=False),
    "contract passes over old items only": Rules(records=False),
    "nothing is left at the old key": Rules(stubs=False),
    "nobody watches what is left": Rules(watches=False),
    "a decision about whatever is there": Rules(shown=False),
    "the target becomes what the sources say": Rules(shape="merge", by_field=False),
    "a source that is gone is merged field by field": Rules(shape="merge", whole=False),
    "the sources are not asked for": Rules(shape="merge", conditional="new"),
    "the target is not asked for": Rules(shape="merge", conditional="old"),
    "contract passes over sources only": Rules(shape="merge", records=False),
    "contract compares sources, and deletes by the mark": Rules(shape="merge", asks=False),
    "what people say is not compared": Rules(declared=True, compares=False, asks=False),
    "what people say is compared, and not asked": Rules(declared=True, asks=False),
    "what people say is asked of old items only": Rules(declared=True, records=False),
    "nobody looks whether it was so": Rules(declared=True, watches=False),
    "a part stays alone": Rules(shape="split", alone="kept"),
    "the sources go because people say so": Rules(shape="merge", declared=True, asks=False),
}
"""Rules that look simpler, and lose a write."""

"""One family: its old items, the new ones that follow from them, and what both sides agreed on.

A *stub* is a key and a stamp, so that what other code writes or deletes there can be seen. A stub
stands for what the other side says.

In: a family as it was read. Out: both sides of it as `settlement` compares them. Pure, but for the
functions of the migration. On failure: `Undecided`, if it cannot be told what a stub stands for.
"""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streamkit.errors import USER_ERRORS
from streamkit.migrate.book.errors import error_id
from streamkit.migrate.families.defaults import without_defaults
from streamkit.migrate.families.records import PairRecord
from streamkit.migrate.families.settlement import (
    COUNTED,
    OLD,
    THERE,
    Digests,
    FamilySide,
    Field,
    Settlement,
    digest,
    in_question,
)
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.rewrites import Items, Key, Target, WireItem, plain, visible
from streamkit.migrate.sending.attempts import Undecided
from streamkit.model.copies import COPY, PAIR
from streamkit.progress.scan.places import place_of

_ELSE = "-"
"""A digest that no field has."""


Only = Literal["", "old", "new"]


@dataclass(frozen=True)
class Family:
    """One family: `old` and `new` have a place for each item; see `sources` about its `key`.

    `others` are items that are in places of old ones, and are none: of another type, or copies that
    another migration keeps.
    """

    key: Key
    record: PairRecord | None = None
    old: Items = field(default_factory=dict)
    new: Items = field(default_factory=dict)
    others: Items = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """The name of its record, and of its error."""
        return error_id(self.key)

    @property
    def shown(self) -> str:
        """A digest of all of it: a decision is about exactly this."""
        both = *self.old.values(), *self.new.values()
        items = [None if one is None else plain(one) for one in both]
        return digest([self.record.text if self.record else "", list(self.new), *items])


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a family, and what the items of each one stand for, stubs included."""

    old: FamilySide
    new: FamilySide
    targets: Mapping[str, Target]
    image: Items


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """A family as it was read, and as it is to be; `only` is the side it is about, "" is both."""

    before: Family
    after: Family
    only: Only = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a phase allows.

    `counts_new`: new items count, where a family does not say itself. `makes_new`: an old item
    without new ones gets them; `makes_old`: and the other way round. `drops`: new items go.
    `stubs`: an old item that goes leaves one; without, people have said that no code writes there.
    `late`: what is written where no record is left waits for people. `keeps_parts`: and so does a
    part of a split whose item is gone.
    `gate`: what a transaction that makes a pair asks for, so that a late one makes none.
    """

    counts_new: bool = False
    makes_new: bool = True
    makes_old: bool = False
    drops: bool = False
    stubs: bool = True
    late: bool = False
    keeps_parts: bool = False
    gate: str = ""


@dataclass(frozen=True)
class Views:
    """Reads the sides of the families of one migration."""

    shapes: BothShapes

    @property
    def id(self) -> str:
        """The migration's number."""
        return self.shapes.transform.migration.id

    def stamp(self, family: Family, side: str) -> dict[str, dict[str, str]]:
        """Return the attribute of an item on a side that an update of other code keeps."""
        return {PAIR: {"S": f"{self.id}:{family.name}:{side}"}}

    def is_stamped(self, item: WireItem | None, family: Family, side: str) -> bool:
        """Return whether an item is one that the migration wrote, perhaps updated since."""
        return item is not None and item.get(PAIR) == self.stamp(family, side)[PAIR]

    def of(self, family: Family) -> Sides:
        """Return both sides of a family.

        Raises:
            Undecided: it cannot be told what a written stub means.
        """
        record = family.record or PairRecord(family.key)
        base_new = record.base_new
        if record.left == "old" and not self.shapes.is_split:
            old, targets = self._old_stubs(family, record)
        else:
            targets, fields = self.shapes.targets(family.old), self.shapes.view_of_old(family.old)
            lost = self._lost(family, record)
            base = self._base_of_rest(family, record, fields, lost)
            anew = _places(fields, base) if lost else set[str]()
            spared = self.shapes.spared(family.old, lost, family.new)
            old = FamilySide(fields, base, anew, spared)
        if record.left == "new":
            new, image = self._new_stubs(family, record.base_old, targets)
        else:
            fields, image = self.shapes.view(family.new), family.new
            lost_at = {
                p for p, one in family.new.items() if not self.is_stamped(one, family, "new")
            }
            new = FamilySide(fields, base_new, lost_at)
        old = without_defaults(self.shapes, family.old, (old, new), image)
        return Sides(old, new, targets, image)

    def _lost(self, family: Family, record: PairRecord) -> set[str]:
        """Return the places of old items that were deleted, or put anew by other code.

        One of several that was made where nothing was is none of them.
        """
        one = not self.shapes.is_merge
        return {
            place
            for place, item in family.old.items()
            if not self.is_stamped(item, family, "old") and (one or (OLD, place) in record.base_old)
        }

    def _base_of_rest(
        self, family: Family, record: PairRecord, fields: Digests, lost: AbstractSet[str]
    ) -> Digests:
        """Return the base of old items; at the end of a split nothing in it tells of its parts.

        There a delete is one of all parts, and a counter that is put again does not count from 0.
        """
        if record.left != "old":
            return record.base_old
        base = {name: one for name, one in record.base_old.items() if name[0] != OLD}
        if not any(family.old.values()):
            return base if base == record.base_old else dict.fromkeys(record.base_new, _ELSE)
        again = {name for name, one in fields.items() if lost and one.startswith(COUNTED)}
        return dict.fromkeys(again, _ELSE) | base

    def _old_stubs(
        self, family: Family, record: PairRecord
    ) -> tuple[FamilySide, dict[str, Target]]:
        """Return what other code has written at stubs of the old items.

        Raises:
            Undecided: it cannot be told what that means for the new item.
        """
        shapes, lost = self.shapes, self._lost(family, record)
        there = [one for one in family.new.values() if one is not None]
        stubs = {p: one for p, one in family.old.items() if one is not None and p not in lost}
        said = {p: more for p, one in stubs.items() if (more := shapes.says(one, new=False))}
        if not lost and not said:
            return FamilySide({}, {}), {}
        before: Items = {}
        if shapes.mirrors and there and len(lost) < len(family.old):
            before = shapes.reverse.sources(there[0], family.old)
        now = {p: one if p in lost else before.get(p) for p, one in family.old.items()}
        on_top = shapes.counters.on_top
        now |= {p: place_of(p) | on_top(now[p] or {}, more, new=False) for p, more in said.items()}
        try:
            targets, fields = shapes.targets(now), shapes.view_of_old(now)
            seen, spared = shapes.view_of_old(before), shapes.spared(now, lost)
        except USER_ERRORS as error:
            if not said:
                raise
            text = "written at its old key after it was contracted, in fields that say too little"
            raise undecided(family, "conflict", text) from error
        if not lost:
            return FamilySide(fields, seen, stub=True), targets
        names = {*fields, *seen, *record.base_new, *((OLD, p) for p in lost if shapes.is_merge)}
        base = dict.fromkeys(names - spared, _ELSE)
        base |= {n: seen[n] for n in spared & seen.keys()}
        return FamilySide(fields, base, _places(fields, base), spared, stub=True), targets

    def _new_stubs(
        self, family: Family, base: Digests, targets: Mapping[str, Target]
    ) -> tuple[FamilySide, Items]:
        """Return what other code has written at stubs of the new items, in a rollback."""
        image: dict[str, WireItem | None] = {}
        seen: dict[Field, str] = {}
        anew: set[str] = set()
        for place, item in family.new.items():
            target = targets.get(place)
            if item is not None and self.is_stamped(item, family, "new"):
                said = self.shapes.says(item, new=True)
                above = self.shapes.counters.on_top
                alone = item if said else None  # a stub says that nothing is there, as the old side
                image[place] = above(target.item, said, new=True) if target else alone
                seen |= self.shapes.view({place: target.item if target else None})
            else:
                image[place] = item
                own = {f for f in base if f[0] == place} | self.shapes.view({place: item}).keys()
                seen |= dict.fromkeys(own, _ELSE)
                anew.add(place)
        return FamilySide(self.shapes.view(image), seen, anew, stub=True), image


def _places(fields: Digests, base: Digests) -> set[str]:
    return {place for place, _ in (*fields, *base) if place != OLD}


def without(item: WireItem, *names: str) -> WireItem:
    """Return an item without some attributes."""
    return {name: value for name, value in item.items() if name not in names}


def bare(items: Items) -> Items:
    """Return items without the marks of a migration: none of them is one of a pair."""
    return {place: one and without(one, COPY, PAIR) for place, one in items.items()}


def undecided(family: Family, kind: str, text: str, detail: str = "") -> Undecided:
    """Return the error that leaves a family to people."""
    return Undecided(kind, text, name=family.name, shown=family.shown, detail=detail)


def conflict(family: Family, sides: Sides, found: Settlement) -> Undecided:
    """Return the error that both sides have written the same, with both values for people.

    It also says what a decision for a side takes away, of all that it decides about.
    """
    names, asked = (
        sorted({name for _, name in fields if name != THERE})
        for fields in (found.clash, in_question(sides.old, sides.new, found))
    )
    keys = ("its old key", "its new key")
    did = [
        f"deleted at {key}"
        if side.base and not side.fields
        else f"written anew at {key}"
        if side.anew
        else f"written at {key}"
        for side, key in zip((sides.old, sides.new), keys, strict=True)
    ]
    ours = {place: one.item for place, one in sides.targets.items()}
    values: list[dict[str, Any]] = [
        {
            n: v
            for one in items.values()
            if one
            for n, v in plain(visible(one)).items()
            if n in asked
        }
        for items in (ours, sides.image)
    ]
    gone = [sorted(there.keys() - values[side].keys()) for side, there in enumerate(values[::-1])]
    text = f"both sides wrote {', '.join(names) or 'it'}: {did[0]}, {did[1]}"
    for side, removed in zip(("old", "new"), gone, strict=True):
        text += f"; `--take {side}` removes {', '.join(removed)}" if removed else ""
    detail = json.dumps(dict(zip(("old", "new"), values, strict=True)), default=str)
    return undecided(family, "conflict", text, detail)

"""Compare both sides of a family with what they last agreed on, field by field. Pure.

A family is an old item and the new ones that follow from it. Old and new code may write both sides
at once, so neither is the truth: each side is compared with its *base*, which is a digest of each
field as both sides last agreed, in the new shape. What one side alone has changed goes to the
other. The same field with two values is a conflict that a person decides: the sides have no common
order, so there is no last writer.

A field is the place of a new item and the name of an attribute there. `THERE` is the field that
says that the item exists, so that a delete is a write of every field of its item.

With settle="item" a side is taken whole: if both have changed, all in which they differ is the
conflict, and no item comes about that neither side has written. The digest of a *counter* is its
value. Where both sides only added to it, their differences to the base are added, and it is never a
conflict. A counter that was absent counts from 0; one that is removed, or whose item is deleted or
put anew, is written like any other field. Then equal counters do not agree, either: each side may
have added the same amount.

In: the digests of two sides and their bases. Out: a `Settlement`, and the next base.
"""

import base64
import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Literal

from streamkit.model.codec import NUMBERS

Field = tuple[str, str]
Digests = Mapping[Field, str]
Policy = Literal["field", "item"]
Take = Literal["", "old", "new"]
"""Which side a person has decided for; "" is no decision."""

THERE: Final = ""
"""The name of the field that says that an item exists."""
OLD: Final = ""
"""The place of the fields that say which of several old items are there."""
COUNTED: Final = "="
"""How the digest of a counter begins; its value follows."""


@dataclass(frozen=True, slots=True)
class FamilySide:
    """One side of a family: its fields, and those as both sides last agreed.

    `anew` are the places of items that were deleted, or put by other code. Such an item counts as
    written in every field, also in those that it never had: only an update leaves the stamp of the
    migration in it. One that was made where nothing was is none of them: what it lacks, nobody has
    removed. `spared` are fields there that follow from another item, which was not. A `stub` says
    of all that was not written there what the other side says.
    """

    fields: Digests
    base: Digests
    anew: AbstractSet[str] = frozenset()
    spared: AbstractSet[Field] = frozenset()
    stub: bool = False

    @property
    def changed(self) -> frozenset[Field]:
        """The fields that differ from the base."""
        names = self.fields.keys() | self.base.keys()
        return frozenset(n for n in names if self.fields.get(n) != self.base.get(n))

    def written(self, names: AbstractSet[Field]) -> frozenset[Field]:
        """Return which fields other code answers for: none of a side that is as agreed."""
        changed = self.changed
        if not changed:
            return frozenset()
        return frozenset(n for n in names if n in changed or self.is_anew(n))

    def is_anew(self, name: Field) -> bool:
        """Return whether a field is of an item that was deleted, or put by other code."""
        there = (name[0], THERE) in self.base
        return there and name[0] in self.anew and name not in self.spared

    def added(self, name: Field) -> Decimal | None:
        """Return what was added to a counter; None if it is none, or was written otherwise."""
        value, before = self.fields.get(name, ""), self.base.get(name, "")
        written = (before and not value) or (self.is_anew(name) and self.changed)
        if written or not all(one.startswith(COUNTED) for one in (value, before) if one):
            return None
        return NUMBERS.subtract(_number(value), _number(before))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is carried from each side to the other, and what both have written differently.

    `added` is what new items take up of counters. `overruled`: a person has decided for whole new
    items, of which the old side has seen nothing.
    """

    to_new: frozenset[Field] = frozenset()
    to_old: frozenset[Field] = frozenset()
    clash: frozenset[Field] = frozenset()
    added: Mapping[Field, Decimal] = field(default_factory=dict)
    overruled: bool = False


def compare(
    old: FamilySide,
    new: FamilySide,
    *,
    mirrors: bool = True,
    take: Take = "",
    settle: Policy = "field",
) -> Settlement | None:
    """Return what has to be carried; None if nothing has changed.

    `take` is the side that a person has decided for, if one has.
    `mirrors`: the old side can take up what the new one has written; without `reverse=` it cannot,
    and what is a stub must not.
    """
    if not old.changed and not (new.changed and mirrors):
        return None
    counted = _counted(old, new)
    ours, theirs = old.changed - counted.keys(), new.changed - counted.keys()
    if settle == "item":
        clash = _all_that_differs(old, new) - counted.keys() if ours and theirs else frozenset()
    else:
        clash = frozenset(n for n in _both(old, new) - counted.keys() if _differ(old, new, n))
    found = Settlement(ours - theirs, theirs - ours, clash)
    if clash and take:
        found = _decided(old, new, replace(found, overruled=settle == "item"), take)
    added = {name: counted[name] for name in old.changed & counted.keys()}
    to_old = found.to_old | (new.changed & counted.keys()) if mirrors else frozenset[Field]()
    return replace(found, to_new=found.to_new | added.keys(), to_old=to_old, added=added)


def _decided(old: FamilySide, new: FamilySide, found: Settlement, take: Take) -> Settlement:
    """Return a settlement in which a person has decided what both sides have written."""
    clash, to_new, to_old = in_question(old, new, found), found.to_new, found.to_old
    if found.overruled:
        to_new = to_old = frozenset()
        if old.stub and take == "old":
            clash &= old.changed  # the rest of it is what the other side says
    to_new, to_old = to_new - clash, to_old - clash
    if take == "old":
        return Settlement(to_new | clash, to_old)
    return Settlement(to_new, to_old | clash, overruled=found.overruled)


def in_question(old: FamilySide, new: FamilySide, found: Settlement) -> frozenset[Field]:
    """Return the fields that a person decides about: of an item put anew there is no half."""
    anew = {
        n for n in found.to_new | found.to_old | found.clash if old.is_anew(n) or new.is_anew(n)
    }
    return found.clash | anew if found.clash & anew else found.clash


def _all_that_differs(old: FamilySide, new: FamilySide) -> frozenset[Field]:
    names = frozenset(name for side in (old, new) for name in (*side.fields, *side.base))
    return frozenset(name for name in names if _differ(old, new, name))


def _counted(old: FamilySide, new: FamilySide) -> dict[Field, Decimal]:
    """Return the counters to which both sides have only added, with what the old one has added."""
    counters = [
        name
        for name in old.changed | new.changed
        if COUNTED in (old.fields.get(name, "")[:1], new.fields.get(name, "")[:1])
    ]
    return {
        name: added
        for name in counters
        if (added := old.added(name)) is not None and new.added(name) is not None
    }


def _differ(old: FamilySide, new: FamilySide, name: Field) -> bool:
    """Return whether both sides differ in a field; counters that both have written always do."""
    value = old.fields.get(name)
    if value != new.fields.get(name):
        return True
    return value is not None and value.startswith(COUNTED) and name in old.changed & new.changed


def _both(old: FamilySide, new: FamilySide) -> frozenset[Field]:
    """Return the fields that both sides have written."""
    names = old.changed | new.changed
    return old.written(names) & new.written(names)


def taken_up(old: FamilySide, new: FamilySide, settled: Settlement, take: Take) -> dict[Field, str]:
    """Return the next base of new items from which nothing is carried back.

    It takes up what was carried from the old side, and what a person has decided. It never takes up
    what the old side has not seen: a later write of the same field there has to be a conflict.
    """
    base = dict(new.base)
    if settled.overruled:  # of a whole item the old side has seen nothing
        return base | _sums(base, settled.added)
    decided = _both(old, new) if take == "new" else frozenset[Field]()
    for name in (old.changed | settled.to_new | decided) - settled.added.keys():
        side = old if name in settled.to_new else new
        value = side.fields.get(name)
        if value is None:
            base.pop(name, None)
        else:
            base[name] = value
    return base | _sums(base, settled.added)


def _sums(base: Digests, added: Mapping[Field, Decimal]) -> dict[Field, str]:
    """Return counters of a base with what was added to them; what new code added stays unseen."""
    return {n: counter(NUMBERS.add(_number(base.get(n, "")), more)) for n, more in added.items()}


def counter(value: Any) -> str:
    """Return the digest of a counter."""
    return f"{COUNTED}{NUMBERS.create_decimal(value).normalize(NUMBERS)}"


def _number(text: str) -> Decimal:
    return Decimal(text.removeprefix(COUNTED) or 0)


def digest(value: Any) -> str:
    """Return a digest of a plain value, the same for all forms of it."""
    told = value if type(value) is str else _canonical(value)  # most values are texts
    text = hashlib.blake2b(repr(told).encode(), digest_size=8).digest()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _canonical(value: Any) -> Any:
    """Return a value that prints the same for all forms of it."""
    if isinstance(value, Mapping):
        return [(name, _canonical(value[name])) for name in sorted(value)]
    if isinstance(value, AbstractSet):
        return "set", sorted((_canonical(one) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return "list", [_canonical(one) for one in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return "number", str(NUMBERS.create_decimal(value).normalize(NUMBERS))
    return value

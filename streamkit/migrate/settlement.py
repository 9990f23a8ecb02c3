"""Compare both sides of a family with what they last agreed on, field by field. Pure.

A family is an old item and the new ones that follow from it. Old and new code may write both sides
at once, so neither is the truth: each side is compared with its *base*, which is a digest of each
field as both sides last agreed, in the new shape. What one side alone has changed goes to the
other. The same field with two values is a conflict that a person decides: the sides have no common
order, so the last writer is nobody.

A field is the place of a new item and the name of an attribute there. `THERE` is the field that
says that the item exists, so that a delete is a write of every field of its item.

In: the digests of two sides and their bases. Out: a `Settlement`, and the next base.
"""

import base64
import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from streamkit.model.codec import NUMBERS

Field = tuple[str, str]
Digests = Mapping[Field, str]
Take = Literal["", "old", "new"]
"""Which side a person has decided for; "" is no decision."""

THERE: Final = ""
"""The name of the field that says that an item exists."""
OLD: Final = ""
"""The place of the fields that say which of several old items are there."""


@dataclass(frozen=True, slots=True)
class FamilySide:
    """One side of a family: its fields, and those as both sides last agreed.

    `anew` are the places of items that were deleted, or put by other code. Such an item counts as
    written in every field, also in those that it never had: only an update leaves the stamp of the
    migration in it. `spared` are fields there that follow from another item, which was not.
    """

    fields: Digests
    base: Digests
    anew: AbstractSet[str] = frozenset()
    spared: AbstractSet[Field] = frozenset()

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
        return name[0] in self.anew and name not in self.spared


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is carried from each side to the other, and what both have written differently."""

    to_new: frozenset[Field] = frozenset()
    to_old: frozenset[Field] = frozenset()
    clash: frozenset[Field] = frozenset()


def compare(
    old: FamilySide, new: FamilySide, *, mirrors: bool = True, take: Take = ""
) -> Settlement | None:
    """Return what has to be carried; None if nothing has changed.

    Args:
        old: the old items, in the new shape.
        new: the new items.
        mirrors: the old side can take up what the new one has written; without `reverse=` it
            cannot, and what is a stub must not.
        take: the side that a person has decided for, where both have written.
    """
    ours, theirs = old.changed, new.changed
    if not ours and not (theirs and mirrors):
        return None
    both = _both(old, new)
    clash = frozenset(n for n in both if old.fields.get(n) != new.fields.get(n))
    to_new, to_old = ours - theirs, theirs - ours
    if clash and take:
        if any(old.is_anew(n) or new.is_anew(n) for n in clash):  # there is no half of such an item
            clash = ours | theirs
            to_new = to_old = frozenset()
        to_new, to_old = to_new - clash, to_old - clash
        to_new, to_old = (to_new | clash, to_old) if take == "old" else (to_new, to_old | clash)
        clash = frozenset()
    return Settlement(to_new, to_old if mirrors else frozenset(), clash)


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
    decided = _both(old, new) if take == "new" else frozenset[Field]()
    for name in old.changed | settled.to_new | decided:
        side = old if name in settled.to_new else new
        value = side.fields.get(name)
        if value is None:
            base.pop(name, None)
        else:
            base[name] = value
    return base


def digest(value: Any) -> str:
    """Return a digest of a plain value, the same for all forms of it."""
    text = hashlib.blake2b(repr(_canonical(value)).encode(), digest_size=8).digest()
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

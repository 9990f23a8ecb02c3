"""Describe what a migration makes of one item: a `Rewrite`, with the items that are to exist. Pure.

In: items as they are stored, or their plain values. Out: the same in the other form, and whether
two are alike. The errors say which limit of DynamoDB a result does not keep.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from streamkit.errors import PoisonChange
from streamkit.model.codec import decode_item, encode
from streamkit.model.declaration import Declaration
from streamkit.model.sizes import item_size, size_at_most
from streamkit.progress.actions import CONTROL_ATTRIBUTE, Wire

ITEM_BYTES_MAX = 400 * 1024
"""The size limit of an item in bytes, names and values together."""


ITEMS_MAX = 98
"""Items of a family that moves: one transaction holds them beside their record and its gate."""


_json = msgspec.json.Encoder().encode


T = TypeVar("T")
Key = Mapping[str, Wire]
WireItem = Mapping[str, Wire]
Items = Mapping[str, WireItem | None]
"""Items by their places; None where nothing is."""
Image = dict[str, Any]
"""An item's plain values by attribute name, streamkit's own attributes included."""


class TransformError(PoisonChange):
    """A migration's function returned an impossible result; it names the rule, never a value."""


class ItemTooLarge(TransformError):
    """An item would be larger than DynamoDB takes."""


class FamilyTooLarge(TransformError):
    """An old item and its new ones would be more than one transaction holds."""

    def __init__(self, parts: int) -> None:
        super().__init__(
            f"it becomes {parts} items; at most {ITEMS_MAX - 1} can be written in one transaction"
            " with it: let it return fewer"
        )


class BadIndexKey(TransformError):
    """An attribute that is an index's key would be empty, or of another type."""


@dataclass(frozen=True, slots=True)
class Target:
    """Another item that is to exist: its key and all its attributes, in wire form."""

    key: Key
    item: WireItem


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What one item becomes, and which attributes decided it.

    `sets` are plain values. For an item that is split, `sets` and `removes` wait for the end.
    """

    reads: frozenset[str]
    sets: Mapping[str, Any] = field(default_factory=dict)
    removes: frozenset[str] = frozenset()
    targets: tuple[Target, ...] = ()
    delete: bool = False

    @property
    def changes_item(self) -> bool:
        """Whether the item itself is not as it should be."""
        return bool(self.sets or self.removes or self.delete)

    def applied(self, image: Image) -> Image:
        """Return what it leaves of an item that it does not delete."""
        return {n: v for n, v in image.items() if n not in self.removes} | dict(self.sets)


def plain(item: WireItem) -> Image:
    """Return an item in wire form as plain values."""
    return decode_item(item)


def wire(image: Mapping[str, Any]) -> dict[str, Wire]:
    """Return plain values in wire form."""
    return {name: encode(value, name) for name, value in image.items()}


def same(one: Any, other: Any) -> bool:
    """Return whether two plain values are stored alike: to Python, `True` equals 1."""
    return one == other and encode(one) == encode(other)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Return the names of plain values that are stored differently, or are in one item alone."""
    both = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {n for n in both if not same(one[n], other[n])}


def require_one_meaning(
    declared: Declaration, before: Image, sets: Image, removes: Collection[str]
) -> None:
    """Refuse effects that contradict each other; `before` is what those before the last one set.

    Raises:
        TransformError: an attribute is set to two values, or set and removed.
    """
    twice = {name for name, value in before.items() if not same(value, sets[name])}
    if twice := twice | (sets.keys() & {*removes}):
        names = ", ".join(sorted(twice))
        raise TransformError(f"{declared}: its effects contradict each other about {names}")


def visible(item: Mapping[str, T]) -> dict[str, T]:
    """Return an item without streamkit's own attributes."""
    return {n: v for n, v in item.items() if not n.startswith(CONTROL_ATTRIBUTE)}


def alike(one: WireItem, other: WireItem) -> bool:
    """Return whether two items are equal, except for streamkit's own attributes."""
    return not differing(plain(visible(one)), plain(visible(other)))


def is_too_large(shown: Image, rewrite: Rewrite) -> bool:
    """Return whether an item would be too large; most are so small that they need no encoding."""
    after = rewrite.applied(shown)
    return size_at_most(after) > ITEM_BYTES_MAX and item_size(wire(after)) > ITEM_BYTES_MAX


def is_oversized(item: WireItem) -> bool:
    """Return whether an item in wire form is too large; its JSON has more bytes in any case."""
    return len(_json(item)) > ITEM_BYTES_MAX and item_size(item) > ITEM_BYTES_MAX

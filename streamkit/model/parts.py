"""Parts: a group whose contributions are spread over several items, and read as one. Pure.

Part 0 is the item with the group's own key. The other parts have a suffix at their sort key, or at
their partition key where the table has no sort key. Each shard's commits add to one part alone, so
that commits of different shards do not conflict. `merge` makes one item of the parts that exist:
the sum of the attributes that add up, and any other attribute from the first part that has it.

In: items in wire form. On failure: a sum of more than 38 digits raises `ArithmeticError`.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import msgspec

from streamkit.model.codec import NUMBERS, encode

PARTS_MAX = 64
"""The most parts of one group: all are read at once, and deleted in one transaction."""
_MARK = "#_sk~"
_LENGTH = len(_MARK) + 2

Wire = dict[str, Any]


class Parts(msgspec.Struct, frozen=True):
    """How an entity's items are spread: over how many parts, and which attributes add up."""

    count: int
    sums: Callable[[str], bool]

    def merge(self, items: Sequence[Mapping[str, Wire]]) -> dict[str, Wire]:
        """Merge the parts of one group, at least one, into one item."""
        whole: dict[str, Wire] = {}
        for item in items:
            for name, value in item.items():
                there = whole.get(name)
                if there is None:
                    whole[name] = value
                elif self.sums(name):
                    total = NUMBERS.add(Decimal(there["N"]), Decimal(value["N"]))
                    whole[name] = encode(total)
        return whole


def part_of_shard(shard_id: str, count: int) -> int:
    """Return the part for a shard's contributions; it is the same in every process."""
    if count == 1:
        return 0
    digest = blake2b(shard_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % count


def suffix(part: int) -> str:
    """Return the suffix of a part's key."""
    return f"{_MARK}{part:02d}" if part else ""


LAST_SUFFIX = f"{_MARK}~"
"""Sorts after the suffix of every part."""


def without_suffix(text: str) -> str:
    """Return the group's key for a part's key, and any other key as it is."""
    return text[:-_LENGTH] if is_part(text) else text


def is_part(text: str) -> bool:
    """Return whether a key value belongs to a part other than 0."""
    return text[-_LENGTH:-2] == _MARK and text[-2:].isdecimal()

"""Lanes: the runs of one item key, in order; other keys run beside them. Pure.

In: runs in the order of their shard. Out: one list an item key.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from streamkit.changes import ItemKey


class Keyed(Protocol):
    """Something that belongs to one item."""

    @property
    def key(self) -> ItemKey:
        """The item's key."""
        ...


K = TypeVar("K", bound=Keyed)


def into_lanes(runs: Iterable[K]) -> list[list[K]]:
    """Group runs by item key, keeping their order within a key."""
    lanes: dict[ItemKey, list[K]] = {}
    for run in runs:
        lanes.setdefault(run.key, []).append(run)
    return list(lanes.values())

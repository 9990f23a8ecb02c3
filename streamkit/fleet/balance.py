"""Balance: which shards a worker claims from workers that read them. Pure.

The worker claims the shards that it lacks up to its share, rounded down. Up to its share rounded
up, it claims from workers that hold more than theirs. Each claim goes to the worker that has most
to spare at that point, so that no worker falls below its own share and claims in turn. A worker
that joins moves its share and no more, and no shard moves for a small imbalance.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamkit.fleet.assignment import preference, share
from streamkit.progress.control import Cursor

_TOLERANCE = 20
"""A worker claims nothing while it lacks at most one of so many shards of its share."""


@dataclass(frozen=True)
class Balance:
    """How a fleet holds its shards, as one worker sees it.

    `weights` are of every worker alive, including those of another roll-out. `loads` say how many
    shards each holds; for `worker` they include the shards it claims already.
    """

    roots: int
    weights: Mapping[str, int]
    loads: Mapping[str, int]
    worker: str

    @property
    def _spare(self) -> dict[str, float]:
        """Return how far each other worker is above its share."""
        return {
            name: self.loads.get(name, 0) - share(self.roots, self.weights, name)
            for name in self.weights
            if name != self.worker
        }

    @property
    def _lacks(self) -> int:
        whole = math.floor(share(self.roots, self.weights, self.worker))
        lacks = whole - self.loads[self.worker]
        return lacks if lacks > whole // _TOLERANCE else 0

    @property
    def _room(self) -> int:
        part = share(self.roots, self.weights, self.worker)
        return max(self._lacks, math.ceil(part) - self.loads[self.worker])

    @property
    def settled(self) -> bool:
        """Return whether one worker holds each shard, according to their last reports."""
        return sum(self.loads.values()) == self.roots

    @property
    def lacking(self) -> bool:
        """Return whether there may be something to claim; only reads of the cursors tell."""
        relief = any(spare >= 1 for spare in self._spare.values())
        return self._lacks > 0 or (relief and self._room > 0)

    def choose(self, cursors: Iterable[Cursor], mine: Collection[str]) -> list[Cursor]:
        """Choose what to claim.

        Args:
            cursors: shards that other workers read.
            mine: the lineage roots assigned to the worker; from each owner, these are claimed
                first.
        """
        spare, lacks, room = self._spare, self._lacks, self._room
        held: dict[str, list[Cursor]] = {}
        for cursor in cursors:
            if cursor.owner in spare:
                held.setdefault(cursor.owner, []).append(cursor)
        for owned in held.values():
            owned.sort(key=lambda c: (c.root in mine, preference(c.root, self.worker)))
        chosen: list[Cursor] = []
        while held and len(chosen) < room:
            owner = max(held, key=lambda name: spare[name])
            if spare[owner] < 1 if len(chosen) >= lacks else spare[owner] <= 0:
                break
            chosen.append(held[owner].pop())
            spare[owner] -= 1
            if not held[owner]:
                del held[owner]
        return chosen

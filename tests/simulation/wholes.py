"""Which pairs of fields there have been on each side of a move; told from the engine's records alone.

With items that are taken whole, a migration never leaves two fields together that no writer of the
application left so. Of what a migration has emptied, the other side says what there is.

In: a world. Out: `mixed`, the pairs that a migration made and no writer, by item.
"""

from collections import defaultdict

from tests.simulation.both_shapes import FIELDS, OTHER


class Wholes:
    """Sees each write of both sides, of the orders that are `judged`; a side may be in several parts."""

    def __init__(self, world, judged=lambda order: True):
        self.mixed, self._judged = [], judged
        self._written, self._stands = defaultdict(set), defaultdict(dict)
        world.watchers.append(self._saw)

    def _saw(self, sighting):
        orders = set()
        for write in sighting.writes:
            sort = write.keys["SK"]["S"]
            if "ORDER#" in sort and not write.is_control:
                side, order = "new" if sort.startswith("#") else "old", sort.rpartition("#")[2]
                self._stands[side, order][sort] = write.new
                orders.add(order)
        for order in sorted(orders):
            found = {self._whole(side, order) for side in OTHER} - {None}
            if not sighting.actor:
                self._written[order] |= found
            elif self._judged(order) and not found <= self._written[order]:
                self.mixed.append((order, found - self._written[order]))

    def _whole(self, side, order):
        """Return both fields of a side, of a stub what the other side says; None if it has none."""
        there = [item for item in self._stands[side, order].values() if item is not None]
        if all("order_id" not in item for item in there) and there:
            there = [*filter(None, self._stands[OTHER[side], order].values()), *there]
        said = {name: one for item in there for name, one in item.items()}
        both = tuple(said.get(name, {}).get("S") for name in FIELDS)
        return both if any(both) else None

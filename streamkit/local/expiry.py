"""Expiry: the items of a table in the order in which they expire.

An item expires when the time in the table's time-to-live attribute (a number, epoch seconds) has
passed. An item with any other value there never expires, nor does one whose time lies more than
five years back. Every write updates the order, so that finding expired items needs no scan.
"""

from collections.abc import Iterator
from decimal import Decimal

from streamkit.local.ordering import LAST, Entry, SortedEntries
from streamkit.local.partitions import Place, Row
from streamkit.local.values import Item

_OLDEST = 5 * 365 * 86_400


class Expiries:
    """The items of a table that have an expiry, ordered by it.

    Args:
        attribute: the name of the time-to-live attribute.
    """

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute
        self._entries = SortedEntries()

    def change(self, place: Place, old: Row | None, new: Row | None) -> None:
        """Move an item that was changed to the place of its new expiry."""
        before = None if old is None else self._entry(place, old[0])
        after = None if new is None else self._entry(place, new[0])
        if before == after:
            return
        if before is not None:
            self._entries.remove(before)
        if after is not None:
            self._entries.add(after)

    def due(self, now: float) -> Iterator[Place]:
        """Yield the places of the items that have expired by now, the oldest expiry first."""
        first, last = (Decimal(now - _OLDEST),), (Decimal(now), LAST)
        for _, hash_value, *tokens in self._entries.ascending(first, last):
            yield hash_value, tuple(tokens)

    def _entry(self, place: Place, item: Item) -> Entry | None:
        number = item.get(self.attribute, {}).get("N")
        return None if number is None else (Decimal(number), place[0], *place[1])

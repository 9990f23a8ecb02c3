"""Secondary indexes: other orders of a table's items.

An index holds the rows of the table that have its key attributes (it is sparse), in the order of
its own key. Equal keys are in an order without meaning, because AWS promises none. It keeps whole
items, because sharing them costs nothing, and projects when it is read. The cost of a write is
computed from the projection.
"""

from typing import Any
from zlib import crc32

from streamkit.local.capacity import write_units
from streamkit.local.partitions import Partitions, Place, Row
from streamkit.local.schema import EmptyKeyValue, KeySchema, SchemaMismatch
from streamkit.local.values import Item, item_size

_TYPE_NAMES = {"S": "string", "B": "binary"}


class TableIndex:
    """A global or local secondary index.

    Args:
        name: unique within the table.
        keys: its key schema.
        table_keys: the table's key schema.
        projection: its `Projection`, in wire form.
        is_global: whether it is a global index, with a partition key of its own, or a local one.
        throughput: its provisioned units, if it has any.

    Attributes:
        projected: the attributes that it shows; None for all.
        size_bytes: the size of the attributes that it shows, over all its rows.
        active_at: when it can be read; 0 if it was there from the beginning.
    """

    def __init__(
        self,
        name: str,
        keys: KeySchema,
        table_keys: KeySchema,
        *,
        projection: dict[str, Any],
        is_global: bool,
        throughput: dict[str, int] | None = None,
    ) -> None:
        self.name = name
        self.keys = keys
        self.projection = projection
        self.is_global = is_global
        self.throughput = throughput
        self.rows = Partitions()
        self.item_count = 0
        self.size_bytes = 0
        self.active_at = 0.0
        self.key_names = dict.fromkeys((*keys.names, *table_keys.names))
        self.projected: frozenset[str] | None = None
        if projection["ProjectionType"] != "ALL":
            shown = projection.get("NonKeyAttributes") or ()
            self.projected = frozenset((*self.key_names, *shown))

    def place(self, item: Item, table_place: Place) -> Place | None:
        """Return the place of an item in this index; None when it lacks a part of the key."""
        if not self.keys.holds(item):
            return None
        hash_value, entry = self.keys.place(item)
        scattered = crc32(repr(table_place).encode())
        return hash_value, (*entry, scattered, *table_place[1], table_place[0])

    def project(self, item: Item) -> Item:
        """Return the attributes of an item that the index shows."""
        projected = self.projected
        if projected is None:
            return item
        return {name: value for name, value in item.items() if name in projected}

    def projected_size(self, row: Row) -> int:
        """Return the size of the attributes of a row that the index shows."""
        return row[1] if self.projected is None else item_size(self.project(row[0]))

    def entry_size(self, row: Row) -> int:
        """Return how many bytes a row takes here; 0 when it lacks a part of the key."""
        return self.projected_size(row) if self.keys.holds(row[0]) else 0

    def cost(self, table_place: Place, old: Row | None, new: Row | None) -> int:
        """Return the write units that a change of an item costs here."""
        before = None if old is None else self.place(old[0], table_place)
        after = None if new is None else self.place(new[0], table_place)
        old_size = 0 if old is None or before is None else self.projected_size(old)
        new_size = 0 if new is None or after is None else self.projected_size(new)
        if before == after:
            if old is None or new is None or before is None:
                return 0
            if self.project(old[0]) == self.project(new[0]):
                return 0
            return write_units(max(old_size, new_size))
        units = 0 if before is None else write_units(old_size)
        return units + (0 if after is None else write_units(new_size))

    def change(self, table_place: Place, old: Row | None, new: Row | None) -> None:
        """Apply a change of an item: its entry is added, moved, replaced or removed."""
        before = None if old is None else self.place(old[0], table_place)
        after = None if new is None else self.place(new[0], table_place)
        if old is not None and before is not None:
            self.item_count -= 1
            self.size_bytes -= self.projected_size(old)
            if before != after:
                self.rows.remove(before)
        if new is not None and after is not None:
            self.item_count += 1
            self.size_bytes += self.projected_size(new)
            self.rows.put(after, new)

    def check_item(self, item: Item, *, updated: bool) -> None:
        """Refuse an item whose attributes cannot be keys here; missing attributes are allowed.

        Args:
            item: the item to be stored.
            updated: whether an update made it; an update has its own message.
        """
        long = False
        for name, kind in self.keys.types.items():
            value = item.get(name)
            if value is None:
                continue
            raw = value.get(kind)
            if raw is None:
                raise SchemaMismatch(
                    "One or more parameter values were invalid: Type mismatch for Index Key "
                    f"{name} Expected: {kind} Actual: {next(iter(value))} IndexName: {self.name}"
                )
            if not raw:
                reason = (
                    "The AttributeValue for a key attribute cannot contain an empty "
                    f"{_TYPE_NAMES[kind]} value."
                )
                if updated:
                    raise EmptyKeyValue(
                        "The update expression attempted to update a secondary index key to a "
                        f"value that is not supported. {reason}"
                    )
                raise EmptyKeyValue(
                    "A value specified for a secondary index key is not supported. "
                    f"{reason} IndexName: {self.name}, IndexKey: {name}"
                )
            if len(raw) > self.keys.short:
                long = True
        if long:
            self.keys.check_sizes(item)

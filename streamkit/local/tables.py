"""Tables: their items, and the only function that changes an item.

`EngineTable.write` stores an item, updates every index, the counts and the stream, and returns the
cost. With a journal, a list of `ItemChange`s, the stream gets nothing until the journal is
published, and everything can be undone until then. Stored items are never changed, so a change is a
pair of references, and costs the same however large the table is.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamkit.local.capacity import WriteUnits, write_units
from streamkit.local.errors import validation
from streamkit.local.expiry import Expiries
from streamkit.local.expressions import Condition, Projection, Update
from streamkit.local.indexes import TableIndex
from streamkit.local.partitions import Partitions, Place, Row
from streamkit.local.schema import KeySchema
from streamkit.local.streams import Stream
from streamkit.local.values import Item, equal, item_size


@dataclass(slots=True)
class IndexLag:
    """How late the global indexes of all tables are, in seconds; 0 for not at all.

    Attributes:
        seconds: by how much they lag behind the table.
        creation: how long a new index of an existing table is CREATING.
    """

    clock: Callable[[], float]
    seconds: float = 0.0
    creation: float = 0.0


@dataclass(slots=True)
class TableOptions:
    """Options that a table only stores and describes, in wire form."""

    billing_mode: str = "PROVISIONED"
    throughput: dict[str, int] = field(default_factory=dict)
    deletion_protection: bool = False
    table_class: str | None = None
    sse: dict[str, Any] | None = None
    on_demand: dict[str, int] | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class ItemChange:
    """One change of one item, with all that undoing it needs; `sizes` are of old and new."""

    table: "EngineTable"
    key: Item
    old: Item | None
    new: Item | None
    identity: dict[str, Any] | None
    sizes: tuple[int, int]


Journal: TypeAlias = list[ItemChange]


class EngineTable:
    """A table.

    Args:
        name: its name.
        arn: its ARN.
        table_id: its `TableId`.
        created: when it was created.
        keys: its key schema.
        types: the types of all attributes that a key schema names, in the order of the request.
        lag: how late global indexes are.

    Attributes:
        stream: the stream that is written to; None while it is off.
        latest_stream: the newest stream, on or off.
        indexes: the indexes by name, in the order of names.
        on_demand_since: the time when it became on-demand, if it is.
        ttl_changed: the time when time to live was turned on or off last.
    """

    def __init__(
        self,
        name: str,
        *,
        arn: str,
        table_id: str,
        created: float,
        keys: KeySchema,
        types: dict[str, str],
        lag: IndexLag,
        options: TableOptions | None = None,
    ) -> None:
        self.name = name
        self.arn = arn
        self.table_id = table_id
        self.created = created
        self.keys = keys
        self.types = types
        self.options = options or TableOptions()
        self.stream: Stream | None = None
        self.latest_stream: Stream | None = None
        self.indexes: dict[str, TableIndex] = {}
        self.local_names: frozenset[str] = frozenset()
        self.on_demand_since = created if self.options.billing_mode == "PAY_PER_REQUEST" else None
        self.item_count = 0
        self.size_bytes = 0
        self.rows = Partitions()
        self.ttl_changed = float("-inf")
        self._expiries: Expiries | None = None
        self._lag = lag
        self._late: deque[tuple[float, TableIndex, Place, Row | None, Row | None]] = deque()

    @property
    def hash_name(self) -> str:
        """Return the attribute that is the partition key."""
        return self.keys.hash_name

    @property
    def ttl_attribute(self) -> str | None:
        """Return the attribute with the expiry of items; None while time to live is off."""
        return None if self._expiries is None else self._expiries.attribute

    def set_ttl(self, attribute: str | None) -> None:
        """Make items expire by an attribute; None turns expiry off."""
        self._expiries = None if attribute is None else Expiries(attribute)
        if self._expiries is not None:
            for row in self.rows.scan():
                self._expiries.change(self.keys.place(row[0]), None, row)

    def expired(self, now: float) -> list[Row]:
        """Return the items whose time to live has passed."""
        if self._expiries is None:
            return []
        found = map(self.rows.find, self._expiries.due(now))
        return [row for row in found if row is not None]

    def read(self, key: Item) -> Row | None:
        """Return the item of a key, with its size."""
        return self.rows.find(self.keys.place(key))

    def write(
        self,
        key: Item,
        old: Item | None,
        new: Item | None,
        *,
        journal: Journal | None = None,
        identity: dict[str, Any] | None = None,
        size: int | None = None,
        place: Place | None = None,
    ) -> WriteUnits:
        """Change one item.

        Args:
            key: the item's key.
            old: the stored item; None when there is none.
            new: the item to be stored; None to delete it.
            journal: takes the change, and keeps it from the stream until `publish`.
            identity: `userIdentity` of the stream record.
            size: the size of `new`, if it is known.
            place: the place of the key, if it is known.

        Returns:
            The cost of the change.
        """
        units, sizes = self._apply(place or self.keys.place(key), old, new, size)
        change = ItemChange(self, key, old, new, identity, sizes)
        if journal is not None:
            journal.append(change)
            return units
        try:
            publish(change)
        except BaseException:
            self.revert(change)
            raise
        return units

    def revert(self, change: ItemChange) -> None:
        """Undo the newest change of an item, which is not in the stream yet."""
        self._apply(self.keys.place(change.key), change.new, change.old)

    def _apply(
        self, place: Place, old: Item | None, new: Item | None, size: int | None = None
    ) -> tuple[WriteUnits, tuple[int, int]]:
        """Store an item and update its indexes; return the cost, and the sizes."""
        if old is None and new is None:
            return WriteUnits(1), (0, 0)
        old_row = None if old is None else self.rows.find(place)
        old_size = 0 if old_row is None else old_row[1]
        new_row: Row | None = None
        if new is None:
            self.rows.remove(place)
            self.item_count -= 1
            new_size = 0
        else:
            new_size = item_size(new) if size is None else size
            new_row = (new, new_size)
            self.rows.put(place, new_row)
            if old_row is None:
                self.item_count += 1
        self.size_bytes += new_size - old_size
        if self._expiries is not None:
            self._expiries.change(place, old_row, new_row)
        units = write_units(max(old_size, new_size))
        sizes = old_size, new_size
        if not self.indexes:
            return WriteUnits(units), sizes
        return WriteUnits(units, self._change_indexes(place, old_row, new_row)), sizes

    def _change_indexes(self, place: Place, old: Row | None, new: Row | None) -> dict[str, int]:
        late = self._lag.seconds > 0
        if self._late:
            self.settle()
        units = {}
        for index in self.indexes.values():
            cost = index.cost(place, old, new)
            if cost:
                units[index.name] = cost
            if late and index.is_global:
                due = self._lag.clock() + self._lag.seconds
                self._late.append((due, index, place, old, new))
            else:
                index.change(place, old, new)
        return units

    def settle(self) -> None:
        """Apply all changes of global indexes that are due by now."""
        late = self._late
        now = self._lag.clock() if self._lag.seconds > 0 else float("inf")
        while late and late[0][0] <= now:
            _, index, place, old, new = late.popleft()
            index.change(place, old, new)

    def add_index(self, index: TableIndex) -> None:
        """Add an index, and fill it with the items of the table."""
        for row in self.rows.scan():
            index.change(self.keys.place(row[0]), None, row)
        self.indexes = dict(sorted([*self.indexes.items(), (index.name, index)]))
        if not index.is_global:
            self.local_names |= {index.name}

    def create_index(self, index: TableIndex) -> None:
        """Add an index to a table that is in use; it can be read when it is ACTIVE."""
        index.active_at = self._lag.clock() + self._lag.creation
        self.add_index(index)

    def creating(self, index: TableIndex) -> bool:
        """Return whether an index is still being filled, so that it cannot be read."""
        return index.active_at > self._lag.clock()

    def remove_index(self, name: str) -> None:
        """Remove a global index."""
        del self.indexes[name]

    def check_paths(self, expression: Condition | Projection | Update | None) -> None:
        """Refuse an expression with a path into a key attribute, because keys are scalars."""
        for path in () if expression is None else expression.paths:
            if len(path) == 1:
                continue
            title = "Key" if path[0] in self.keys.name_set else ""
            if not title and any(path[0] in index.key_names for index in self.indexes.values()):
                title = "IndexKey"
            if title:
                raise validation(
                    "Key attributes must be scalars; list random access '[]' and map lookup '.' "
                    f"are not allowed: {title}: {path[0]}"
                )

    def check_item(self, item: Item, *, updated: bool = False) -> None:
        """Refuse an item that this table cannot hold; see `TableIndex.check_item`."""
        if not updated:
            self.keys.check_item(item)
        for index in self.indexes.values():
            index.check_item(item, updated=updated)


def publish(change: ItemChange) -> None:
    """Add a change to the table's stream, if there is one and the images differ."""
    table, old, new = change.table, change.old, change.new
    if table.stream is None or old is new:
        return
    if old is not None and new is not None and equal({"M": old}, {"M": new}):
        return
    table.stream.append(change.key, old, new, change.identity, sizes=change.sizes)


def undo(journal: Journal) -> None:
    """Undo the changes of a journal that was not published, the last one first."""
    for change in reversed(journal):
        change.table.revert(change)

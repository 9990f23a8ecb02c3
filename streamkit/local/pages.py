"""Pages of items: the part that Query and Scan have in common.

Both walk the rows of a table or an index from the end of the page before, up to `Limit` rows, 1 MB
or the last row; then they filter, project and count. `PageRequest` holds the details.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamkit.local.capacity import read_units
from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions import (
    Condition,
    Placeholders,
    Projection,
    parse_condition,
    parse_projection,
)
from streamkit.local.indexes import TableIndex
from streamkit.local.legacy import attributes_to_get
from streamkit.local.parameters import Payload
from streamkit.local.partitions import Partitions, Place, Row
from streamkit.local.tables import EngineTable
from streamkit.local.values import Item, canonical

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

PAGE_BYTES = 1 << 20

_STARTING_KEY = "The provided starting key is invalid"


@dataclass(slots=True)
class PageRequest:
    """How to read pages of a table or index.

    Attributes:
        index: None to read the table itself.
        fetches: whether a local index lacks an attribute asked for, so the table is read as well.
        counts: whether only the counts are asked for.
    """

    table: EngineTable
    index: TableIndex | None
    consistent: bool
    limit: int | None
    condition: Condition | None
    projection: Projection | None
    counts: bool
    fetches: bool = False

    @property
    def rows(self) -> Partitions:
        """Return the rows to walk."""
        if self.index is None:
            return self.table.rows
        if self.index.is_global:
            self.table.settle()
        return self.index.rows

    def place(self, item: Item) -> Place:
        """Return the place of an item among these rows; the item may be gone by now."""
        place = self.table.keys.place(item)
        if self.index is None:
            return place
        found = self.index.place(item, place)
        if found is None:
            raise invalid_start()
        return found

    def key(self, item: Item) -> Item:
        """Return the key that marks an item's place for the client."""
        if self.index is None:
            return self.table.keys.key(item)
        return {name: item[name] for name in self.index.key_names}

    def size(self, row: Row) -> int:
        """Return how many bytes of a row are read."""
        return row[1] if self.index is None else self.index.projected_size(row)

    def shown(self, item: Item) -> Item:
        """Return the attributes of an item that can be filtered and projected."""
        return item if self.index is None or self.fetches else self.index.project(item)


def read_expressions(
    payload: Payload, names: Iterable[str]
) -> tuple[Mapping[str, Any], Placeholders, Condition | None, Projection | None]:
    """Parse what to filter and project; return it behind all texts and their placeholders."""
    texts = {name: payload.get(name) for name in names}
    placeholders = Placeholders(
        payload.get("ExpressionAttributeNames"),
        payload.get("ExpressionAttributeValues"),
        expressions=texts,
    )
    projected, filtered = texts["ProjectionExpression"], texts["FilterExpression"]
    projection = condition = None
    if projected is not None:
        projection = parse_projection(projected, placeholders)
    elif payload.get("AttributesToGet") is not None:
        projection = attributes_to_get(payload["AttributesToGet"])
    if filtered is not None:
        condition = parse_condition(filtered, placeholders, "FilterExpression")
    return texts, placeholders, condition, projection


def plan(
    payload: Payload, table: EngineTable, condition: Condition | None, projection: Projection | None
) -> PageRequest:
    """Work out how to read from the parameters that Query and Scan share."""
    index = _index(payload, table)
    consistent = payload.get("ConsistentRead") is True
    if consistent and index is not None and index.is_global:
        raise validation("Consistent reads are not supported on global secondary indexes")
    table.check_paths(projection)
    table.check_paths(condition)
    reading = PageRequest(
        table,
        index,
        consistent,
        payload.get("Limit"),
        condition,
        projection,
        payload.get("Select") == "COUNT",
    )
    if index is None:
        return reading
    return replace(reading, fetches=_fetches(reading, index, payload.get("Select")))


def check_select(payload: Payload) -> None:
    """Refuse a `Select` that contradicts the other parameters."""
    select = payload.get("Select")
    if select is None:
        return
    parameter = next(
        (
            name
            for name in ("ProjectionExpression", "AttributesToGet")
            if payload.get(name) is not None
        ),
        None,
    )
    if select == "SPECIFIC_ATTRIBUTES":
        if parameter is None:
            raise validation(
                "Must specify the AttributesToGet or ProjectionExpression when choosing to get "
                "SPECIFIC_ATTRIBUTES"
            )
        return
    if select == "ALL_PROJECTED_ATTRIBUTES" and payload.get("IndexName") is None:
        raise validation(
            "ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName"
        )
    if parameter is not None:
        wanted = "only the Count" if select == "COUNT" else select
        raise validation(f"Cannot specify the {parameter} when choosing to get {wanted}")


def _index(payload: Payload, table: EngineTable) -> TableIndex | None:
    name = payload.get("IndexName")
    if name is None:
        return None
    index = table.indexes.get(name)
    if index is None:
        raise validation(f"The table does not have the specified index: {name}")
    if table.creating(index):
        raise validation(f"Cannot read from backfilling global secondary index: {name}")
    return index


def _fetches(reading: PageRequest, index: TableIndex, select: str | None) -> bool:
    if index.projected is None:
        return False
    if index.is_global:
        if select == "ALL_ATTRIBUTES":
            raise validation(
                "One or more parameter values were invalid: Select type ALL_ATTRIBUTES is not "
                f"supported for global secondary index {index.name} because its projection type "
                "is not ALL"
            )
        missing = _beyond(index.projected, reading.projection)
        if missing:
            raise validation(
                "One or more parameter values were invalid: Global secondary index "
                f"{index.name} does not project [{', '.join(missing)}]"
            )
        return False
    return select == "ALL_ATTRIBUTES" or bool(
        _beyond(index.projected, reading.projection) or _beyond(index.projected, reading.condition)
    )


def _beyond(projected: frozenset[str], expression: Condition | Projection | None) -> list[str]:
    paths = () if expression is None else expression.paths
    return [str(path[0]) for path in paths if path[0] not in projected]


def starting_key(reading: PageRequest, key: Any) -> Item:
    """Return the canonical form of an `ExclusiveStartKey`.

    Raises:
        ApiError: the key does not consist of the key attributes of the table and the index.
    """
    values = {name: canonical(value) for name, value in key.items()}
    schemas = [reading.table.keys] + ([] if reading.index is None else [reading.index.keys])
    names = {name for schema in schemas for name in schema.names}
    if values.keys() != names:
        raise invalid_start()
    if not all(schema.holds(values) for schema in schemas):
        raise validation(f"{_STARTING_KEY}: The provided key element does not match the schema")
    return values


def invalid_start() -> ApiError:
    """Return the refusal of an `ExclusiveStartKey` that is not valid."""
    return validation(_STARTING_KEY)


def read_page(engine: "Engine", reading: PageRequest, rows: Iterator[Row]) -> Payload:
    """Walk rows until the page is full; return the reply without `ConsumedCapacity`."""
    items: list[Item] = []
    scanned = size = matched = 0
    last: Item | None = None
    more = False
    condition, projection = reading.condition, reading.projection
    for row in rows:
        row_size = reading.size(row)
        if size + row_size > PAGE_BYTES:
            more = True
            break
        scanned += 1
        size += row_size
        last = row[0]
        if reading.fetches:
            units = read_units(row[1], consistent=reading.consistent)
            engine.meter.add_read(reading.table.name, units)
        item = reading.shown(last)
        if condition is None or condition.matches(item):
            matched += 1
            if not reading.counts:
                items.append(item if projection is None else projection.apply(item))
        if scanned == reading.limit:
            more = True
            break
    _charge(engine, reading, size)
    body: Payload = {} if reading.counts else {"Items": items}
    body["Count"] = matched
    body["ScannedCount"] = scanned
    if more and last is not None:
        body["LastEvaluatedKey"] = reading.key(last)
    return body


def _charge(engine: "Engine", reading: PageRequest, size: int) -> None:
    units = read_units(size, consistent=reading.consistent)
    index = reading.index
    if index is None:
        engine.meter.add_read(reading.table.name, units)
    else:
        engine.meter.add_read(
            reading.table.name, units, index=index.name, local=not index.is_global
        )

"""BatchGetItem and BatchWriteItem: many single-item operations in one request.

The whole request is validated before anything is done. The writes are not a transaction: each is
independent, and streams record them in the order of the request. Reads come in an order without
meaning, because the service promises none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.local.capacity import read_units
from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions import Projection
from streamkit.local.items import read_projection
from streamkit.local.lookup import all_consumed, collection_metrics, find_table
from streamkit.local.parameters import (
    Payload,
    array,
    required,
    structure,
    table_name_violation,
    violation,
    violations,
)
from streamkit.local.partitions import Place, key_hash
from streamkit.local.tables import EngineTable
from streamkit.local.values import Item
from streamkit.local.writes import ItemWrite, PutWrite, bind_batch_put, parse_delete, parse_put

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_MOST_KEYS = 100
_MOST_WRITES = 25
_REPLY_BYTES = 16 << 20
_PARTITION_BYTES = 1 << 20
"""What one reply holds of one partition; here each partition key is a partition of its own."""


def batch_get_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `BatchGetItem`."""
    requests = _requests(payload, "BatchGetItem")
    _check_keys(requests)
    plans = []
    for name, request in requests.items():
        projection = read_projection(request)
        table = find_table(engine, name)
        table.check_paths(projection)
        keys = [table.keys.checked_key(key) for key in request["Keys"]]
        places = [table.keys.place(key) for key in keys]
        if len(set(places)) < len(places):
            raise _duplicates()
        wanted = sorted(zip(keys, places, strict=True), key=_meaningless)
        plans.append((name, table, wanted, projection))
    responses: dict[str, list[Item]] = {}
    unprocessed: Payload = {}
    room = _REPLY_BYTES
    for name, table, wanted, projection in plans:
        found = responses.setdefault(name, [])
        room, left = _read(engine, table, wanted, projection, requests[name], found, room)
        if left:
            unprocessed[name] = requests[name] | {"Keys": left}
    body: Payload = {"Responses": responses, "UnprocessedKeys": unprocessed}
    return body | all_consumed(engine, payload)


def _meaningless(wanted: tuple[Item, Place]) -> int:
    return key_hash(repr(wanted[1]))


def _read(
    engine: "Engine",
    table: EngineTable,
    keys: list[tuple[Item, Place]],
    projection: Projection | None,
    request: Payload,
    found: list[Item],
    room: int,
) -> tuple[int, list[Item]]:
    """Read keys of one table; return the bytes left in the reply, and the keys with no room."""
    consistent = request.get("ConsistentRead") is True
    units = 0.0
    left: list[Item] = []
    read: dict[str, int] = {}
    for number, (key, place) in enumerate(keys):
        row = table.rows.find(place)
        size = 0 if row is None else row[1]
        if size > room:
            left += [key for key, _ in keys[number:]]
            break
        of_partition = read.get(place[0], 0) + size
        if of_partition > _PARTITION_BYTES:
            left.append(key)
            continue
        read[place[0]] = of_partition
        room -= size
        units += read_units(size, consistent=consistent)
        if row is not None:
            found.append(row[0] if projection is None else projection.apply(row[0]))
    if units:
        engine.meter.add_read(table.name, units)
    return room, left


def _requests(payload: Payload, operation: str) -> Payload:
    required(payload, "RequestItems")
    requests = structure(payload["RequestItems"])
    if not requests:
        raise validation(f"The requestItems parameter is required for {operation}")
    for name in requests:
        constraint = table_name_violation(name)
        if constraint:
            raise violations([violation(name, "requestItems.key", constraint)])
    return requests


def _check_keys(requests: Payload) -> None:
    total = 0
    for name, request in requests.items():
        required(structure(request), "Keys")
        count = len(array(request["Keys"]))
        if not 1 <= count <= _MOST_KEYS:
            bound = "less than or equal to 100" if count else "greater than or equal to 1"
            raise validation(
                f"1 validation error detected: Value at 'RequestItems.{name}.member.Keys' failed "
                f"to satisfy constraint: Member must have length {bound}"
            )
        total += count
    if total > _MOST_KEYS:
        raise validation("Too many items requested for the BatchGetItem call")
    styles = {
        style
        for request in requests.values()
        for style in ("AttributesToGet", "ProjectionExpression")
        if request.get(style) is not None
    }
    if len(requests) > 1 and len(styles) > 1:
        raise validation(
            "Can not use both expression and non-expression parameters in the same request: "
            "Non-expression parameters: {AttributesToGet} "
            "Expression parameters: {ProjectionExpression}"
        )


def _duplicates() -> ApiError:
    return validation("Provided list of item keys contains duplicates")


def batch_write_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `BatchWriteItem`."""
    requests = _requests(payload, "BatchWriteItem")
    _check_writes(requests)
    parsed = [
        (name, _parse(structure(request)))
        for name, actions in requests.items()
        for request in actions
    ]
    writes: list[ItemWrite] = []
    for name, write in parsed:
        table = find_table(engine, name)
        if isinstance(write, PutWrite):
            bind_batch_put(write, table)
        else:
            write.bind(table)
        writes.append(write)
    if len({(write.table.name, write.place) for write in writes}) < len(writes):
        raise _duplicates()
    for write in writes:
        table = write.table
        old, _ = write.stored()
        units = write.carry_out(old, write.result(old))
        engine.meter.add_write(table.name, units, local=table.local_names)
    body: Payload = {"UnprocessedItems": {}}
    if payload.get("ReturnItemCollectionMetrics") == "SIZE":
        body["ItemCollectionMetrics"] = metrics_by_table(writes)
    return body | all_consumed(engine, payload)


def metrics_by_table(writes: list[ItemWrite]) -> dict[str, list[Payload]]:
    """Return `ItemCollectionMetrics` of several writes."""
    found: dict[str, list[Payload]] = {}
    for write in writes:
        metrics = collection_metrics(write.table, write.key)
        if metrics is not None and metrics not in found.setdefault(write.table.name, []):
            found[write.table.name].append(metrics)
    return found


def _check_writes(requests: Payload) -> None:
    for actions in requests.values():
        if not 1 <= len(array(actions)) <= _MOST_WRITES:
            raise violations(
                [
                    violation(
                        f"{{{', '.join(f'{name}={given}' for name, given in requests.items())}}}",
                        "requestItems",
                        "Map value must satisfy constraint: [Member must have length less than "
                        f"or equal to {_MOST_WRITES}, "
                        "Member must have length greater than or equal to 1]",
                    )
                ]
            )
    if sum(map(len, requests.values())) > _MOST_WRITES:
        raise validation("Too many items requested for the BatchWriteItem call")


def _parse(request: Payload) -> ItemWrite:
    put, delete = request.get("PutRequest"), request.get("DeleteRequest")
    if (put is None) == (delete is None):
        raise validation(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one "
            "of the supported datatypes"
            if put is not None
            else "Supplied AttributeValue is empty, must contain exactly one of the supported "
            "datatypes"
        )
    if put is not None:
        required(structure(put), "Item")
        return parse_put({"Item": put["Item"]})
    removal = structure(delete)
    required(removal, "Key")
    return parse_delete({"Key": removal["Key"]})


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "BatchGetItem": batch_get_item,
    "BatchWriteItem": batch_write_item,
}

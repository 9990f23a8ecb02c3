"""The operations on one item: GetItem, PutItem, UpdateItem, DeleteItem."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamkit.local.capacity import WriteUnits, read_units, write_units
from streamkit.local.errors import validation
from streamkit.local.expressions import (
    Placeholders,
    Projection,
    parse_projection,
    pick_paths,
)
from streamkit.local.legacy import attributes_to_get, reject_mixture
from streamkit.local.lookup import collection_metrics, consumed, find_table
from streamkit.local.parameters import Payload, required
from streamkit.local.values import Item
from streamkit.local.writes import (
    ItemWrite,
    Upsert,
    condition_failed,
    parse_delete,
    parse_put,
    parse_upsert,
)

if TYPE_CHECKING:
    from streamkit.local.engine import Engine


def get_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `GetItem`."""
    required(payload, "TableName", "Key")
    projection = read_projection(payload)
    table = find_table(engine, payload["TableName"])
    key = table.keys.checked_key(payload["Key"])
    table.check_paths(projection)
    row = table.read(key)
    consistent = payload.get("ConsistentRead") is True
    engine.meter.add_read(
        table.name, read_units(0 if row is None else row[1], consistent=consistent)
    )
    body = consumed(engine, payload)
    if row is not None:
        body["Item"] = row[0] if projection is None else projection.apply(row[0])
    return body


def read_projection(request: Payload) -> Projection | None:
    """Return the projection of a read that has no other expression."""
    text = request.get("ProjectionExpression")
    names = request.get("ExpressionAttributeNames")
    wanted = request.get("AttributesToGet")
    if wanted is not None:
        reject_mixture(request, legacy=("AttributesToGet",), expressions=("ProjectionExpression",))
        if names is None:
            return attributes_to_get(wanted)
    if text is None and names is None:
        return None
    placeholders = Placeholders(names, None, expressions={"ProjectionExpression": text})
    projection = None if text is None else parse_projection(text, placeholders)
    placeholders.finish()
    return projection


def put_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `PutItem`."""
    required(payload, "TableName", "Item")
    _all_old_or_none(payload)
    return _carry_out(engine, parse_put(payload), payload)


def delete_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `DeleteItem`."""
    required(payload, "TableName", "Key")
    _all_old_or_none(payload)
    return _carry_out(engine, parse_delete(payload), payload)


def update_item(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `UpdateItem`."""
    required(payload, "TableName", "Key")
    return _carry_out(engine, parse_upsert(payload), payload)


def _all_old_or_none(payload: Payload) -> None:
    if payload.get("ReturnValues") not in (None, "NONE", "ALL_OLD"):
        raise validation("ReturnValues can only be ALL_OLD or NONE")


def _carry_out(engine: "Engine", write: ItemWrite, payload: Payload) -> Payload:
    table = find_table(engine, payload["TableName"])
    write.bind(table)
    old, old_size = write.stored()
    if not write.holds(old):
        engine.meter.add_write(table.name, WriteUnits(write_units(old_size)))
        raise condition_failed(old, return_old=write.return_old)
    new = write.result(old)
    units = write.carry_out(old, new)
    engine.meter.add_write(table.name, units, local=table.local_names)
    body = consumed(engine, payload)
    wanted = payload.get("ReturnValues")
    if wanted is not None and wanted != "NONE":
        paths = write.paths if isinstance(write, Upsert) else ()
        attributes = _RETURNED[wanted](old or {}, new or {}, paths)
        if attributes:
            body["Attributes"] = attributes
    if payload.get("ReturnItemCollectionMetrics") == "SIZE":
        metrics = collection_metrics(table, write.key)
        if metrics is not None:
            body["ItemCollectionMetrics"] = metrics
    return body


_RETURNED: dict[str, Callable[[Item, Item, Any], Item]] = {
    "ALL_OLD": lambda old, _new, _paths: old,
    "ALL_NEW": lambda _old, new, _paths: new,
    "UPDATED_OLD": lambda old, _new, paths: pick_paths(old, paths),
    "UPDATED_NEW": lambda _old, new, paths: pick_paths(new, paths),
}

OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "GetItem": get_item,
    "PutItem": put_item,
    "UpdateItem": update_item,
    "DeleteItem": delete_item,
}

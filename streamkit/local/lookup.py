"""Look-up: the table that a request names, by name or ARN, and its metrics in a reply.

Every operation on items starts with `find_table` and ends with `consumed`.
"""

from typing import TYPE_CHECKING, Any

from streamkit.local.errors import ApiError, validation
from streamkit.local.parameters import Payload, text
from streamkit.local.tables import EngineTable
from streamkit.local.values import Item

if TYPE_CHECKING:
    from streamkit.local.engine import Engine


def plain_name(engine: "Engine", name: str) -> str:
    """Return the name of a table that is given by name or by ARN.

    Raises:
        ApiError: the ARN is that of a table in another Region or account.
    """
    if not name.startswith("arn:"):
        return name
    _, _, _, region, account, *rest = [*name.split(":", 5), "", "", "", ""]
    if region != engine.region:
        raise validation(f"1 validation error detected: Invalid AWS region in '{name}'")
    if account != engine.account:
        raise ApiError(
            "AccessDeniedException",
            f"User is not authorized to access {name}: no resource-based policy allows it",
        )
    return rest[0].removeprefix("table/").partition("/")[0]


def find_table(engine: "Engine", name: Any) -> EngineTable:
    """Return the table of a request on items.

    Raises:
        ApiError: ResourceNotFoundException.
    """
    table = engine.tables.get(plain_name(engine, text(name)))
    if table is None:
        raise ApiError("ResourceNotFoundException", "Requested resource not found")
    return table


def consumed(engine: "Engine", payload: Payload) -> dict[str, Any]:
    """Return `ConsumedCapacity` of a reply about one table, when the request asks for it."""
    mode = payload.get("ReturnConsumedCapacity")
    if mode is None or mode == "NONE":
        return {}
    report = engine.meter.report(mode)
    return {"ConsumedCapacity": report[0]} if report else {}


def all_consumed(engine: "Engine", payload: Payload, *, split: bool = False) -> dict[str, Any]:
    """Return `ConsumedCapacity` of a reply about several tables, when the request asks for it."""
    mode = payload.get("ReturnConsumedCapacity")
    if mode is None or mode == "NONE":
        return {}
    return {"ConsumedCapacity": engine.meter.report(mode, split=split)}


def collection_metrics(table: EngineTable, key: Item) -> dict[str, Any] | None:
    """Return the metrics of an item's collection; None when the table has no local indexes."""
    if not table.local_names:
        return None
    return {
        "ItemCollectionKey": {table.hash_name: key[table.hash_name]},
        "SizeEstimateRangeGB": [0.0, 1.0],
    }

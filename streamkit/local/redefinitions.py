"""UpdateTable: streams on and off, global indexes, billing, and the table's other options.

A request is read completely before anything changes, and what AWS does in the background is done
at once: a new index is complete and ACTIVE, a new stream takes the next write.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamkit.local import specification as spec
from streamkit.local.definitions import described_table, sse_description, start_stream
from streamkit.local.descriptions import describe
from streamkit.local.errors import ApiError, validation
from streamkit.local.indexes import Index
from streamkit.local.parameters import Payload, array, required, structure
from streamkit.local.tables import Table

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_Step = Callable[[], None]

_PARAMETERS = (
    "ProvisionedThroughput",
    "BillingMode",
    "StreamSpecification",
    "GlobalSecondaryIndexUpdates",
    "SSESpecification",
    "DeletionProtectionEnabled",
    "OnDemandThroughput",
    "TableClass",
)


def update_table(engine: "Engine", payload: Payload) -> Payload:
    """`UpdateTable`."""
    required(payload, "TableName")
    table = described_table(engine, payload["TableName"])
    if all(payload.get(name) is None for name in _PARAMETERS):
        raise validation(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, "
            "GlobalSecondaryIndexUpdates, SSESpecification, ReplicaUpdates, "
            "MultiAccountReplicaReady, ReplicaTransitRoleArn, MultiRegionConsistency, "
            "DeletionProtectionEnabled, OnDemandThroughput, WarmThroughput or TableClass is "
            "required"
        )
    steps = [
        *_billing(engine, table, payload),
        *_options(table, payload),
        *_indexes(table, payload),
        *_stream(engine, table, payload),
    ]
    for step in steps:
        step()
    return {"TableDescription": describe(table)}


def _billing(engine: "Engine", table: Table, payload: Payload) -> list[_Step]:
    mode = payload.get("BillingMode")
    given = payload.get("ProvisionedThroughput")
    wanted = mode or table.options.billing_mode
    if wanted == "PAY_PER_REQUEST":
        if given is not None:
            raise spec.invalid(
                "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when "
                "BillingMode is PAY_PER_REQUEST"
            )
        return [lambda: _to_on_demand(table, engine.clock())] if mode else []
    if given is None:
        if mode is not None and table.options.billing_mode == "PAY_PER_REQUEST":
            raise spec.invalid(
                "ProvisionedThroughput must be specified when BillingMode is PROVISIONED"
            )
        return []
    units = spec.units_of(given, "provisionedThroughput")
    if units == table.options.throughput:
        read, write = units["ReadCapacityUnits"], units["WriteCapacityUnits"]
        raise validation(
            "The provisioned throughput for the table will not change. The requested value "
            "equals the current value. Current ReadCapacityUnits provisioned for the table: "
            f"{read}. Requested ReadCapacityUnits: {read}. Current WriteCapacityUnits "
            f"provisioned for the table: {write}. Requested WriteCapacityUnits: {write}. Refer "
            "to the Amazon DynamoDB Developer Guide for current limits and how to request higher "
            "limits."
        )
    return [lambda: _to_provisioned(table, units)]


def _to_on_demand(table: Table, now: float) -> None:
    if table.on_demand_since is None:
        table.on_demand_since = now
    table.options.billing_mode = "PAY_PER_REQUEST"
    table.options.throughput = {}
    for index in table.indexes.values():
        index.throughput = None


def _to_provisioned(table: Table, units: dict[str, int]) -> None:
    table.options.billing_mode = "PROVISIONED"
    table.options.throughput = units


def _options(table: Table, payload: Payload) -> list[_Step]:
    steps: list[_Step] = []
    options = table.options
    protection = payload.get("DeletionProtectionEnabled")
    if protection is not None:
        steps.append(lambda: setattr(options, "deletion_protection", protection))
    if payload.get("TableClass") is not None:
        steps.append(lambda: setattr(options, "table_class", payload["TableClass"]))
    if payload.get("OnDemandThroughput") is not None:
        limits = structure(payload["OnDemandThroughput"])
        steps.append(lambda: setattr(options, "on_demand", limits))
    if payload.get("SSESpecification") is not None:
        encryption = sse_description(payload["SSESpecification"])
        steps.append(lambda: setattr(options, "sse", encryption))
    return steps


def _stream(engine: "Engine", table: Table, payload: Payload) -> list[_Step]:
    given = payload.get("StreamSpecification")
    if given is None:
        return []
    view = spec.view_type(given)
    current = table.stream
    if view is None:
        if current is None:
            raise validation(f"Table has no stream to disable: TableName: {table.name}")
        return [current.disable, lambda: setattr(table, "stream", None)]
    if current is not None:
        raise validation(f"Table already has an enabled stream: TableName: {table.name}")
    return [lambda: start_stream(engine, table, view)]


def _indexes(table: Table, payload: Payload) -> list[_Step]:
    given = payload.get("GlobalSecondaryIndexUpdates")
    if given is None:
        return []
    updates = [structure(update) for update in array(given)]
    if not updates:
        raise spec.invalid("List of GlobalSecondaryIndexUpdates is empty")
    # An attribute that is in use keeps its type, whatever the request says.
    given_types = payload.get("AttributeDefinitions")
    types = ({} if given_types is None else spec.attribute_types(given_types)) | table.types
    on_demand = (payload.get("BillingMode") or table.options.billing_mode) == "PAY_PER_REQUEST"
    steps: list[_Step] = []
    seen: set[str] = set()
    for update in updates:
        actions = [name for name in ("Create", "Update", "Delete") if update.get(name) is not None]
        if len(actions) != 1:
            raise spec.invalid(
                "Only one global secondary index action is allowed per GlobalSecondaryIndexUpdate "
                "object"
                if actions
                else "One of GlobalSecondaryIndexUpdate.Update, GlobalSecondaryIndexUpdate.Create, "
                "GlobalSecondaryIndexUpdate.Delete must not be null"
            )
        request = structure(update[actions[0]])
        required(request, "IndexName")
        name = request["IndexName"]
        if name in seen:
            raise spec.invalid(
                "Only one global secondary index update per index is allowed simultaneously. "
                f"Index: {name}"
            )
        seen.add(name)
        if actions[0] == "Create":
            steps.append(_create(table, request, types, on_demand=on_demand))
        else:
            steps.append(_change(table, request, actions[0]))
    steps.append(lambda: _keep_used_types(table, types))
    return steps


def _create(table: Table, request: Payload, types: dict[str, str], *, on_demand: bool) -> _Step:
    if request["IndexName"] in table.indexes:
        raise validation("Attempting to create an index which already exists")
    if sum(index.is_global for index in table.indexes.values()) >= spec.MOST_GLOBAL_INDEXES:
        raise ApiError(
            "LimitExceededException",
            "Subscriber limit exceeded: GlobalSecondaryIndex count exceeds the per-table limit "
            f"of {spec.MOST_GLOBAL_INDEXES}",
        )
    elements = spec.parse_index_keys(request, "globalSecondaryIndexUpdates.1.member.create")
    if any(element["AttributeName"] not in types for element in elements):
        raise spec.invalid(
            f"AttributeDefinitions is not specified for index: {request['IndexName']}"
        )
    index = spec.build_index(
        request, elements, types, table.keys, is_global=True, on_demand=on_demand
    )
    return lambda: table.add_index(index)


def _change(table: Table, request: Payload, action: str) -> _Step:
    index = table.indexes.get(request["IndexName"])
    if index is None:
        raise ApiError("ResourceNotFoundException", "Requested resource not found")
    if not index.is_global:
        verb = "delete" if action == "Delete" else "update"
        raise validation(f"Cannot {verb} an index that is not a GlobalSecondaryIndex: {index.name}")
    if action == "Delete":
        return lambda: table.remove_index(index.name)
    given = request.get("ProvisionedThroughput")
    units = None if given is None else spec.units_of(given, "provisionedThroughput")
    return lambda: _set_throughput(index, units)


def _set_throughput(index: Index, units: dict[str, int] | None) -> None:
    index.throughput = units or index.throughput


def _keep_used_types(table: Table, types: dict[str, Any]) -> None:
    schemas = [table.keys, *(index.keys for index in table.indexes.values())]
    used = {name for schema in schemas for name in schema.names}
    table.types = {name: kind for name, kind in types.items() if name in used}


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {"UpdateTable": update_table}

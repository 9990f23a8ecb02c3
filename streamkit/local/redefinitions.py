"""UpdateTable: streams on and off, global indexes, billing, and the table's other options.

A request is validated completely before anything changes. What AWS does in the background is done
at once: a new stream takes the next write, and a new index is complete and ACTIVE, unless the
engine is told how long that takes (`index_creation`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamkit.local import specification as spec
from streamkit.local.definitions import described_table, sse_description, start_stream
from streamkit.local.descriptions import describe
from streamkit.local.errors import ApiError, validation
from streamkit.local.parameters import Payload, array, required, structure
from streamkit.local.tables import EngineTable

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

_ALONE = {
    "SSESpecification": "Server-Side Encryption",
    "TableClass": "TableClass",
    "DeletionProtectionEnabled": "DeletionProtection",
}


def update_table(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `UpdateTable`."""
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
    _check_alone(payload)
    steps = [
        *_billing(engine, table, payload),
        *_options(table, payload),
        *_indexes(table, payload),
        *_stream(engine, table, payload),
    ]
    for step in steps:
        step()
    return {"TableDescription": describe(table)}


def _check_alone(payload: Payload) -> None:
    """Refuse changes that one request cannot make together."""
    given = {name for name in _PARAMETERS if payload.get(name) is not None}
    for name, title in _ALONE.items():
        if name in given and len(given) > 1:
            raise spec.invalid(f"{title} modification must be the only operation in the request")
    if "OnDemandThroughput" in given and given - {"OnDemandThroughput", "BillingMode"}:
        raise spec.invalid(
            "OnDemandThroughput can only be combined with BillingMode in an UpdateTable request"
        )
    updates = payload.get("GlobalSecondaryIndexUpdates") or []
    resizes = any(
        structure(update).get(name) is not None
        for update in array(updates)
        for name in ("Create", "Delete")
    )
    for name, clashes, message in (
        ("ProvisionedThroughput", resizes, "create or delete index while updating table IOPS"),
        ("StreamSpecification", resizes, "create or delete index while changing stream status"),
        (
            "ProvisionedThroughput",
            "StreamSpecification" in given,
            "modify stream status while updating table IOPS",
        ),
    ):
        if name in given and clashes:
            raise spec.invalid(f"You cannot {message}")


def _will_be_on_demand(table: EngineTable, payload: Payload) -> bool:
    return (payload.get("BillingMode") or table.options.billing_mode) == "PAY_PER_REQUEST"


def _billing(engine: "Engine", table: EngineTable, payload: Payload) -> list[_Step]:
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
        raise _will_not_change("table", "table", units)
    if table.options.billing_mode == "PAY_PER_REQUEST":
        _check_indexes_get_units(table, payload)
    return [lambda: _to_provisioned(table, units)]


def _check_indexes_get_units(table: EngineTable, payload: Payload) -> None:
    """Refuse to end on-demand billing while an index is left without units."""
    given = {
        structure(update["Update"]).get("IndexName")
        for update in map(structure, array(payload.get("GlobalSecondaryIndexUpdates") or []))
        if update.get("Update") is not None
    }
    missing = [name for name, index in table.indexes.items() if index.is_global]
    missing = [name for name in missing if name not in given]
    if missing:
        raise spec.invalid(
            f"ProvisionedThroughput must be specified for index: {','.join(missing)}"
        )


def _will_not_change(subject: str, kind: str, units: dict[str, int]) -> ApiError:
    read, write = units["ReadCapacityUnits"], units["WriteCapacityUnits"]
    return validation(
        f"The provisioned throughput for the {subject} will not change. The requested value "
        f"equals the current value. Current ReadCapacityUnits provisioned for the {kind}: "
        f"{read}. Requested ReadCapacityUnits: {read}. Current WriteCapacityUnits "
        f"provisioned for the {kind}: {write}. Requested WriteCapacityUnits: {write}. Refer "
        "to the Amazon DynamoDB Developer Guide for current limits and how to request higher "
        "limits."
    )


def _to_on_demand(table: EngineTable, now: float) -> None:
    if table.on_demand_since is None:
        table.on_demand_since = now
    table.options.billing_mode = "PAY_PER_REQUEST"
    table.options.throughput = {}
    for index in table.indexes.values():
        index.throughput = None


def _to_provisioned(table: EngineTable, units: dict[str, int]) -> None:
    table.options.billing_mode = "PROVISIONED"
    table.options.throughput = units


def _options(table: EngineTable, payload: Payload) -> list[_Step]:
    steps: list[_Step] = []
    options = table.options
    protection = payload.get("DeletionProtectionEnabled")
    if protection is not None:
        steps.append(lambda: setattr(options, "deletion_protection", protection))
    if payload.get("TableClass") is not None:
        steps.append(lambda: setattr(options, "table_class", payload["TableClass"]))
    if payload.get("OnDemandThroughput") is not None:
        limits = structure(payload["OnDemandThroughput"])
        spec.check_on_demand(limits, on_demand=_will_be_on_demand(table, payload))
        steps.append(lambda: setattr(options, "on_demand", limits))
    if payload.get("SSESpecification") is not None:
        encryption = sse_description(payload["SSESpecification"])
        if encryption is None and options.sse is None:
            raise spec.invalid("Table is already encrypted by default")
        steps.append(lambda: setattr(options, "sse", encryption))
    return steps


def _stream(engine: "Engine", table: EngineTable, payload: Payload) -> list[_Step]:
    given = payload.get("StreamSpecification")
    if given is None:
        return []
    view = spec.view_type(given, created=False)
    current = table.stream
    if view is None:
        if current is None:
            raise validation(f"Table has no stream to disable: TableName: {table.name}")
        return [current.disable, lambda: setattr(table, "stream", None)]
    if current is not None:
        raise validation(f"Table already has an enabled stream: TableName: {table.name}")
    return [lambda: start_stream(engine, table, view)]


def _indexes(table: EngineTable, payload: Payload) -> list[_Step]:
    given = payload.get("GlobalSecondaryIndexUpdates")
    if given is None:
        return []
    updates = [structure(update) for update in array(given)]
    if not updates:
        raise spec.invalid("List of GlobalSecondaryIndexUpdates is empty")
    given_types = payload.get("AttributeDefinitions")
    types = {} if given_types is None else spec.attribute_types(given_types)
    on_demand = _will_be_on_demand(table, payload)
    steps: list[_Step] = []
    online = [
        structure(update[one]).get("IndexName") if one == "Delete" else None
        for update in updates
        for one in ("Create", "Delete")
        if update.get(one) is not None
    ]
    # An index that is being created may be deleted, which ends its creation.
    busy = [name for name, index in table.indexes.items() if table.creating(index)]
    if len(online) > 1 or (busy and online and online != busy):
        _check_actions(updates)
        raise ApiError(
            "LimitExceededException",
            "Subscriber limit exceeded: Only 1 online index can be created or deleted "
            "simultaneously per table",
        )
    seen: set[str] = set()
    for action, request in _check_actions(updates):
        required(request, "IndexName")
        name = request["IndexName"]
        if name in seen:
            raise spec.invalid(
                "Only one global secondary index update per index is allowed simultaneously. "
                f"Index: {name}"
            )
        seen.add(name)
        if action == "Create":
            steps.append(_create(table, request, types, on_demand=on_demand))
        else:
            steps.append(_change(table, request, action, on_demand=on_demand))
    steps.append(lambda: _keep_used_types(table, types | table.types))
    return steps


def _check_actions(updates: list[Payload]) -> list[tuple[str, Payload]]:
    """Return the action and the index of each update; each update must have one action."""
    found = []
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
        found.append((actions[0], structure(update[actions[0]])))
    return found


def _create(
    table: EngineTable, request: Payload, types: dict[str, str], *, on_demand: bool
) -> _Step:
    if request["IndexName"] in table.indexes:
        raise validation("Attempting to create an index which already exists")
    if sum(index.is_global for index in table.indexes.values()) >= spec.MOST_GLOBAL_INDEXES:
        raise ApiError(
            "LimitExceededException",
            "Subscriber limit exceeded: GlobalSecondaryIndex count exceeds the per-table limit "
            f"of {spec.MOST_GLOBAL_INDEXES}",
        )
    where = "globalSecondaryIndexUpdates.1.member.create"
    elements = spec.parse_index_keys(request, where, is_global=True)
    if any(element["AttributeName"] not in types for element in elements):
        raise spec.invalid(
            f"AttributeDefinitions is not specified for index: {request['IndexName']}"
        )
    _check_not_redefined(table, elements, types)
    index = spec.build_index(
        request, elements, types, table.keys, is_global=True, on_demand=on_demand
    )
    spec.check_projected([*table.indexes.values(), index])
    return lambda: table.create_index(index)


def _check_not_redefined(
    table: EngineTable, elements: list[dict[str, str]], types: dict[str, str]
) -> None:
    """Refuse an index that gives an attribute in use another type."""
    if all(types[name] == kind for name, kind in table.types.items() if name in types):
        return
    used = [table.keys, *(index.keys for index in table.indexes.values())]
    existing = next(
        keys
        for keys in used
        if any(types.get(name, kind) != kind for name, kind in keys.types.items())
    )
    raise spec.invalid(
        "Attributes cannot be redefined. Please check that your attribute has the same type as "
        f"previously defined. Existing schema: {_shown(existing.elements, existing.types)} "
        f"New schema: {_shown(elements, types)}"
    )


def _shown(elements: list[dict[str, str]], types: dict[str, str]) -> str:
    keys = [
        f"SchemaElement: key{{{name}:{types[name]}:{element['KeyType']}}}"
        for element in elements
        for name in [element["AttributeName"]]
    ]
    return f"Schema:[{', '.join(keys)}]"


def _change(table: EngineTable, request: Payload, action: str, *, on_demand: bool) -> _Step:
    index = table.indexes.get(request["IndexName"])
    if index is None:
        raise ApiError("ResourceNotFoundException", "Requested resource not found")
    if not index.is_global:
        verb = "delete" if action == "Delete" else "update"
        raise validation(f"Cannot {verb} an index that is not a GlobalSecondaryIndex: {index.name}")
    if action == "Delete":
        return lambda: table.remove_index(index.name)
    given = request.get("ProvisionedThroughput")
    if on_demand:
        raise spec.invalid(
            "The only Updates for index: "
            f"{index.name} when TableThroughputMode is PAY_PER_REQUEST can be to "
            "OnDemandThroughput, WarmThroughput"
            if given is None
            else "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified for index: "
            f"{index.name} when BillingMode is PAY_PER_REQUEST"
        )
    if given is None:
        raise spec.invalid(
            "Both ReadCapacityUnits and WriteCapacityUnits must be specified for index: "
            f"{index.name}"
        )
    units = spec.units_of(given, "provisionedThroughput")
    if units == index.throughput:
        raise _will_not_change(f"index {index.name}", "index", units)
    return lambda: setattr(index, "throughput", units)


def _keep_used_types(table: EngineTable, types: dict[str, Any]) -> None:
    schemas = [table.keys, *(index.keys for index in table.indexes.values())]
    used = {name for schema in schemas for name in schema.names}
    table.types = {name: kind for name, kind in types.items() if name in used}


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {"UpdateTable": update_table}

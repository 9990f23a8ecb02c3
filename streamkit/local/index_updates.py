"""GlobalSecondaryIndexUpdates of UpdateTable: indexes are created, deleted or get other throughput.

A request is validated completely, and returns steps; nothing changes before they run.
"""

from collections.abc import Callable
from typing import Any

from streamkit.local import specification as spec
from streamkit.local.errors import ApiError, validation
from streamkit.local.index_specification import (
    MOST_GLOBAL_INDEXES,
    build_index,
    check_projected,
    parse_index_keys,
)
from streamkit.local.parameters import Payload, array, required, structure
from streamkit.local.tables import EngineTable

Step = Callable[[], None]


def will_not_change(subject: str, kind: str, units: dict[str, int]) -> ApiError:
    """Return the refusal of a throughput, of a table or an index, that is as it was."""
    read, write = units["ReadCapacityUnits"], units["WriteCapacityUnits"]
    return validation(
        f"The provisioned throughput for the {subject} will not change. The requested value "
        f"equals the current value. Current ReadCapacityUnits provisioned for the {kind}: "
        f"{read}. Requested ReadCapacityUnits: {read}. Current WriteCapacityUnits "
        f"provisioned for the {kind}: {write}. Requested WriteCapacityUnits: {write}. Refer "
        "to the Amazon DynamoDB Developer Guide for current limits and how to request higher "
        "limits."
    )


def index_steps(table: EngineTable, payload: Payload, *, on_demand: bool) -> list[Step]:
    """Return the steps that a request's updates of indexes need, after all checks.

    Args:
        table: the table as it is.
        payload: the request.
        on_demand: whether the table is billed on demand once the request is carried out.

    Raises:
        ApiError: the updates are not valid.
    """
    given = payload.get("GlobalSecondaryIndexUpdates")
    if given is None:
        return []
    updates = [structure(update) for update in array(given)]
    if not updates:
        raise spec.invalid("List of GlobalSecondaryIndexUpdates is empty")
    given_types = payload.get("AttributeDefinitions")
    types = {} if given_types is None else spec.attribute_types(given_types)
    _check_one_online(table, updates)
    steps: list[Step] = []
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


def _check_one_online(table: EngineTable, updates: list[Payload]) -> None:
    """Refuse to create or delete two indexes at a time."""
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
) -> Step:
    if request["IndexName"] in table.indexes:
        raise validation("Attempting to create an index which already exists")
    if sum(index.is_global for index in table.indexes.values()) >= MOST_GLOBAL_INDEXES:
        raise ApiError(
            "LimitExceededException",
            "Subscriber limit exceeded: GlobalSecondaryIndex count exceeds the per-table limit "
            f"of {MOST_GLOBAL_INDEXES}",
        )
    where = "globalSecondaryIndexUpdates.1.member.create"
    elements = parse_index_keys(request, where, is_global=True)
    if any(element["AttributeName"] not in types for element in elements):
        raise spec.invalid(
            f"AttributeDefinitions is not specified for index: {request['IndexName']}"
        )
    _check_not_redefined(table, elements, types)
    index = build_index(request, elements, types, table.keys, is_global=True, on_demand=on_demand)
    check_projected([*table.indexes.values(), index])
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


def _change(table: EngineTable, request: Payload, action: str, *, on_demand: bool) -> Step:
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
        raise will_not_change(f"index {index.name}", "index", units)
    return lambda: setattr(index, "throughput", units)


def _keep_used_types(table: EngineTable, types: dict[str, Any]) -> None:
    schemas = [table.keys, *(index.keys for index in table.indexes.values())]
    used = {name for schema in schemas for name in schema.names}
    table.types = {name: kind for name, kind in types.items() if name in used}

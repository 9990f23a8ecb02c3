"""The definition of tables: CreateTable, DescribeTable, ListTables, DeleteTable.

What AWS does in the background is done at once: a new table is ACTIVE, a deleted table is gone.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from streamkit.local import index_specification as index_spec
from streamkit.local import specification as spec
from streamkit.local.descriptions import describe, is_busy
from streamkit.local.errors import ApiError, validation
from streamkit.local.indexes import TableIndex
from streamkit.local.lookup import plain_name
from streamkit.local.parameters import (
    Payload,
    name_violation,
    required,
    structure,
    text,
    violation,
    violations,
)
from streamkit.local.schema import KeySchema
from streamkit.local.tables import EngineTable, TableOptions
from streamkit.local.tags import parse_tags

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_MOST_LISTED = 100


def described_table(
    engine: "Engine", name: Any, *, code: str = "ResourceNotFoundException"
) -> EngineTable:
    """Return the table that a request is about.

    Raises:
        ApiError: there is no such table.
    """
    plain = plain_name(engine, text(name))
    table = engine.tables.get(plain)
    if table is None:
        message = f"Requested resource not found: Table: {plain} not found"
        if code == "TableNotFoundException":
            message = f"Table not found: {plain}"
        raise ApiError(code, message)
    return table


def create_table(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `CreateTable`."""
    name = payload.get("TableName")
    if name is None:
        raise validation("The parameter 'TableName' is required but was not present in the request")
    spec.check_name(text(name), "tableName")
    required(payload, "AttributeDefinitions", "KeySchema")
    types = spec.attribute_types(payload["AttributeDefinitions"])
    elements = spec.key_elements(payload["KeySchema"], "keySchema")
    options = _options(payload)
    on_demand = options.billing_mode == "PAY_PER_REQUEST"
    keys, indexes = _keys(payload, elements, types, on_demand=on_demand)
    view = None
    if payload.get("StreamSpecification") is not None:
        view = spec.view_type(payload["StreamSpecification"])
    if name in engine.tables:
        raise ApiError("ResourceInUseException", f"Table already exists: {name}")
    created = engine.clock()
    table = EngineTable(
        name,
        arn=f"arn:aws:dynamodb:{engine.region}:{engine.account}:table/{name}",
        table_id=str(UUID(int=engine.rng.getrandbits(128), version=4)),
        created=created,
        keys=keys,
        types=types,
        lag=engine.lag,
        options=options,
    )
    for index in indexes:
        table.add_index(index)
    if view is not None:
        start_stream(engine, table, view)
    engine.tables[name] = table
    return {"TableDescription": describe(table)}


def start_stream(engine: "Engine", table: EngineTable, view: str) -> None:
    """Give a table a new stream."""
    table.stream = table.latest_stream = engine.streams.create(
        table_name=table.name, key_schema=table.keys.elements, view_type=view
    )


def _keys(
    payload: Payload, elements: list[dict[str, str]], types: dict[str, str], *, on_demand: bool
) -> tuple[KeySchema, list[TableIndex]]:
    """Return the table's key schema, and its indexes."""
    requests = [
        (
            request,
            title,
            index_spec.parse_index_keys(
                request,
                f"{title[0].lower()}{title[1:]}.{number}.member",
                is_global=title[0] == "G",
            ),
        )
        for title in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
        for number, request in enumerate(index_spec.index_requests(payload.get(title), title), 1)
    ]
    used = [element["AttributeName"] for element in elements]
    used += [element["AttributeName"] for _, _, keys in requests for element in keys]
    spec.check_types(types, used, indexed=bool(requests))
    keys = KeySchema(elements, types)
    if keys.range_name is None and any(title[0] == "L" for _, title, _ in requests):
        raise spec.invalid(
            "Table KeySchema does not have a range key, which is required when specifying a "
            "LocalSecondaryIndex"
        )
    indexes: dict[str, TableIndex] = {}
    for request, title, index_keys in requests:
        if request["IndexName"] in indexes:
            raise spec.invalid(f"Duplicate index name: {request['IndexName']}")
        indexes[request["IndexName"]] = index_spec.build_index(
            request,
            index_keys,
            types,
            keys,
            is_global=title[0] == "G",
            on_demand=on_demand,
        )
    index_spec.check_projected(indexes.values())
    return keys, list(indexes.values())


def _options(payload: Payload) -> TableOptions:
    mode = payload.get("BillingMode") or "PROVISIONED"
    throughput = payload.get("ProvisionedThroughput")
    if mode == "PAY_PER_REQUEST" and throughput is not None:
        raise spec.invalid(
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode "
            "is PAY_PER_REQUEST"
        )
    if mode == "PROVISIONED" and throughput is None:
        raise spec.invalid(
            "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is "
            "PROVISIONED"
        )
    units = {} if throughput is None else spec.units_of(throughput, "provisionedThroughput")
    spec.check_on_demand(payload.get("OnDemandThroughput"), on_demand=mode == "PAY_PER_REQUEST")
    return TableOptions(
        billing_mode=mode,
        throughput=units,
        deletion_protection=payload.get("DeletionProtectionEnabled") is True,
        table_class=payload.get("TableClass"),
        sse=sse_description(payload.get("SSESpecification")),
        on_demand=payload.get("OnDemandThroughput"),
        tags=parse_tags(payload.get("Tags") or []),
    )


def sse_description(given: Any) -> dict[str, Any] | None:
    """Return the description of an `SSESpecification`; None for the default encryption."""
    if given is None:
        return None
    kind, key = structure(given).get("SSEType"), given.get("KMSMasterKeyId")
    if given.get("Enabled") is not True:
        for name, value in (("SSEType", kind), ("KMSMasterKeyId", key)):
            if value is not None:
                raise spec.invalid(f"{name} can not be specified if Enabled is false")
        return None
    if kind == "AES256":
        raise spec.invalid("SSEType AES256 is not supported")
    description = {"Status": "ENABLED", "SSEType": "KMS"}
    if key is not None:
        description["KMSMasterKeyArn"] = key
    return description


def describe_table(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `DescribeTable`."""
    required(payload, "TableName")
    return {"Table": describe(described_table(engine, payload["TableName"]))}


def delete_table(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `DeleteTable`; the table's streams can still be read for a day."""
    required(payload, "TableName")
    table = described_table(engine, payload["TableName"])
    if table.options.deletion_protection:
        raise validation(
            "Resource cannot be deleted as it is currently protected against deletion. Disable "
            "deletion protection first."
        )
    if is_busy(table):
        raise ApiError(
            "ResourceInUseException",
            "Attempt to change a resource which is still in use: Table is being updated: "
            f"{table.name}",
        )
    del engine.tables[table.name]
    if table.stream is not None:
        table.stream.disable()
        table.stream = None
    return {"TableDescription": describe(table, status="DELETING")}


def list_tables(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `ListTables`: names in order, up to 100 at a time."""
    required(payload)
    limit = _MOST_LISTED if payload.get("Limit") is None else payload["Limit"]
    start = payload.get("ExclusiveStartTableName")
    if limit > _MOST_LISTED:
        constraint = f"Member must have value less than or equal to {_MOST_LISTED}"
        raise violations([violation(limit, "limit", constraint)])
    names = sorted(engine.tables)
    first = 0
    if start is not None:
        constraint_on_name = name_violation(text(start))
        if constraint_on_name:
            raise violations([violation(start, "exclusiveStartTableName", constraint_on_name)])
        first = bisect_right(names, start)
    page = names[first : first + limit]
    body: Payload = {"TableNames": page}
    if first + limit < len(names):
        body["LastEvaluatedTableName"] = page[-1]
    return body


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "CreateTable": create_table,
    "DescribeTable": describe_table,
    "DeleteTable": delete_table,
    "ListTables": list_tables,
}

"""Descriptions: tables in the form in which DescribeTable shows them."""

from typing import Any

from streamkit.local.indexes import TableIndex
from streamkit.local.tables import EngineTable


def is_busy(table: EngineTable) -> bool:
    """Return whether an index of a table is still being filled."""
    return any(map(table.creating, table.indexes.values()))


def describe(table: EngineTable, *, status: str = "ACTIVE") -> dict[str, Any]:
    """Return the `TableDescription` of a table, which is ACTIVE also while an index is filled."""
    options = table.options
    description: dict[str, Any] = {
        "TableName": table.name,
        "TableArn": table.arn,
        "TableId": table.table_id,
        "TableStatus": status,
        "CreationDateTime": table.created,
        "KeySchema": table.keys.elements,
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in table.types.items()
        ],
        "ItemCount": table.item_count,
        "TableSizeBytes": table.size_bytes,
        "ProvisionedThroughput": _throughput(options.throughput),
        "DeletionProtectionEnabled": options.deletion_protection,
    }
    if table.on_demand_since is not None:
        description["BillingModeSummary"] = {
            "BillingMode": "PAY_PER_REQUEST",
            "LastUpdateToPayPerRequestDateTime": table.on_demand_since,
        }
    if options.table_class is not None:
        description["TableClassSummary"] = {"TableClass": options.table_class}
    if options.on_demand is not None:
        description["OnDemandThroughput"] = options.on_demand
    if options.sse is not None:
        description["SSEDescription"] = options.sse
    for title, is_global in (("GlobalSecondaryIndexes", True), ("LocalSecondaryIndexes", False)):
        found = [index for index in table.indexes.values() if index.is_global is is_global]
        if found:
            description[title] = [_describe_index(table, index) for index in found]
    return description | _stream(table)


def _throughput(units: dict[str, int]) -> dict[str, int]:
    zero = {"NumberOfDecreasesToday": 0, "ReadCapacityUnits": 0, "WriteCapacityUnits": 0}
    return zero | units


def _describe_index(table: EngineTable, index: TableIndex) -> dict[str, Any]:
    description: dict[str, Any] = {
        "IndexName": index.name,
        "IndexArn": f"{table.arn}/index/{index.name}",
        "KeySchema": index.keys.elements,
        "Projection": index.projection,
        "ItemCount": index.item_count,
        "IndexSizeBytes": index.size_bytes,
    }
    if index.is_global:
        description["IndexStatus"] = "CREATING" if table.creating(index) else "ACTIVE"
        if table.creating(index):
            description["Backfilling"] = True
        description["ProvisionedThroughput"] = _throughput(index.throughput or {})
    return description


def _stream(table: EngineTable) -> dict[str, Any]:
    stream = table.latest_stream
    if stream is None or stream.gone():
        return {}
    description: dict[str, Any] = {
        "LatestStreamArn": stream.arn,
        "LatestStreamLabel": stream.label,
    }
    if table.stream is not None:
        description["StreamSpecification"] = {
            "StreamEnabled": True,
            "StreamViewType": stream.view_type,
        }
    return description

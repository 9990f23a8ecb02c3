"""The operations of DynamoDB that the engine lacks, and what to use instead.

In: the name of an operation. Out: a sentence for the caller, which makes clear that the operation
is missing in the engine, not in DynamoDB. `docs/testing.md` lists the same groups.
"""

from typing import NamedTuple


class Lack(NamedTuple):
    """A group of operations.

    Attributes:
        title: the subject of the operations.
        instead: what to do instead.
        operations: their names.
    """

    title: str
    instead: str
    operations: tuple[str, ...]


LACKING = (
    Lack(
        "PartiQL",
        "use GetItem, Query, PutItem, UpdateItem, DeleteItem and their batches and transactions",
        ("ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"),
    ),
    Lack(
        "backups and point-in-time recovery",
        "copy the items with Scan and BatchWriteItem, or test against AWS",
        (
            "CreateBackup",
            "DeleteBackup",
            "DescribeBackup",
            "ListBackups",
            "RestoreTableFromBackup",
            "RestoreTableToPointInTime",
            "UpdateContinuousBackups",
        ),
    ),
    Lack(
        "exports and imports",
        "copy the items with Scan and BatchWriteItem, or test against AWS",
        (
            "ExportTableToPointInTime",
            "DescribeExport",
            "ListExports",
            "ImportTable",
            "DescribeImport",
            "ListImports",
        ),
    ),
    Lack(
        "global tables",
        "each Region has tables of its own here; test replication against AWS",
        (
            "CreateGlobalTable",
            "DescribeGlobalTable",
            "DescribeGlobalTableSettings",
            "ListGlobalTables",
            "UpdateGlobalTable",
            "UpdateGlobalTableSettings",
            "DescribeTableReplicaAutoScaling",
            "UpdateTableReplicaAutoScaling",
        ),
    ),
    Lack(
        "Kinesis data streams as a destination",
        "read the table's DynamoDB stream",
        (
            "EnableKinesisStreamingDestination",
            "DisableKinesisStreamingDestination",
            "DescribeKinesisStreamingDestination",
            "UpdateKinesisStreamingDestination",
        ),
    ),
    Lack(
        "resource policies",
        "the engine checks no permissions; test policies against AWS",
        ("GetResourcePolicy", "PutResourcePolicy", "DeleteResourcePolicy"),
    ),
    Lack(
        "Contributor Insights",
        "watch the calls with an observer of the engine",
        (
            "DescribeContributorInsights",
            "ListContributorInsights",
            "UpdateContributorInsights",
        ),
    ),
)

_BY_OPERATION = {name: lack for lack in LACKING for name in lack.operations}


def complaint(operation: str) -> str:
    """Return the reason why an operation is not carried out."""
    lack = _BY_OPERATION.get(operation)
    if lack is None:
        return f"{operation} is no operation that streamkit's local engine knows"
    return (
        f"{operation}: streamkit's local engine has no {lack.title}, unlike DynamoDB; "
        f"instead, {lack.instead}"
    )

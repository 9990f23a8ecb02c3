"""Operations about the account, which some clients call. The answers are constants."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.local.definitions import described_table
from streamkit.local.parameters import Payload, required

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_MOST_UNITS = 80_000
_MOST_TABLE_UNITS = 40_000


def describe_endpoints(engine: "Engine", _payload: Payload) -> Payload:
    """Carry out `DescribeEndpoints`."""
    address = f"dynamodb.{engine.region}.amazonaws.com"
    return {"Endpoints": [{"Address": address, "CachePeriodInMinutes": 1440}]}


def describe_limits(_engine: "Engine", _payload: Payload) -> Payload:
    """Carry out `DescribeLimits`: the quotas of a new account, which are not enforced here."""
    return {
        "AccountMaxReadCapacityUnits": _MOST_UNITS,
        "AccountMaxWriteCapacityUnits": _MOST_UNITS,
        "TableMaxReadCapacityUnits": _MOST_TABLE_UNITS,
        "TableMaxWriteCapacityUnits": _MOST_TABLE_UNITS,
    }


def describe_continuous_backups(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `DescribeContinuousBackups`: there are no backups."""
    required(payload, "TableName")
    described_table(engine, payload["TableName"], code="TableNotFoundException")
    return {
        "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "DISABLED"},
        }
    }


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "DescribeContinuousBackups": describe_continuous_backups,
    "DescribeEndpoints": describe_endpoints,
    "DescribeLimits": describe_limits,
}

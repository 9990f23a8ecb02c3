"""Time to live: its settings, and the deletion of expired items.

Nothing expires by itself: items are deleted only when `expire` is called. Their stream records
carry the identity of the service, by which a reader tells them from a user's deletions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.local.definitions import described_table
from streamkit.local.errors import validation
from streamkit.local.parameters import (
    Payload,
    at_least_length,
    at_most_length,
    required,
    structure,
    text,
    violation,
    violations,
)
from streamkit.local.specification import MOST_NAME_BYTES
from streamkit.local.tables import EngineTable

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_SETTLES = 3600.0
"""For how long a change takes effect on AWS, which refuses another one meanwhile."""

IDENTITY = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


def update_time_to_live(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `UpdateTimeToLive`."""
    required(payload, "TableName", "TimeToLiveSpecification")
    wanted = structure(payload["TimeToLiveSpecification"])
    name, enabled = wanted.get("AttributeName"), wanted.get("Enabled")
    if name is None or enabled is None:
        missing = "attributeName" if name is None else "enabled"
        where = f"timeToLiveSpecification.{missing}"
        raise violations([violation(None, where, "Member must not be null")])
    constraint = at_least_length(text(name), 1) or at_most_length(name, MOST_NAME_BYTES)
    if constraint:
        raise violations([violation(name, "timeToLiveSpecification.attributeName", constraint)])
    table = described_table(engine, payload["TableName"])
    _switch(table, name, enabled=enabled is True, now=engine.clock())
    return {"TimeToLiveSpecification": {"AttributeName": name, "Enabled": enabled}}


def _switch(table: EngineTable, name: str, *, enabled: bool, now: float) -> None:
    current = table.ttl_attribute
    if enabled and current is not None:
        if current == name:
            raise validation("TimeToLive is already enabled")
        raise validation(
            f"TimeToLive is active on a different AttributeName: current AttributeName is {current}"
        )
    if not enabled and current is None:
        raise validation("TimeToLive is already disabled")
    if not enabled and current != name:
        raise validation(
            f"TimeToLive is active on a different AttributeName: current AttributeName is {current}"
        )
    if now < table.ttl_changed + _SETTLES:
        raise validation("Time to live has been modified multiple times within a fixed interval")
    table.set_ttl(name if enabled else None)
    table.ttl_changed = now


def describe_time_to_live(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `DescribeTimeToLive`."""
    required(payload, "TableName")
    attribute = described_table(engine, payload["TableName"]).ttl_attribute
    if attribute is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}


def expire(engine: "Engine", table_name: str) -> int:
    """Delete the items of a table that have expired by the engine's clock; return how many.

    Raises:
        KeyError: there is no such table.
    """
    table = engine.tables[table_name]
    expired = [row[0] for row in table.expired(engine.clock())]
    for item in expired:
        table.write(table.keys.key(item), item, None, identity=IDENTITY)
    return len(expired)


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "UpdateTimeToLive": update_time_to_live,
    "DescribeTimeToLive": describe_time_to_live,
}

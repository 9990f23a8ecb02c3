"""UpdateTable: streams on and off, global indexes, billing, and the table's other options.

A request is validated completely before anything changes. What AWS does in the background is done
at once: a new stream takes the next write, and a new index is complete and ACTIVE, unless the
engine is told how long that takes (`index_creation`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.local import specification as spec
from streamkit.local.definitions import described_table, sse_description, start_stream
from streamkit.local.descriptions import describe, is_busy
from streamkit.local.errors import validation
from streamkit.local.index_updates import Step, index_steps, will_not_change
from streamkit.local.parameters import Payload, array, required, structure
from streamkit.local.tables import EngineTable

if TYPE_CHECKING:
    from streamkit.local.engine import Engine


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
        *index_steps(table, payload, on_demand=_will_be_on_demand(table, payload)),
        *_stream(engine, table, payload),
    ]
    for step in steps:
        step()
    return {"TableDescription": describe(table, status="UPDATING" if is_busy(table) else "ACTIVE")}


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


def _billing(engine: "Engine", table: EngineTable, payload: Payload) -> list[Step]:
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
        raise will_not_change("table", "table", units)
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


def _options(table: EngineTable, payload: Payload) -> list[Step]:
    steps: list[Step] = []
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


def _stream(engine: "Engine", table: EngineTable, payload: Payload) -> list[Step]:
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


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {"UpdateTable": update_table}

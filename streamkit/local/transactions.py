"""TransactWriteItems and TransactGetItems: all or nothing, on up to 100 items of any tables.

A transaction is evaluated completely - every condition, every update - before the first item is
changed, so a refusal has nothing to undo; a journal covers unexpected errors. Its stream records
appear only when all of it is done, in random order, because the service promises none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamkit.local.batches import metrics_by_table
from streamkit.local.capacity import WriteUnits, read_units, write_units
from streamkit.local.errors import ApiError, validation
from streamkit.local.items import read_projection
from streamkit.local.lookup import all_consumed, find_table
from streamkit.local.parameters import (
    Payload,
    array,
    at_least_length,
    at_most_length,
    required,
    structure,
    violation,
    violations,
)
from streamkit.local.schema import EmptyKeyValue, SchemaMismatch
from streamkit.local.tables import EngineTable, Journal, publish, undo
from streamkit.local.tokens import digest_of
from streamkit.local.values import Item
from streamkit.local.writes import (
    ItemWrite,
    parse_check,
    parse_delete,
    parse_put,
    parse_upsert,
)

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_MOST_ACTIONS = 100
_MOST_BYTES = 4 << 20
_FACTOR = 2
_PASSED: Payload = {"Code": "None"}
_INVALID = "ValidationError"


def transact_write_items(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `TransactWriteItems`."""
    actions = _actions(payload)
    writes = [_parse_write(structure(action)) for action in actions]
    tables = [find_table(engine, name) for name, _ in writes]
    token = payload.get("ClientRequestToken")
    digest = b""
    if token is not None:
        digest = digest_of(actions)
        repeated = engine.tokens.find(token, digest)
        if repeated is not None:
            for name, units in repeated.reads:
                engine.meter.add_read(name, units)
            return all_consumed(engine, payload, split=True)
    bound = [write for _, write in writes]
    reasons = _bind(bound, tables)
    plan = _evaluate(engine, bound, reasons)
    reads = _apply(engine, plan)
    if token is not None:
        engine.tokens.remember(token, digest, reads)
    body = all_consumed(engine, payload, split=True)
    if payload.get("ReturnItemCollectionMetrics") == "SIZE":
        changing = [write for write in bound if type(write) is not ItemWrite]
        body["ItemCollectionMetrics"] = metrics_by_table(changing)
    return body


def _actions(payload: Payload) -> list[Any]:
    required(payload, "TransactItems")
    actions = array(payload["TransactItems"])
    constraint = at_least_length(actions, 1) or at_most_length(actions, _MOST_ACTIONS)
    if constraint:
        raise violations([violation(actions, "transactItems", constraint)])
    return actions


_PARSERS: dict[str, tuple[Callable[[Payload], ItemWrite], tuple[str, ...]]] = {
    "Put": (parse_put, ("TableName", "Item")),
    "Update": (parse_upsert, ("TableName", "Key", "UpdateExpression")),
    "Delete": (parse_delete, ("TableName", "Key")),
    "ConditionCheck": (parse_check, ("TableName", "Key", "ConditionExpression")),
}


def _parse_write(action: Payload) -> tuple[str, ItemWrite]:
    """Return the table's name and the write of one action."""
    given = [kind for kind in action if kind in _PARSERS and action[kind] is not None]
    if len(given) != 1:
        raise validation("TransactItems can only contain one of Check, Put, Update or Delete")
    parse, names = _PARSERS[given[0]]
    request = structure(action[given[0]])
    required(request, *names)
    return request["TableName"], parse(request)


def _bind(writes: list[ItemWrite], tables: list[EngineTable]) -> list[Payload]:
    """Find every action's item; return the reasons why actions are not possible."""
    reasons = []
    seen = set()
    for write, table in zip(writes, tables, strict=True):
        try:
            write.bind(table)
        except SchemaMismatch as error:
            reasons.append({"Code": _INVALID, "Message": error.message})
            continue
        reasons.append(_PASSED)
        target = (table.name, write.place)
        if target in seen:
            raise _several_on_one_item()
        seen.add(target)
    size = sum(write.size or 0 for write in writes)
    if size > _MOST_BYTES:
        raise _too_large()
    return reasons


Plan = list[tuple[ItemWrite, Item | None, Item | None, int]]


def _evaluate(engine: "Engine", writes: list[ItemWrite], reasons: list[Payload]) -> Plan:
    """Return what each write does: the item before and after, and its size before.

    Raises:
        ApiError: TransactionCanceledException: some writes cannot be done.
    """
    plan: Plan = []
    for number, write in enumerate(writes):
        if reasons[number] is not _PASSED:
            continue
        old, old_size = write.stored()
        new = None
        if write.holds(old):
            try:
                new = write.result(old)
            except EmptyKeyValue:
                raise
            except ApiError as error:
                reasons[number] = {"Code": _INVALID, "Message": error.message}
        else:
            reasons[number] = _failed_condition(write, old)
        plan.append((write, old, new, old_size))
    if any(reason is not _PASSED for reason in reasons):
        for write, _, _, old_size in plan:
            units = WriteUnits(write_units(old_size))
            engine.meter.add_write(write.table.name, units, factor=_FACTOR)
        raise cancelled(reasons)
    if sum(write.size or 0 for write, *_ in plan) > _MOST_BYTES:
        raise _too_large()
    return plan


def _failed_condition(write: ItemWrite, old: Item | None) -> Payload:
    reason: Payload = {
        "Code": "ConditionalCheckFailed",
        "Message": "The conditional request failed",
    }
    if write.return_old and old is not None:
        reason["Item"] = old
    return reason


def _apply(engine: "Engine", plan: Plan) -> dict[str, float]:
    """Change all items, then append to the streams; return a repetition's cost, by table."""
    journal: Journal = []
    costs: list[tuple[ItemWrite, WriteUnits]] = []
    reads: dict[str, float] = {}
    try:
        for write, old, new, old_size in plan:
            if type(write) is ItemWrite:
                units = WriteUnits(write_units(old_size))
            else:
                units = write.carry_out(old, new, journal)
            costs.append((write, units))
            size = max(old_size, write.size or 0)
            name = write.table.name
            reads[name] = reads.get(name, 0.0) + read_units(size, consistent=True) * _FACTOR
    except BaseException:
        undo(journal)
        raise
    for write, units in costs:
        table = write.table
        engine.meter.add_write(table.name, units, factor=_FACTOR, local=table.local_names)
    if len(journal) > 1:
        engine.rng.shuffle(journal)
    for change in journal:
        publish(change)
    return reads


def transact_get_items(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `TransactGetItems`."""
    reads = []
    for action in _actions(payload):
        required(structure(action), "Get")
        request = structure(action["Get"])
        required(request, "TableName", "Key")
        projection = read_projection(request)
        table = find_table(engine, request["TableName"])
        table.check_paths(projection)
        reads.append((table, request["Key"], projection))
    reasons = []
    seen = set()
    found = []
    for table, given, projection in reads:
        try:
            key = table.keys.checked_key(given)
        except SchemaMismatch as error:
            reasons.append({"Code": _INVALID, "Message": error.message})
            continue
        reasons.append(_PASSED)
        place = (table.name, table.keys.place(key))
        if place in seen:
            raise _several_on_one_item()
        seen.add(place)
        found.append((table, table.read(key), projection))
    if any(reason is not _PASSED for reason in reasons):
        raise cancelled(reasons)
    if sum(row[1] for _, row, _ in found if row is not None) > _MOST_BYTES:
        raise _too_large()
    responses: list[Payload] = []
    for table, row, projection in found:
        units = read_units(0 if row is None else row[1], consistent=True)
        engine.meter.add_read(table.name, units * _FACTOR)
        if row is None:
            responses.append({})
        else:
            responses.append({"Item": row[0] if projection is None else projection.apply(row[0])})
    return {"Responses": responses} | all_consumed(engine, payload, split=True)


def cancelled(reasons: list[Payload]) -> ApiError:
    """Return the refusal of a transaction, with a reason for each action.

    The service stops at the first action that is invalid, and reports no reason for any other
    action, not even a condition that does not hold.
    """
    invalid = [number for number, reason in enumerate(reasons) if reason["Code"] == _INVALID]
    if invalid:
        reasons = [r if n == invalid[0] else _PASSED for n, r in enumerate(reasons)]
    codes = ", ".join(reason["Code"] for reason in reasons)
    return ApiError(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=[dict(reason) for reason in reasons],
    )


def _several_on_one_item() -> ApiError:
    return validation("Transaction request cannot include multiple operations on one item")


def _too_large() -> ApiError:
    return validation(
        "One or more parameter values were invalid: The aggregate size of the items in the "
        "transaction exceeds 4 MB"
    )


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "TransactWriteItems": transact_write_items,
    "TransactGetItems": transact_get_items,
}

"""Query: the items of one partition, in order."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions import Condition, KeyCondition, parse_key_condition
from streamkit.local.legacy import filter_condition, key_conditions, reject_mixture
from streamkit.local.lookup import consumed, find_table
from streamkit.local.ordering import LAST, Entry
from streamkit.local.pages import (
    PageRequest,
    check_select,
    plan,
    read_expressions,
    read_page,
    starting_key,
)
from streamkit.local.parameters import Payload, required
from streamkit.local.schema import KeySchema
from streamkit.local.tables import EngineTable
from streamkit.local.values import Item

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_LEGACY = ("KeyConditions", "QueryFilter", "AttributesToGet", "ConditionalOperator")
_EXPRESSIONS = ("ProjectionExpression", "FilterExpression", "KeyConditionExpression")


def query(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `Query`."""
    if payload.get("Limit") == 0:
        raise validation(
            "1 validation error detected: Value at 'Limit' failed to satisfy constraint: "
            "Member must have value greater than or equal to 1"
        )
    required(payload, "TableName")
    reject_mixture(payload, legacy=_LEGACY, expressions=_EXPRESSIONS)
    check_select(payload)
    if payload.get("KeyConditionExpression") is None and payload.get("KeyConditions") is None:
        raise validation(
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in "
            "the request."
        )
    table = find_table(engine, payload["TableName"])
    reading, wanted = _parse(payload, table)
    start, stop = _range(reading, wanted, payload)
    partition = _keys(reading).partition(wanted.hash_values)
    descending = payload.get("ScanIndexForward") is False
    body = read_page(
        engine, reading, reading.rows.query(partition, start, stop, descending=descending)
    )
    return body | consumed(engine, payload)


def _parse(payload: Payload, table: EngineTable) -> tuple[PageRequest, KeyCondition]:
    texts, placeholders, condition, projection = read_expressions(payload, _EXPRESSIONS)
    reading = plan(payload, table, condition, projection)
    keys = _keys(reading)
    text = texts["KeyConditionExpression"]
    if text is not None:
        wanted = parse_key_condition(
            text, placeholders, keys.hash_names, keys.range_names, types=keys.types
        )
    else:
        conditions = payload["KeyConditions"]
        wanted = key_conditions(conditions, keys.hash_names, keys.range_names, types=keys.types)
    placeholders.finish()
    if condition is not None:
        _check_filter(condition, keys)
    elif payload.get("QueryFilter") is not None:
        asked = filter_condition(
            payload["QueryFilter"],
            payload.get("ConditionalOperator"),
            kind="QueryFilter",
            keys=keys.names,
        )
        reading = replace(reading, condition=asked)
    return reading, wanted


def _keys(reading: PageRequest) -> KeySchema:
    return reading.table.keys if reading.index is None else reading.index.keys


def _check_filter(condition: Condition, keys: KeySchema) -> None:
    for path in condition.paths:
        if path[0] in keys.name_set:
            raise validation(
                "Filter Expression can only contain non-primary key attributes: "
                f"Primary key attribute: {path[0]}"
            )


def _range(
    reading: PageRequest, wanted: KeyCondition, payload: Payload
) -> tuple[Entry, Entry | None]:
    """Return the bounds of the entries to walk."""
    first = wanted.before
    start: Entry = first
    stop: Entry | None = (*first, LAST) if first else None
    if wanted.lower is not None:
        start = (*first, wanted.lower) if wanted.lower_inclusive else (*first, wanted.lower, LAST)
    if wanted.upper is not None:
        stop = (*first, wanted.upper, LAST) if wanted.upper_inclusive else (*first, wanted.upper)
    given = payload.get("ExclusiveStartKey")
    if given is None:
        return start, stop
    key = starting_key(reading, given)
    entry = reading.place(key)[1]
    _check_start(reading, wanted, key, entry)
    if payload.get("ScanIndexForward") is False:
        return start, entry
    return (*entry, LAST), stop


def _check_start(reading: PageRequest, wanted: KeyCondition, key: Item, entry: Entry) -> None:
    """Refuse a starting key with which no page of this query can have ended."""
    keys = _keys(reading)
    same_hash = tuple(key[name] for name in keys.hash_names) == wanted.hash_values
    if wanted.ranged and not wanted.holds(entry):
        raise validation("The provided starting key does not match the range key predicate")
    if wanted.ranged and not same_hash:
        raise _only_one_row()
    if not same_hash:
        raise validation(
            "The provided starting key is outside query boundaries based on provided conditions"
        )
    if reading.index is None and (keys.range_name is None or wanted.exact):
        raise _only_one_row()


def _only_one_row() -> ApiError:
    return validation("The query can return at most one row and cannot be restarted")


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {"Query": query}

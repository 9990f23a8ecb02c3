"""Scan: all items of a table or index, or of one segment, in the order of key hashes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.local.errors import validation
from streamkit.local.expressions import (
    Condition,
    Projection,
)
from streamkit.local.legacy import filter_condition, reject_mixture
from streamkit.local.lookup import consumed, find_table
from streamkit.local.pages import (
    PageRequest,
    check_select,
    plan,
    read_expressions,
    read_page,
    starting_key,
)
from streamkit.local.parameters import Payload, required
from streamkit.local.partitions import HASHES, Place, key_hash

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_LEGACY = ("AttributesToGet", "ScanFilter", "ConditionalOperator")
_EXPRESSIONS = ("ProjectionExpression", "FilterExpression")


def scan(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `Scan`."""
    required(payload, "TableName")
    reject_mixture(payload, legacy=_LEGACY, expressions=_EXPRESSIONS)
    check_select(payload)
    first, end = _segment(payload)
    condition, projection = _parse(payload)
    table = find_table(engine, payload["TableName"])
    reading = plan(payload, table, condition, projection)
    after = _after(reading, payload, first, end)
    body = read_page(engine, reading, reading.rows.scan(first, end, after=after))
    return body | consumed(engine, payload)


def _parse(payload: Payload) -> tuple[Condition | None, Projection | None]:
    _, placeholders, condition, projection = read_expressions(payload, _EXPRESSIONS)
    scanned = payload.get("ScanFilter") is not None
    if condition is None and (scanned or payload.get("ConditionalOperator") is not None):
        condition = filter_condition(
            payload.get("ScanFilter"), payload.get("ConditionalOperator"), kind="ScanFilter"
        )
    placeholders.finish()
    return condition, projection


def _segment(payload: Payload) -> tuple[int, int]:
    """Return the range of hashes to walk."""
    segment, total = payload.get("Segment"), payload.get("TotalSegments")
    if segment is None and total is None:
        return 0, HASHES
    if total is None:
        raise validation(
            "The TotalSegments parameter is required but was not present in the request when "
            "Segment parameter is present"
        )
    if segment is None:
        raise validation(
            "The Segment parameter is required but was not present in the request when parameter "
            "TotalSegments is present"
        )
    if segment >= total:
        raise validation(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {segment} is not less than TotalSegments: {total}"
        )
    return segment * HASHES // total, (segment + 1) * HASHES // total


def _after(reading: PageRequest, payload: Payload, first: int, end: int) -> Place | None:
    given = payload.get("ExclusiveStartKey")
    if given is None:
        return None
    place = reading.place(starting_key(reading, given))
    if not first <= key_hash(place[0]) < end:
        raise validation(
            "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use "
            "ExclusiveStartKey with correct Segment. "
            f"TotalSegments: {payload['TotalSegments']} Segment: {payload['Segment']}"
        )
    return place


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {"Scan": scan}

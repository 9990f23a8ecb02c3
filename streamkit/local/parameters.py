"""Checks of request parameters that need neither a table nor an item.

Types, ranges and enumerations are the same wherever a parameter occurs, so one table of rules
serves all operations. Violations are collected and reported together in the service's words, except
for the table's name, which is checked first and alone.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from streamkit.local.errors import ApiError, serialization, validation

Payload: TypeAlias = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_.-]+").fullmatch
_Rule: TypeAlias = Callable[[Any], str | None]


def required(payload: Payload, *names: str) -> None:
    """Check that the parameters `names` are there, and check all parameters of the request."""
    if payload.get("TableName") is not None:
        name = text(payload["TableName"])
        constraint = table_name_violation(name)
        if constraint:
            raise violations([violation(name, "tableName", constraint)])
    found = [
        violation(None, member(name), "Member must not be null")
        for name in names
        if payload.get(name) is None
    ]
    for name, value in payload.items():
        rule = _RULES.get(name)
        if rule is not None and value is not None:
            constraint = rule(value)
            if constraint:
                found.append(violation(value, member(name), constraint))
    if found:
        raise violations(found)


def member(name: str) -> str:
    """Return a parameter's name as error messages write it."""
    return name[:1].lower() + name[1:]


def violation(value: object, where: str, constraint: str) -> str:
    """Return the text that says what is wrong with one value."""
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{where}' failed to satisfy constraint: {constraint}"


def violations(found: list[str]) -> ApiError:
    """Return the refusal for all violations."""
    noun = "error" if len(found) == 1 else "errors"
    return validation(f"{len(found)} validation {noun} detected: {'; '.join(found)}")


@lru_cache(maxsize=1024)
def table_name_violation(name: str) -> str | None:
    """Return the constraint that a table name, or ARN in its place, breaks."""
    if name.startswith("arn:"):
        return at_most_length(name, 1024)
    if not name:
        return at_least_length(name, 1)
    return at_most_length(name, 255) or name_violation(name)


def name_violation(name: str) -> str | None:
    """Return the constraint on the characters of names of tables and indexes."""
    if _NAME(name):
        return None
    return "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"


def text(value: Any) -> str:
    """Return the value if it is a string; refuse it otherwise."""
    if type(value) is not str:
        raise serialization("Unexpected value type in payload")
    return value


def structure(value: Any) -> Payload:
    """Return the value if it is an object; refuse it otherwise."""
    if type(value) is not dict:
        raise serialization("Unexpected value type in payload")
    return value


def array(value: Any) -> list[Any]:
    """Return the value if it is a list; refuse it otherwise."""
    if type(value) is not list:
        raise serialization("Unexpected field type")
    return value


def at_least_length(value: str | list[Any] | Mapping[str, Any], least: int) -> str | None:
    """Return the constraint if a value is too short; None otherwise."""
    if len(value) >= least:
        return None
    return f"Member must have length greater than or equal to {least}"


def at_most_length(value: str | list[Any], most: int) -> str | None:
    """Return the constraint if a value is too long; None otherwise."""
    if len(value) <= most:
        return None
    return f"Member must have length less than or equal to {most}"


def one_of(*allowed: str) -> _Rule:
    """Return a rule that allows only these strings."""

    def rule(value: Any) -> str | None:
        if text(value) in allowed:
            return None
        return f"Member must satisfy enum value set: [{', '.join(allowed)}]"

    return rule


def whole(least: int, most: int | None = None) -> _Rule:
    """Return a rule that allows whole numbers in this range."""

    def rule(value: Any) -> str | None:
        if type(value) is not int:
            raise serialization("Unexpected value type in payload")
        if value < least:
            return f"Member must have value greater than or equal to {least}"
        if most is not None and value > most:
            return f"Member must have value less than or equal to {most}"
        return None

    return rule


def _flag(value: Any) -> None:
    if type(value) is not bool:
        raise serialization("Unexpected value type in payload")


def _structure(value: Any) -> None:
    structure(value)


def _text(value: Any) -> None:
    text(value)


def _list(value: Any) -> None:
    array(value)


def _token(value: Any) -> str | None:
    token = text(value)
    return at_least_length(token, 1) or at_most_length(token, 36)


_RULES: dict[str, _Rule] = {
    "AttributesToGet": _list,
    "AttributeUpdates": _structure,
    "BillingMode": one_of("PROVISIONED", "PAY_PER_REQUEST"),
    "ClientRequestToken": _token,
    "ConditionExpression": _text,
    "ConsistentRead": _flag,
    "DeletionProtectionEnabled": _flag,
    "Expected": _structure,
    "ExclusiveStartKey": _structure,
    "FilterExpression": _text,
    "IndexName": _text,
    "KeyConditionExpression": _text,
    "KeyConditions": _structure,
    "Limit": whole(1),
    "ProjectionExpression": _text,
    "QueryFilter": _structure,
    "ReturnConsumedCapacity": one_of("INDEXES", "TOTAL", "NONE"),
    "ReturnItemCollectionMetrics": one_of("SIZE", "NONE"),
    "ReturnValues": one_of("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"),
    "ReturnValuesOnConditionCheckFailure": one_of("ALL_OLD", "NONE"),
    "ScanFilter": _structure,
    "ScanIndexForward": _flag,
    "Segment": whole(0, 999_999),
    "Select": one_of("SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"),
    "TableClass": one_of("STANDARD", "STANDARD_INFREQUENT_ACCESS"),
    "TotalSegments": whole(1, 1_000_000),
    "UpdateExpression": _text,
}

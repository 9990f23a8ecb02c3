"""Redaction: item data is removed from log lines.

A log line names shards, handlers and hashed keys. This module drops what could hold item data:
values under the names below at any depth, attribute values in DynamoDB's JSON, models and records,
and the texts of AWS SDK exceptions, which quote the request; their error code is kept. A number
under a plural name is a count, and is kept.
"""

import traceback
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"

_COUNTED = frozenset({"items", "images", "records", "keys"})
"""Plural names: a number under one of them is a count, and no item data."""
NAMES = frozenset({"item", "image", "record", "old", "new"}) | _COUNTED
"""Values under these names may hold item data; names are compared without case."""

_TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "M", "L", "BOOL", "NULL"})
"""An attribute value in DynamoDB's JSON has one of these as its only key."""

_MODELS = ("model_fields", "__struct_fields__", "__dataclass_fields__")
"""Classes of pydantic, msgspec and dataclasses have these; their texts show all they hold."""

_SDK_PACKAGES = frozenset({"botocore", "boto3", "aiobotocore", "aioboto3"})

_DEPTH_MAX = 8
"""Deeper values are dropped without a look at them: log lines are flat."""


def redact(_logger: Any, _method: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what could hold item data from a log event; a structlog processor."""
    return {name: _clean(name, value, 0) for name, value in event.items()}


def _clean(name: Any, value: Any, depth: int) -> Any:
    if isinstance(name, str) and name.lower() in NAMES:
        return value if name.lower() in _COUNTED and _is_count(value) else REDACTED
    if isinstance(value, BaseException):
        return name_of(value)
    if _holds_data(value):
        return REDACTED
    if depth >= _DEPTH_MAX:
        return REDACTED if isinstance(value, Mapping | list | tuple) else value
    if isinstance(value, Mapping):
        return {part: _clean(part, inner, depth + 1) for part, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(None, inner, depth + 1) for inner in value]
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds_data(value: Any) -> bool:
    """Return True if a value is a model, a record or an attribute value, under any name."""
    if isinstance(value, Mapping):
        return len(value) == 1 and not _TYPES.isdisjoint(value)
    kind = type(value)
    return any(hasattr(kind, mark) for mark in _MODELS)


def name_of(error: BaseException) -> str:
    """Return an exception's class and text; for AWS SDK errors, which quote requests, the code."""
    kind = type(error).__name__
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return f"{kind}: {response.get('Error', {}).get('Code', '')}"
    if type(error).__module__.partition(".")[0] in _SDK_PACKAGES:
        return kind
    return f"{kind}: {error}" if str(error) else kind


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback, with `name_of` in place of each exception's text."""
    lines: list[str] = []
    for number, link in enumerate(chain_of(error)):
        if number:
            lines.append("The above led to:")
        lines.append("Traceback (most recent call last):")
        lines += "".join(traceback.format_tb(link.__traceback__)).splitlines()
        lines.append(name_of(link))
        if isinstance(link, BaseExceptionGroup):
            for inner in link.exceptions:
                lines += [f"  | {line}" for line in traceback_text(inner).splitlines()]
    return "\n".join(lines)


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception and its causes, the first cause first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        context = None if link.__suppress_context__ else link.__context__
        link = link.__cause__ or context
    return chain[::-1]

"""The texts of values in keys: where each ends, and how it is read back. Pure.

In: a placeholder of a template, and the annotation of its field. Out: a pattern if the text ends by
itself, and a function that makes the plain value again; None where a text could be several values.
"""

import re
import types
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from pydantic import (
    AwareDatetime,
    FutureDate,
    FutureDatetime,
    NaiveDatetime,
    PastDate,
    PastDatetime,
)

from streamkit.model.fields import StoredAs
from streamkit.model.templates import Placeholder

Convert = Callable[[str], Any]
"""Makes a plain value from a text; raises `ValueError` or `KeyError` if no value has that text."""
Slot = tuple[str, str]
"""A field and its format: if both are the same, the text is the same."""

_DIRECTIVES = {
    **dict.fromkeys("YG", r"\d{4}"),
    **dict.fromkeys("mdHMSIyVUW", r"\d\d"),
    **dict.fromkeys("uw", r"\d"),
    "j": r"\d{3}",
    "f": r"\d{6}",
}
"""The directives of `strftime` with texts of fixed length."""

DATES: tuple[Any, ...] = (date, PastDate, FutureDate)
MOMENTS: tuple[Any, ...] = (datetime, AwareDatetime, NaiveDatetime, PastDatetime, FutureDatetime)
"""Pydantic's own date types are not subclasses of the dates that they stand for."""
_SAMPLES = (
    datetime(1912, 2, 29, 23, 58, 57, tzinfo=UTC),
    datetime(1999, 12, 31, 1, 2, 3, tzinfo=UTC),
    datetime(2068, 7, 4, 13, 0, 1, tzinfo=UTC),
)
_DIGITS, _NUMBER = re.compile(r" *-?\d++"), re.compile(r"-?\d++(?:\.\d++)?+")
_UUID, _DATE = re.compile(r"[0-9A-Fa-f-]{36}"), re.compile(r"\d{4}-\d\d-\d\d")


class KeyPart(msgspec.Struct, frozen=True):
    """A placeholder: a pattern if its text ends by itself, and the function to read it."""

    slot: Slot
    literal: str
    pattern: re.Pattern[str] | None
    convert: Convert | None


def read_part(placeholder: Placeholder, annotation: Any, metadata: Sequence[Any]) -> KeyPart:
    """Return how the value of a placeholder stands in a key, by the annotation of its field."""
    kind, notes = _kind(annotation, tuple(metadata))
    pattern, convert = _reading(placeholder, kind, notes)
    ambiguous = pattern in (_DIGITS, _NUMBER) and placeholder.literal[:1] in tuple("0123456789.")
    slot = (placeholder.name, placeholder.spec)
    return KeyPart(slot, placeholder.literal, None if ambiguous else pattern, convert)


def _kind(annotation: Any, notes: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the class of a field's values, and its notes; None if several classes are possible."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _kind(inner, (*notes, *more))
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        return _kind(members[0], notes) if len(members) == 1 else (None, notes)
    return annotation, notes


def _reading(
    placeholder: Placeholder, kind: Any, notes: tuple[Any, ...]
) -> tuple[re.Pattern[str] | None, Convert | None]:
    """Return the pattern of a value's text if it ends by itself, and the function that reads it."""
    if get_origin(kind) is Literal:
        return None, _one_of(get_args(kind))
    if kind is Any or not (isinstance(kind, type) or kind in DATES + MOMENTS):
        return None, None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return None, _one_of([member.value for member in kind])
    if placeholder.is_temporal:
        return _strftime_pattern(placeholder.spec), _temporal(placeholder.spec, kind, notes)
    if placeholder.is_numeric:
        return _DIGITS, partial(_formatted, placeholder)
    for classes, pattern, convert in _PLAIN:
        if kind in classes or (isinstance(kind, type) and issubclass(kind, classes[0])):
            return pattern, convert
    return None, str


_PLAIN: tuple[tuple[tuple[Any, ...], re.Pattern[str] | None, Convert], ...] = (
    ((int,), _DIGITS, int),
    ((Decimal,), _NUMBER, Decimal),
    ((UUID,), _UUID, str),
    (MOMENTS, None, str),
    (DATES, _DATE, str),
)


def _one_of(values: Sequence[Any]) -> Convert | None:
    if any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
        return None
    return {str(value): value for value in values}.__getitem__


def _formatted(placeholder: Placeholder, text: str) -> int:
    """Return the number that a format turned into this text."""
    value = int(text)
    if placeholder.is_descending:
        value = 10 ** len(text) - 1 - value
    if placeholder.render(value, "key") != text:
        raise ValueError("not in this format")
    return value


def _strftime_pattern(spec: str) -> re.Pattern[str] | None:
    """Return the pattern of such texts; None if their length varies."""
    parts = re.split(r"%(.)", spec)
    if any(directive not in _DIRECTIVES for directive in parts[1::2]):
        return None
    both = zip(parts[::2], [*(_DIRECTIVES[name] for name in parts[1::2]), ""], strict=True)
    return re.compile("".join(re.escape(literal) + pattern for literal, pattern in both))


def _temporal(spec: str, kind: Any, notes: Sequence[Any]) -> Convert | None:
    """Return a function that reads dates back; None if the format omits a part of them.

    For a moment the second is enough. A moment without a zone is in UTC if the field requires a
    zone, or if the format says so with a Z.
    """
    is_moment = kind in MOMENTS or (isinstance(kind, type) and issubclass(kind, datetime))
    for sample in _SAMPLES:
        try:
            read = datetime.strptime(sample.strftime(spec), spec).replace(tzinfo=UTC)
        except ValueError:
            return None
        if read != sample if is_moment else read.date() != sample.date():
            return None
    zoned = kind is AwareDatetime or any(isinstance(note, StoredAs) for note in notes)

    def convert(text: str) -> str:
        moment = datetime.strptime(text, spec)  # noqa: DTZ007 - it may have no zone
        if moment.strftime(spec) != text:
            raise ValueError("not in this format")
        if not is_moment:
            return moment.date().isoformat()
        if moment.tzinfo is None and (zoned or spec.endswith("Z")):
            moment = moment.replace(tzinfo=UTC)
        return moment.isoformat()

    return convert

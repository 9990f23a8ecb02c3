"""Read fields back from the text of a key that was built from them. Pure.

A key is read back if its text can be split in one way only: the separators of the template do not
occur in the values. Numbers, dates and UUIDs end by themselves, so the text after them may hold
anything. A field in both partition and sort key helps to split both. A text that could be split in
two ways is not read at all: a guess would count an item where it does not belong.

In: an entity's templates and fields, and the texts of a key. Out: plain values as attributes would
have them, by field name, of the fields that are unambiguous.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import (
    AwareDatetime,
    FutureDate,
    FutureDatetime,
    NaiveDatetime,
    PastDate,
    PastDatetime,
)
from pydantic.fields import FieldInfo

from streamkit.model.fields import StoredAs
from streamkit.model.spec import EntitySpec
from streamkit.model.templates import Placeholder

_Convert = Callable[[str], Any]
"""Makes a plain value from a text; raises `ValueError` or `KeyError` if no value has that text."""
_Slot = tuple[str, str]
"""A field and its format: if both are the same, the text is the same."""

_DIRECTIVES = {
    **dict.fromkeys("YG", r"\d{4}"),
    **dict.fromkeys("mdHMSIyVUW", r"\d\d"),
    **dict.fromkeys("uw", r"\d"),
    "j": r"\d{3}",
    "f": r"\d{6}",
}
"""The directives of `strftime` with texts of fixed length."""

_DATES: tuple[Any, ...] = (date, PastDate, FutureDate)
_MOMENTS: tuple[Any, ...] = (datetime, AwareDatetime, NaiveDatetime, PastDatetime, FutureDatetime)
_SAMPLES = (
    datetime(1912, 2, 29, 23, 58, 57, tzinfo=UTC),
    datetime(1999, 12, 31, 1, 2, 3, tzinfo=UTC),
    datetime(2068, 7, 4, 13, 0, 1, tzinfo=UTC),
)
_DIGITS, _NUMBER = re.compile(r" *-?\d++"), re.compile(r"-?\d++(?:\.\d++)?+")
_UUID, _DATE = re.compile(r"[0-9A-Fa-f-]{36}"), re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class _Part:
    """A placeholder: a pattern if its text ends by itself, and the function to read it."""

    slot: _Slot
    literal: str
    pattern: re.Pattern[str] | None
    convert: _Convert | None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The text between two values of unknown length: literals, and values that end themselves."""

    pieces: tuple[tuple[str | re.Pattern[str], _Slot | None], ...]
    literal: str | None
    """The whole text, if it has no values."""

    @classmethod
    def of(cls, pieces: Sequence[tuple[str | re.Pattern[str], _Slot | None]]) -> "_Chunk":
        """Make a chunk of its pieces, with the fields of their values."""
        texts = [piece for piece, _ in pieces if isinstance(piece, str)]
        return cls(tuple(pieces), "".join(texts) if len(texts) == len(pieces) else None)

    def match(self, text: str, start: int) -> tuple[int, dict[_Slot, str]] | None:
        """Return the end of the chunk that begins at `start`, and the texts found in it."""
        if self.literal is not None:
            fits = text.startswith(self.literal, start)
            return (start + len(self.literal), {}) if fits else None
        found: dict[_Slot, str] = {}
        for piece, slot in self.pieces:
            if isinstance(piece, str):
                if not text.startswith(piece, start):
                    return None
                start += len(piece)
                continue
            matched = piece.match(text, start)
            if matched is None or slot is None or found.get(slot, matched[0]) != matched[0]:
                return None
            found[slot] = matched[0]
            start = matched.end()
        return start, found


class KeyReader:
    """Reads the fields of one entity's keys back.

    `readable` are the fields that can be unambiguous at all. A month does not give a day, and a
    text does not say whether it was a number.
    """

    def __init__(self, spec: EntitySpec, fields: Mapping[str, FieldInfo]) -> None:
        self._pk, *more = (
            _Shape.of(
                template.prefix,
                [_part(p, fields[p.name].annotation, fields[p.name].metadata) for p in ps],
            )
            for template in (spec.pk, spec.sk)
            if template is not None
            for ps in [template.placeholders]
        )
        self._sk = more[0] if more else None
        self._same = spec.sk is not None and spec.pk.text == spec.sk.text
        parts = [*self._pk.parts, *(self._sk.parts if self._sk else ())]
        self.readable = frozenset(part.slot[0] for part in parts if part.convert is not None)
        self._converts = {part.slot: part.convert for part in parts if part.convert is not None}
        slots = [{part.slot for part in shape.parts} for shape in (self._pk, *more)]
        self._shared = slots[0] & slots[1] if more else set[_Slot]()

    def read(self, pk: str, sk: str | None) -> dict[str, Any]:
        """Return what a key says of its item: plain values by field name."""
        if self._same and sk is not None and pk != sk:
            return {}
        known = self._pk.split(pk)
        if self._sk is None or sk is None or self._same:
            return self._converted(known or {})
        other = self._given(self._sk, known).split(sk)
        if known is None and other is not None:
            known = self._given(self._pk, other).split(pk)
        found = (known or {}) | (other or {})
        if known is None or other is None:  # a field in both templates needs both keys
            found = {slot: text for slot, text in found.items() if slot not in self._shared}
        return self._converted(found)

    def _given(self, shape: "_Shape", known: Mapping[_Slot, str] | None) -> "_Shape":
        """Return a shape in which the texts known from the other key are literal."""
        if not known or not self._shared:
            return shape
        return _Shape.of(shape.prefix, shape.parts, known)

    def _converted(self, known: Mapping[_Slot, str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for slot, text in known.items():
            convert = self._converts.get(slot)
            if convert is not None:
                try:
                    values[slot[0]] = convert(text)
                except (ValueError, KeyError):
                    continue
        return values


@dataclass(frozen=True, slots=True)
class _Shape:
    """A template in pieces: fields of unknown length, and the chunks around them."""

    prefix: str
    parts: tuple[_Part, ...]
    first: _Chunk
    free: tuple[_Slot, ...]
    chunks: tuple[_Chunk, ...]

    @classmethod
    def of(
        cls, prefix: str, parts: Sequence[_Part], known: Mapping[_Slot, str] | None = None
    ) -> "_Shape":
        """Cut a template into pieces; the texts that are `known` are literal."""
        given = known or {}
        chunks: list[list[tuple[str | re.Pattern[str], _Slot | None]]] = [[(prefix, None)]]
        free: list[_Slot] = []
        for part in parts:
            if part.slot in given:
                chunks[-1].append((given[part.slot], None))
            elif part.pattern is not None:
                chunks[-1].append((part.pattern, part.slot))
            else:
                free.append(part.slot)
                chunks.append([])
            chunks[-1].append((part.literal, None))
        first, *others = map(_Chunk.of, chunks)
        return cls(prefix, tuple(parts), first, tuple(free), tuple(others))

    def split(self, text: str) -> dict[_Slot, str] | None:
        """Return the texts of the fields; None if there is no way to split, or two."""
        begun = self.first.match(text, 0)
        if begun is None:
            return None
        start, found = begun
        if not self.chunks:
            return found if start == len(text) else None
        places = _ends(self.chunks, text, start, latest=False)
        if places is None:
            return None
        one_way = len(places) == 1 and self.chunks[0].literal is not None
        if not one_way and places != _ends(self.chunks, text, start, latest=True):
            return None
        for slot, chunk, place in zip(self.free, self.chunks, places, strict=True):
            matched = chunk.match(text, place)
            value = text[start:place]
            if matched is None or found.get(slot, value) != value:
                return None
            found |= {slot: value} | matched[1]
            start = matched[0]
        return found


def _ends(chunks: Sequence[_Chunk], text: str, start: int, *, latest: bool) -> list[int] | None:
    """Return where each chunk begins if all are taken as early, or as late, as possible.

    Between two chunks is a value of at least one character. Every way to split lies between the
    earliest and the latest, so there is exactly one way only where these are the same.
    """
    places: list[int] = []
    low, high = start + 1, len(text)
    for number in reversed(range(len(chunks))) if latest else range(len(chunks)):
        last = number == len(chunks) - 1
        place = _place(chunks[number], text, low, high, last=last, latest=latest)
        if place is None:
            return None
        places.append(place[0])
        low, high = (low, place[0] - 1) if latest else (place[1] + 1, high)
    return places[::-1] if latest else places


def _place(
    chunk: _Chunk, text: str, low: int, high: int, *, last: bool, latest: bool
) -> tuple[int, int] | None:
    """Return where a chunk begins and ends within bounds; the last one ends with the text."""
    literal = chunk.literal
    if literal is not None:
        if last:
            found = len(text) - len(literal) if text.endswith(literal) else -1
        else:
            found = (text.rfind if latest else text.find)(literal, low, high)
        return None if found < low else (found, found + len(literal))
    starts = range(low, high + 1)
    for start in reversed(starts) if latest else starts:
        matched = chunk.match(text, start)
        if matched is not None and (matched[0] == len(text) if last else matched[0] <= high):
            return start, matched[0]
    return None


# -- values ----------------------------------------------------------------------------------------


def _part(placeholder: Placeholder, annotation: Any, metadata: Sequence[Any]) -> _Part:
    kind, notes = _kind(annotation, tuple(metadata))
    pattern, convert = _reading(placeholder, kind, notes)
    ambiguous = pattern in (_DIGITS, _NUMBER) and placeholder.literal[:1] in tuple("0123456789.")
    slot = (placeholder.name, placeholder.spec)
    return _Part(slot, placeholder.literal, None if ambiguous else pattern, convert)


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
) -> tuple[re.Pattern[str] | None, _Convert | None]:
    """Return the pattern of a value's text if it ends by itself, and the function that reads it."""
    if get_origin(kind) is Literal:
        return None, _one_of(get_args(kind))
    if kind is Any or not (isinstance(kind, type) or kind in _DATES + _MOMENTS):
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


_PLAIN: tuple[tuple[tuple[Any, ...], re.Pattern[str] | None, _Convert], ...] = (
    ((int,), _DIGITS, int),
    ((Decimal,), _NUMBER, Decimal),
    ((UUID,), _UUID, str),
    (_MOMENTS, None, str),
    (_DATES, _DATE, str),
)


def _one_of(values: Sequence[Any]) -> _Convert | None:
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


def _temporal(spec: str, kind: Any, notes: Sequence[Any]) -> _Convert | None:
    """Return a function that reads dates back; None if the format omits a part of them.

    For a moment the second is enough. A moment without a zone is in UTC if the field requires a
    zone, or if the format says so with a Z.
    """
    is_moment = kind in _MOMENTS or (isinstance(kind, type) and issubclass(kind, datetime))
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

"""Read fields back from the text of a key that was built from them. Pure.

A key is read back if its text can be split in one way only: the separators of the template do not
occur in the values. Numbers, dates and UUIDs end by themselves (see `key_texts`), so the text after
them may hold anything. A field in both partition and sort key helps to split both. A text that
could be split in two ways is not read at all: a guess would count an item where it does not belong.

In: an entity's templates and fields, and the texts of a key. Out: plain values as attributes would
have them, by field name, of the fields that are unambiguous.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic.fields import FieldInfo

from streamkit.model.key_texts import KeyPart, Slot, read_part
from streamkit.model.spec import EntitySpec


class _Chunk(msgspec.Struct, frozen=True):
    """The text between two values of unknown length: literals, and values that end themselves."""

    pieces: tuple[tuple[str | re.Pattern[str], Slot | None], ...]
    literal: str | None
    """The whole text, if it has no values."""

    @classmethod
    def of(cls, pieces: Sequence[tuple[str | re.Pattern[str], Slot | None]]) -> "_Chunk":
        """Make a chunk of its pieces, with the fields of their values."""
        texts = [piece for piece, _ in pieces if isinstance(piece, str)]
        return cls(tuple(pieces), "".join(texts) if len(texts) == len(pieces) else None)

    def match(self, text: str, start: int) -> tuple[int, dict[Slot, str]] | None:
        """Return the end of the chunk that begins at `start`, and the texts found in it."""
        if self.literal is not None:
            fits = text.startswith(self.literal, start)
            return (start + len(self.literal), {}) if fits else None
        found: dict[Slot, str] = {}
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
                [read_part(p, fields[p.name].annotation, fields[p.name].metadata) for p in ps],
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
        self._shared = slots[0] & slots[1] if more else set[Slot]()

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

    def _given(self, shape: "_Shape", known: Mapping[Slot, str] | None) -> "_Shape":
        """Return a shape in which the texts known from the other key are literal."""
        if not known or not self._shared:
            return shape
        return _Shape.of(shape.prefix, shape.parts, known)

    def _converted(self, known: Mapping[Slot, str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for slot, text in known.items():
            convert = self._converts.get(slot)
            if convert is not None:
                try:
                    values[slot[0]] = convert(text)
                except (ValueError, KeyError):
                    continue
        return values


class _Shape(msgspec.Struct, frozen=True):
    """A template in pieces: fields of unknown length, and the chunks around them."""

    prefix: str
    parts: tuple[KeyPart, ...]
    first: _Chunk
    free: tuple[Slot, ...]
    chunks: tuple[_Chunk, ...]

    @classmethod
    def of(
        cls, prefix: str, parts: Sequence[KeyPart], known: Mapping[Slot, str] | None = None
    ) -> "_Shape":
        """Cut a template into pieces; the texts that are `known` are literal."""
        given = known or {}
        chunks: list[list[tuple[str | re.Pattern[str], Slot | None]]] = [[(prefix, None)]]
        free: list[Slot] = []
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

    def split(self, text: str) -> dict[Slot, str] | None:
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

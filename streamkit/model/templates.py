"""Key templates: text such as `ORDER#{order_id}` that builds a key from an entity's fields.

A template only builds keys; `key_reader` reads fields back. A template promises that
equal field values give equal keys, and different values give different keys (a value that contains
the literal which ends it is refused). Formats such as `{number:08d}`, `{day:%Y-%m-%d}` or the
descending `{number:desc08d}` sort as the values do. Mistakes in the text are found when it is
declared.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial
from string import Formatter
from typing import Any, Self
from uuid import UUID

import msgspec

from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration

_NUMBER_FORMAT = re.compile(r"(?P<descending>desc)?0?(?P<width>\d*)d")

# Texts of these types have a fixed length, so any literal may follow them.
_FIXED_LENGTH = (date, UUID)

# Sorts after every key: DynamoDB compares strings by their UTF-8 bytes.
LAST_CHARACTER = "\U0010ffff"


class Placeholder(msgspec.Struct, frozen=True):
    """A field in a template, its format, and the literal that follows it."""

    name: str
    spec: str
    literal: str

    @property
    def is_temporal(self) -> bool:
        """Return whether the format is one of dates."""
        return "%" in self.spec

    @property
    def is_numeric(self) -> bool:
        """Return whether the format is one of numbers."""
        return bool(self.spec) and not self.is_temporal

    @property
    def is_descending(self) -> bool:
        """Return whether greater numbers sort first."""
        return self.is_numeric and self.spec.startswith("desc")

    def render(self, value: object, where: str, *, is_last: bool = True) -> str:
        """Return the text of `value` in a key.

        Raises:
            ValueError: the value cannot be part of a key, or could be mistaken for another.
        """
        if is_last and type(value) is str and value and not self.spec:
            return value  # the commonest case
        if isinstance(value, Enum):
            value = value.value
        text = _RENDERERS[self._form](self, value)
        if text is None:
            kind = "None" if value is None else type(value).__name__
            shape = f" as {self.spec!r}" if self.spec else ""
            raise ValueError(f"{where}: {self.name} cannot be formatted{shape} ({kind})")
        if not text:
            raise ValueError(f"{where}: {self.name} is empty, and a part of a key cannot be")
        if is_last or self.is_temporal or type(value) in _FIXED_LENGTH:
            return text
        if self.literal in text + self.literal[:-1]:
            raise ValueError(
                f"{where}: {self.name} holds {self.literal!r}, which ends it in the key "
                f"template; another item could get the same key"
            )
        return text

    @property
    def _form(self) -> str:
        if not self.spec:
            return "plain"
        return "temporal" if self.is_temporal else "numeric"


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A parsed template: a literal prefix, then placeholders, each with the literal after it."""

    text: str
    prefix: str
    placeholders: tuple[Placeholder, ...]
    owner: str = field(default="key", compare=False)

    @classmethod
    def parse(cls, text: str, declaration: Declaration) -> Self:
        """Read a template.

        Raises:
            DeclarationError: the text is not a template; names the declaration.
        """
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise DeclarationError(f"{declaration}: key template {text!r}: {error}") from None
        prefix = ""
        placeholders: list[Placeholder] = []
        for literal, name, spec, conversion in pieces:
            if placeholders:
                last = placeholders[-1]
                placeholders[-1] = Placeholder(last.name, last.spec, last.literal + literal)
            else:
                prefix += literal
            if name is not None:
                problem = _placeholder_problem(name, spec or "", conversion)
                if problem:
                    raise DeclarationError(f"{declaration}: key template {text!r}: {problem}")
                placeholders.append(Placeholder(name, spec or "", ""))
        template = cls(text, prefix, tuple(placeholders), declaration.name)
        template._check(declaration)
        return template

    @property
    def order(self) -> tuple[str, ...]:
        """Return the fields' names in the order they appear, as often as they do."""
        return tuple(placeholder.name for placeholder in self.placeholders)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields' names in the order they appear, each once."""
        return tuple(dict.fromkeys(placeholder.name for placeholder in self.placeholders))

    @property
    def literal_length(self) -> int:
        """Return the number of literal characters, the measure of how specific it is."""
        return len(self.prefix) + sum(len(p.literal) for p in self.placeholders)

    @property
    def shape(self) -> tuple[str, ...]:
        """Return its literals: templates of one shape match the same keys."""
        return (self.prefix, *(placeholder.literal for placeholder in self.placeholders))

    @property
    def is_prefix_and_field(self) -> bool:
        """Return whether it is a literal and one field, the commonest form."""
        return len(self.placeholders) == 1 and not self.placeholders[0].literal

    def build(self, values: dict[str, Any] | object) -> str:
        """Return the key of these field values (a mapping, or an object with the fields).

        Raises:
            ValueError: a field is missing, empty, or would make the key ambiguous.
        """
        if len(self.placeholders) != 1:
            return self.build_prefix(values, len(self.placeholders))
        (only,) = self.placeholders
        name = only.name
        value = values.get(name) if isinstance(values, dict) else getattr(values, name)
        return f"{self.prefix}{only.render(value, self.owner)}{only.literal}"

    def build_prefix(self, values: dict[str, Any] | object, count: int) -> str:
        """Return the common prefix of keys whose first `count` placeholders have these values."""
        value_of = values.get if isinstance(values, dict) else partial(getattr, values)
        parts = [self.prefix]
        last = self.placeholders[-1] if self.placeholders else None
        for placeholder in self.placeholders[:count]:
            value = value_of(placeholder.name)
            is_last = placeholder is last
            parts.append(placeholder.render(value, self.owner, is_last=is_last))
            parts.append(placeholder.literal)
        return "".join(parts)

    def matches(self, key: str) -> bool:
        """Return whether `key` has this template's shape: its literals, and text between them."""
        if not self.placeholders:
            return key == self.prefix
        position = len(self.prefix)
        if not key.startswith(self.prefix):
            return False
        # Taking each literal at its first place is enough: an earlier end leaves more for the rest.
        for placeholder in self.placeholders[:-1]:
            found = key.find(placeholder.literal, position + 1)
            if found < 0:
                return False
            position = found + len(placeholder.literal)
        last = self.placeholders[-1].literal
        return len(key) > position + len(last) and key.endswith(last)

    def _check(self, declaration: Declaration) -> None:
        if not self.text:
            raise DeclarationError(f"{declaration}: a key template cannot be empty")
        for before, after in zip(self.placeholders, self.placeholders[1:], strict=False):
            if not before.literal:
                raise DeclarationError(
                    f"{declaration}: key template {self.text!r}: nothing separates "
                    f"{{{before.name}}} from {{{after.name}}}, so that two items' keys could "
                    f"be the same"
                )


def _placeholder_problem(name: str, spec: str, conversion: str | None) -> str | None:
    if not name.isidentifier():
        return f"{{{name}}} is not the name of a field"
    if conversion:
        return f"{{{name}!{conversion}}}: conversions are not supported"
    if "{" in spec or "}" in spec:
        return f"the format of {{{name}}} cannot hold a field"
    if not spec or "%" in spec:
        return None
    number = _NUMBER_FORMAT.fullmatch(spec)
    if number is None:
        return f"{{{name}:{spec}}}: a format is like %Y-%m-%d, 08d or desc08d"
    if number["descending"] and not int(number["width"] or 0):
        return f"{{{name}:{spec}}}: a descending number needs its width, such as desc08d"
    return None


def _render_plain(_: Placeholder, value: object) -> str | None:
    match value:
        case bool():
            text = None
        case str():
            text = str.__str__(value)
        case int() | UUID():
            text = str(value)
        case date():
            text = value.isoformat()
        case Decimal() if value.is_finite():
            # Equal numbers give equal keys: 1.50 is stored, and read back, as 1.5.
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            text = "0" if text == "-0" else text
        case _:
            text = None
    return text


def _render_temporal(placeholder: Placeholder, value: object) -> str | None:
    return value.strftime(placeholder.spec) if isinstance(value, date) else None


def _render_numeric(placeholder: Placeholder, value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if not math.isfinite(value) or value != int(value):
        return None
    number = _NUMBER_FORMAT.fullmatch(placeholder.spec)
    if number is None or not number["descending"]:
        return format(int(value), placeholder.spec)
    width = int(number["width"])
    descending = 10**width - 1 - int(value)
    if not 0 <= int(value) < 10**width:
        raise ValueError(f"{placeholder.name} does not fit in {width} descending digits")
    return format(descending, f"0{width}d")


_RENDERERS: dict[str, Callable[[Placeholder, object], str | None]] = {
    "plain": _render_plain,
    "temporal": _render_temporal,
    "numeric": _render_numeric,
}

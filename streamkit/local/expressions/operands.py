"""The operands of conditions and updates: a document path, a value placeholder, `size(...)`.

An operand knows how to read itself from an item and the request's values. It knows nothing of the
request it is used in, so that one parsed expression serves many.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from streamkit.local.expressions.paths import DocumentPath, child
from streamkit.local.values import AttributeValue, Item, value_size

Values: TypeAlias = Mapping[str, AttributeValue]


class Path:
    """A document path; reads as None where the item has nothing."""

    __slots__ = ("head", "missing", "steps", "tail")

    def __init__(self, steps: DocumentPath, missing: tuple[str, ...] = ()) -> None:
        self.steps = steps
        self.head = str(steps[0])
        self.tail = steps[1:]
        self.missing = missing

    def references(self) -> tuple[str, ...]:
        """Return the `#names` in the operand that the request does not define."""
        return self.missing

    def read(self, item: Item, _values: Values) -> AttributeValue | None:
        """Return the value the item has here."""
        value = item.get(self.head)
        for step in self.tail:
            if value is None:
                return None
            value = child(value, step)
        return value

    def type_name(self, _values: Values) -> str | None:
        """Unknown until there is an item."""
        return None


class Literal:
    """A `:value` of the request."""

    __slots__ = ("reference",)

    def __init__(self, reference: str) -> None:
        self.reference = reference

    def references(self) -> tuple[str, ...]:
        """Return the placeholder, which the request may or may not define."""
        return (self.reference,)

    def read(self, _item: Item, values: Values) -> AttributeValue | None:
        """Return the request's value."""
        return values[self.reference]

    def type_name(self, values: Values) -> str | None:
        """Return the type of the request's value."""
        return next(iter(values[self.reference]))


class Size:
    """`size(...)`: characters, bytes or members; None for a value that has no size."""

    __slots__ = ("arguments",)

    def __init__(self, arguments: "tuple[Operand, ...]") -> None:
        self.arguments = arguments

    def references(self) -> tuple[str, ...]:
        """Return the `#names` of its arguments that the request does not define."""
        return tuple(ref for argument in self.arguments for ref in argument.references())

    def read(self, item: Item, values: Values) -> AttributeValue | None:
        """Return the size as a number value."""
        value = self.arguments[0].read(item, values)
        if value is None:
            return None
        ((kind, raw),) = value.items()
        measure = _MEASURES.get(kind)
        return None if measure is None else {"N": str(measure(raw))}

    def type_name(self, _values: Values) -> str | None:
        """Return the type of a number, which a size is."""
        return "N"

    def complaint(self, values: Values) -> str | None:
        """Return what is wrong with its arguments, if anything."""
        for argument in self.arguments:
            nested = argument.complaint(values) if isinstance(argument, Size) else None
            if nested:
                return nested
        if len(self.arguments) != 1:
            return wrong_operand_count("size", len(self.arguments))
        type_name = self.arguments[0].type_name(values)
        if type_name is not None and type_name not in _MEASURES:
            return wrong_operand_type("size", type_name)
        return None


Operand: TypeAlias = Path | Literal | Size


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _bytes_length(encoded: str) -> int:
    return value_size({"B": encoded})


_MEASURES: dict[str, Callable[[Any], int]] = {
    "S": _utf16_length,
    "B": _bytes_length,
    "SS": len,
    "NS": len,
    "BS": len,
    "M": len,
    "L": len,
}


def wrong_operand_count(function: str, count: int) -> str:
    """Return the service's complaint about the number of arguments."""
    return (
        "Incorrect number of operands for operator or function; "
        f"operator or function: {function}, number of operands: {count}"
    )


def wrong_operand_type(function: str, type_name: str) -> str:
    """Return the complaint about the type of an argument that is known before any item."""
    return (
        "Incorrect operand type for operator or function; "
        f"operator or function: {function}, operand type: {type_name}"
    )


def needs_path(function: str) -> str:
    """Return the service's complaint about a function that wants a document path."""
    return f"Operator or function requires a document path; operator or function: {function}"

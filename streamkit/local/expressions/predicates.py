"""The tree of a condition: comparisons, functions, and AND, OR and NOT over them.

Each node answers `matches(item, values)`. The leaves also `check` themselves against the values of
a request before any item is looked at, in the order the service reports: undefined placeholders,
number of operands, operands that must be distinct, operand types. A comparison of values of
different types is simply false.
"""

from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable
from typing import TypeAlias

from streamkit.local.expressions.operands import (
    Literal,
    Operand,
    Path,
    Size,
    Values,
    needs_path,
    wrong_operand_count,
    wrong_operand_type,
)
from streamkit.local.expressions.paths import path_text
from streamkit.local.expressions.placeholders import undefined
from streamkit.local.values import AttributeValue, Item, compare, equal

_ORDERED = frozenset({"S", "N", "B"})
_PREFIXED = frozenset({"S", "B"})
# In the order the service lists them.
_TYPE_NAMES = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
_ANY_TYPE = "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}"
_ORDERINGS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


class Leaf(ABC):
    """A condition without further conditions in it.

    Args:
        name: the operator or function, as error messages call it.
        operands: what it is applied to.
        count: how many operands it must have, None for any number.
    """

    distinct = False

    def __init__(
        self, name: str, operands: tuple[Operand, ...], *, count: int | None = None
    ) -> None:
        self.name = name
        self.operands = operands
        self._references = tuple(ref for operand in operands for ref in operand.references())
        self._sizes = tuple(operand for operand in operands if isinstance(operand, Size))
        self._fault: str | None = None
        if count is not None and len(operands) != count:
            self._fault = wrong_operand_count(name, len(operands))
        elif self.distinct:
            self._fault = self._not_distinct()

    def complaint(self, values: Values) -> str | None:
        """Return what is wrong with this condition in a request with these values, if anything."""
        for reference in self._references:
            if reference not in values:
                return undefined(reference)
        for size in self._sizes:
            nested = size.complaint(values)
            if nested:
                return nested
        return self._fault or self.type_complaint(values)

    def type_complaint(self, values: Values) -> str | None:  # noqa: ARG002 - for overriding
        """Return what is wrong with the types that are known before any item is read."""
        return None

    @abstractmethod
    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the item meets the condition."""

    def _not_distinct(self) -> str | None:
        first, *others = self.operands
        if isinstance(first, Path) and any(
            isinstance(other, Path) and other.steps == first.steps for other in others
        ):
            return (
                "The first operand must be distinct from the remaining operands for this operator "
                f"or function; operator: {self.name}, first operand: {path_text(first.steps)}"
            )
        return None

    def _only_types(self, allowed: frozenset[str], values: Values) -> str | None:
        for operand in self.operands:
            type_name = operand.type_name(values)
            if type_name is not None and type_name not in allowed:
                return wrong_operand_type(self.name, type_name)
        return None


class Equality(Leaf):
    """`=` and `<>`; a value that is absent equals nothing."""

    distinct = True

    def __init__(self, name: str, left: Operand, right: Operand) -> None:
        super().__init__(name, (left, right))
        self._left = left
        self._right = right
        self._when_equal = name == "="

    def matches(self, item: Item, values: Values) -> bool:
        """Compare by value."""
        left = self._left.read(item, values)
        right = self._right.read(item, values)
        same = left is not None and right is not None and equal(left, right)
        return same is self._when_equal


class Ordering(Leaf):
    """`<`, `<=`, `>` and `>=`."""

    distinct = True

    def __init__(self, name: str, left: Operand, right: Operand) -> None:
        super().__init__(name, (left, right))
        self._left = left
        self._right = right
        self._accepts = _ORDERINGS[name]

    def type_complaint(self, values: Values) -> str | None:
        """Only strings, numbers and binaries have an order."""
        return self._only_types(_ORDERED, values)

    def matches(self, item: Item, values: Values) -> bool:
        """Compare by order."""
        left = self._left.read(item, values)
        right = self._right.read(item, values)
        if left is None or right is None:
            return False
        order = compare(left, right)
        return order is not None and self._accepts(order)


class Between(Leaf):
    """`x BETWEEN low AND high`, both included."""

    distinct = True

    def __init__(self, subject: Operand, low: Operand, high: Operand) -> None:
        super().__init__("BETWEEN", (subject, low, high))

    def type_complaint(self, values: Values) -> str | None:
        """Refuse bounds that have no order, or are of two types, or not in order."""
        wrong = self._only_types(_ORDERED, values)
        _, low, high = self.operands
        if wrong is None and isinstance(low, Literal) and isinstance(high, Literal):
            return bounds_complaint(values[low.reference], values[high.reference])
        return wrong

    def matches(self, item: Item, values: Values) -> bool:
        """Compare with both bounds."""
        subject, low, high = (operand.read(item, values) for operand in self.operands)
        if subject is None or low is None or high is None:
            return False
        above = compare(subject, low)
        below = compare(subject, high)
        return above is not None and below is not None and above >= 0 and below <= 0


def bounds_complaint(lower: AttributeValue, upper: AttributeValue) -> str | None:
    """Return what is wrong with the bounds of a BETWEEN, if anything."""
    order = compare(lower, upper)
    if order is None:
        rule = "same data type for lower and upper bounds"
    elif order > 0:
        rule = "upper bound to be greater than or equal to lower bound"
    else:
        return None
    return (
        f"The BETWEEN operator requires {rule}; "
        f"lower bound operand: AttributeValue: {_shown(lower)}, "
        f"upper bound operand: AttributeValue: {_shown(upper)}"
    )


def _shown(value: AttributeValue) -> str:
    ((kind, raw),) = value.items()
    return f"{{{kind}:{raw}}}"


class In(Leaf):
    """`x IN (a, b, ...)`."""

    distinct = True

    def __init__(self, subject: Operand, options: tuple[Operand, ...]) -> None:
        super().__init__("IN", (subject, *options))
        self._subject = subject
        self._options = options

    def matches(self, item: Item, values: Values) -> bool:
        """Look for an equal option."""
        subject = self._subject.read(item, values)
        if subject is None:
            return False
        found = (option.read(item, values) for option in self._options)
        return any(value is not None and equal(subject, value) for value in found)


class Exists(Leaf):
    """`attribute_exists(path)` and `attribute_not_exists(path)`."""

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=1)
        self._when_there = name == "attribute_exists"

    def type_complaint(self, values: Values) -> str | None:  # noqa: ARG002 - of the base class
        """Refuse a value, because it always exists; a path may not."""
        return None if isinstance(self.operands[0], Path) else needs_path(self.name)

    def matches(self, item: Item, values: Values) -> bool:
        """Look whether the item has the path."""
        return (self.operands[0].read(item, values) is not None) is self._when_there


class AttributeType(Leaf):
    """`attribute_type(path, :type)`."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def type_complaint(self, values: Values) -> str | None:
        """Refuse a second operand that is not the name of a type."""
        type_name = self.operands[1].type_name(values)
        wanted = self.operands[1].read({}, values) if type_name == "S" else None
        if wanted is None:
            return wrong_operand_type(self.name, type_name or _ANY_TYPE)
        if wanted["S"] not in _TYPE_NAMES:
            return (
                f"Invalid attribute type name found; type: {wanted['S']}, "
                f"valid types: {{{','.join(_TYPE_NAMES)}}}"
            )
        return None

    def matches(self, item: Item, values: Values) -> bool:
        """Look at the type of the item's value."""
        value = self.operands[0].read(item, values)
        wanted = self.operands[1].read(item, values)
        return value is not None and wanted is not None and wanted["S"] in value


class BeginsWith(Leaf):
    """`begins_with(path, :prefix)`, for strings and for binaries."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def type_complaint(self, values: Values) -> str | None:
        """Only strings and binaries have a beginning."""
        return self._only_types(_PREFIXED, values)

    def matches(self, item: Item, values: Values) -> bool:
        """Compare the beginning."""
        value, prefix = (operand.read(item, values) for operand in self.operands)
        return value is not None and prefix is not None and begins_with(value, prefix)


def begins_with(value: AttributeValue, prefix: AttributeValue) -> bool:
    """Return whether a string or binary begins with another of its type."""
    if "S" in value and "S" in prefix:
        return bool(value["S"].startswith(prefix["S"]))
    if "B" in value and "B" in prefix:
        return b64decode(value["B"]).startswith(b64decode(prefix["B"]))
    return False


class Contains(Leaf):
    """`contains(path, :part)`: a part of a string or binary, a member of a set or list."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def matches(self, item: Item, values: Values) -> bool:
        """Look for the part."""
        value, part = (operand.read(item, values) for operand in self.operands)
        return value is not None and part is not None and contains(value, part)


def contains(value: AttributeValue, part: AttributeValue) -> bool:
    """Return whether a value holds another: as a substring, as a member of a set or of a list."""
    ((kind, whole),) = value.items()
    ((part_kind, wanted),) = part.items()
    if kind == "L":
        return any(equal(element, part) for element in whole)
    if kind == "B" and part_kind == "B":
        return b64decode(wanted) in b64decode(whole)
    if kind in (part_kind + "S", "S") and part_kind in _ORDERED:
        return (kind != "S" or part_kind == "S") and wanted in whole
    return False


class Junction:
    """AND or OR over two or more conditions."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: "tuple[Node, ...]") -> None:
        self.name = name
        self.parts = parts

    def matches(self, item: Item, values: Values) -> bool:
        """Stop at the first part that decides."""
        decisive = self.name == "OR"
        for part in self.parts:
            if part.matches(item, values) is decisive:
                return decisive
        return not decisive


class Not:
    """NOT of a condition."""

    __slots__ = ("part",)

    def __init__(self, part: "Node") -> None:
        self.part = part

    def matches(self, item: Item, values: Values) -> bool:
        """Return the opposite of the part."""
        return not self.part.matches(item, values)


Node: TypeAlias = Leaf | Junction | Not

FUNCTIONS: dict[str, Callable[[str, tuple[Operand, ...]], Leaf]] = {
    "attribute_exists": Exists,
    "attribute_not_exists": Exists,
    "attribute_type": AttributeType,
    "begins_with": BeginsWith,
    "contains": Contains,
}

"""The tree of a condition: comparisons, functions, and AND, OR and NOT over them.

Each node answers `matches(item, values)`. The leaves also `check` themselves against the values of
a request before any item is looked at, in the order the service reports: undefined placeholders,
number of operands, operands that must be distinct, operand types. A comparison of values of
different types is simply false.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from streamkit.local.expressions.operands import (
    Literal,
    Operand,
    Path,
    Size,
    Values,
    wrong_operand_count,
    wrong_operand_type,
)
from streamkit.local.expressions.paths import path_text
from streamkit.local.expressions.placeholders import undefined
from streamkit.local.values import AttributeValue, Item, compare, equal

ORDERED = frozenset({"S", "N", "B"})
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
        """Return whether the values are equal, or for `<>` whether they are not."""
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
        return self._only_types(ORDERED, values)

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the values stand in this order; values of two types never do."""
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
        wrong = self._only_types(ORDERED, values)
        _, low, high = self.operands
        if wrong is None and isinstance(low, Literal) and isinstance(high, Literal):
            return bounds_complaint(values[low.reference], values[high.reference])
        return wrong

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the value is between the bounds, or equals one."""
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
        """Return whether the value equals one of the options."""
        subject = self._subject.read(item, values)
        if subject is None:
            return False
        found = (option.read(item, values) for option in self._options)
        return any(value is not None and equal(subject, value) for value in found)


class Junction:
    """AND or OR over two or more conditions."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: "tuple[Node, ...]") -> None:
        self.name = name
        self.parts = parts

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the parts hold; the first part that decides ends the look."""
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

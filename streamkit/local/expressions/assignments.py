"""The right-hand sides of SET: values computed from the item as it was before the update.

A value expression `compute`s itself from an item and the request's values, or refuses with the
service's message when the item lacks an attribute or an operand has the wrong type.
"""

from typing import TypeAlias

from streamkit.local.arithmetic import add_numbers, subtract_numbers
from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions.operands import Literal, Path, Values
from streamkit.local.values import AttributeValue, Item


def wrong_type() -> ApiError:
    """Return the refusal of an operand whose type became known with the item."""
    return validation("An operand in the update expression has an incorrect data type")


class ReadPath:
    """The value at a document path, which must be there."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def compute(self, item: Item, values: Values) -> AttributeValue:
        """Return the value at the path."""
        value = self.path.read(item, values)
        if value is None:
            raise validation(
                "The provided expression refers to an attribute that does not exist in the item"
            )
        return value


class Given:
    """A `:value` of the request."""

    __slots__ = ("literal",)

    def __init__(self, literal: Literal) -> None:
        self.literal = literal

    def compute(self, _item: Item, values: Values) -> AttributeValue:
        """Return the request's value."""
        return values[self.literal.reference]


class PlusMinus:
    """`left + right` or `left - right`."""

    __slots__ = ("_calculate", "_left", "_right")

    def __init__(self, operator: str, left: "ValueExpression", right: "ValueExpression") -> None:
        self._calculate = add_numbers if operator == "+" else subtract_numbers
        self._left = left
        self._right = right

    def compute(self, item: Item, values: Values) -> AttributeValue:
        """Return the sum or difference, exact to 38 digits."""
        left = self._left.compute(item, values).get("N")
        right = self._right.compute(item, values).get("N")
        if left is None or right is None:
            raise wrong_type()
        return {"N": self._calculate(left, right)}


class IfNotExists:
    """`if_not_exists(path, value)`."""

    __slots__ = ("_otherwise", "_path")

    def __init__(self, path: Path, otherwise: "ValueExpression") -> None:
        self._path = path
        self._otherwise = otherwise

    def compute(self, item: Item, values: Values) -> AttributeValue:
        """Return the item's value, or else the other."""
        value = self._path.read(item, values)
        return self._otherwise.compute(item, values) if value is None else value


class ListAppend:
    """`list_append(first, second)`."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: "ValueExpression", second: "ValueExpression") -> None:
        self._first = first
        self._second = second

    def compute(self, item: Item, values: Values) -> AttributeValue:
        """Join the two lists in the order given."""
        first = self._first.compute(item, values).get("L")
        second = self._second.compute(item, values).get("L")
        if first is None or second is None:
            raise wrong_type()
        return {"L": [*first, *second]}


class Unusable:
    """Stands for a call that was refused while parsing, until the refusal is raised."""

    def compute(self, _item: Item, _values: Values) -> AttributeValue:
        """Never reached, as no update with such a call is ever built."""
        raise wrong_type()


ValueExpression: TypeAlias = ReadPath | Given | PlusMinus | IfNotExists | ListAppend | Unusable

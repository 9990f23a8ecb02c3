"""The comparisons of the old parameters: an operator with its operands, as a condition."""

from collections.abc import Callable, Sequence
from typing import Any

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.expressions.functions import BeginsWith, Contains, Exists
from streamkit.local.expressions.keys import Comparison
from streamkit.local.expressions.operands import Literal, Path
from streamkit.local.expressions.predicates import (
    Between,
    Equality,
    In,
    Junction,
    Node,
    Not,
    Ordering,
)
from streamkit.local.specification import INVALID
from streamkit.local.values import AttributeValue, canonical, compare

_OPERATOR_NAMES = "IN NULL BETWEEN LT NOT_CONTAINS EQ GT NOT_NULL NE LE BEGINS_WITH GE CONTAINS"
# The order in which the service lists them.
_OPERATORS = tuple(_OPERATOR_NAMES.split())
_SCALARS = frozenset({"S", "N", "B"})
# The types that an operator takes; an operator that is not listed takes all types.
_TAKEN = {
    "LT": _SCALARS,
    "LE": _SCALARS,
    "GT": _SCALARS,
    "GE": _SCALARS,
    "IN": _SCALARS,
    "BETWEEN": _SCALARS,
    "BEGINS_WITH": frozenset({"S", "B"}),
    "CONTAINS": frozenset({"S", "N", "B", "BOOL", "NULL"}),
    "NOT_CONTAINS": frozenset({"S", "N", "B", "BOOL", "NULL"}),
}


def comparison(operator: str, operands: Sequence[Any], where: str) -> Comparison:
    """Return a comparison, after all checks; `where` is the operator's place, for messages."""
    if operator not in _OPERATORS:
        raise not_in_enum(operator, where, _OPERATORS)
    if not isinstance(operands, list):
        raise serialization("Unexpected field type")
    values = [canonical(value) for value in operands]
    least, most = {"NULL": (0, 0), "NOT_NULL": (0, 0), "BETWEEN": (2, 2), "IN": (1, 100)}.get(
        operator, (1, 1)
    )
    if not least <= len(values) <= most:
        raise validation(
            f"{INVALID}Invalid number of argument(s) for the {operator} ComparisonOperator"
        )
    taken = _TAKEN.get(operator)
    kinds = [next(iter(value)) for value in values]
    for kind in kinds:
        if taken is not None and kind not in taken:
            raise validation(
                f"{INVALID}ComparisonOperator {operator} is not valid for {kind} "
                "AttributeValue type"
            )
    if len(set(kinds)) > 1:
        raise validation(f"{INVALID}AttributeValues inside AttributeValueList must be of same type")
    if operator == "BETWEEN" and (compare(values[0], values[1]) or 0) > 0:
        raise validation(
            "The BETWEEN condition was provided a range where the lower bound is greater than "
            "the upper bound"
        )
    return operator, values


def node(
    name: str,
    operator: str,
    operands: Sequence[AttributeValue],
    values: dict[str, AttributeValue],
) -> Node:
    """Return the condition of one attribute's comparison, and add its operands to `values`."""
    path = Path((name,))
    literals = []
    for number, value in enumerate(operands):
        literal = Literal(f":{name}:{number}")
        values[literal.reference] = value
        literals.append(literal)
    return _NODES[operator](path, tuple(literals))


def _not_contains(path: Path, literals: tuple[Literal, ...]) -> Node:
    # Unlike NE, NOT_CONTAINS does not hold for an attribute that is absent.
    absent = Not(Contains("contains", (path, *literals)))
    return Junction("AND", (Exists("attribute_exists", (path,)), absent))


_NODES: dict[str, Callable[[Path, tuple[Literal, ...]], Node]] = {
    "EQ": lambda path, literals: Equality("=", path, literals[0]),
    "NE": lambda path, literals: Equality("<>", path, literals[0]),
    "LT": lambda path, literals: Ordering("<", path, literals[0]),
    "LE": lambda path, literals: Ordering("<=", path, literals[0]),
    "GT": lambda path, literals: Ordering(">", path, literals[0]),
    "GE": lambda path, literals: Ordering(">=", path, literals[0]),
    "BETWEEN": lambda path, literals: Between(path, literals[0], literals[1]),
    "IN": In,
    "BEGINS_WITH": lambda path, literals: BeginsWith("begins_with", (path, *literals)),
    "CONTAINS": lambda path, literals: Contains("contains", (path, *literals)),
    "NOT_CONTAINS": _not_contains,
    "NULL": lambda path, _literals: Exists("attribute_not_exists", (path,)),
    "NOT_NULL": lambda path, _literals: Exists("attribute_exists", (path,)),
}


def not_in_enum(value: object, where: str, allowed: Sequence[str]) -> ApiError:
    """Return the refusal of a value that is none of an enumeration."""
    return validation(
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy "
        f"constraint: Member must satisfy enum value set: [{', '.join(allowed)}]"
    )

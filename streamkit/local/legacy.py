"""The parameters that expressions replaced: Expected, AttributeUpdates, KeyConditions and others.

They become the same `Condition`, `Update`, `KeyCondition` and `Projection` as expressions do; only
validation and messages differ. A request uses either the old parameters or expressions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.expressions.assignments import Given
from streamkit.local.expressions.changes import ChangeKind, PathChange, Update
from streamkit.local.expressions.conditions import Condition
from streamkit.local.expressions.keys import Comparison, KeyCondition, key_condition
from streamkit.local.expressions.operands import Literal, Path
from streamkit.local.expressions.predicates import (
    BeginsWith,
    Between,
    Contains,
    Equality,
    Exists,
    In,
    Junction,
    Node,
    Not,
    Ordering,
)
from streamkit.local.expressions.projections import Projection
from streamkit.local.values import AttributeValue, canonical, check_names, compare

_OPERATOR_NAMES = "IN NULL BETWEEN LT NOT_CONTAINS EQ GT NOT_NULL NE LE BEGINS_WITH GE CONTAINS"
_INVALID = "One or more parameter values were invalid: "
# The order in which the service lists them.
_OPERATORS = tuple(_OPERATOR_NAMES.split())
_ACTIONS = ("ADD", "DELETE", "PUT")
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
_SETS = frozenset({"SS", "NS", "BS"})
_ADDED = frozenset({"N", "L", *_SETS})


def reject_mixture(
    payload: Mapping[str, Any], *, legacy: Iterable[str], expressions: Iterable[str]
) -> None:
    """Refuse a request that uses old parameters and expressions together.

    Args:
        payload: the request.
        legacy: the old parameters of the operation, in the order in which the service names them.
        expressions: its expression parameters, in the same order.
    """
    old = [name for name in legacy if payload.get(name) is not None]
    if not old:
        return
    new = [name for name in expressions if payload.get(name) is not None]
    if new:
        raise validation(
            "Can not use both expression and non-expression parameters in the same request: "
            f"Non-expression parameters: {{{', '.join(old)}}} "
            f"Expression parameters: {{{', '.join(new)}}}"
        )


def expected_condition(
    expected: Mapping[str, Any] | None, operator: str | None = None
) -> Condition | None:
    """Return the condition of an Expected parameter; None when it asks for nothing.

    Args:
        expected: by attribute, either Exists and Value or a comparison.
        operator: ConditionalOperator, AND or OR.
    """
    comparisons = {
        name: _expectation(name, _structure(entry)) for name, entry in (expected or {}).items()
    }
    return _condition(comparisons, operator)


def filter_condition(
    filters: Mapping[str, Any] | None,
    operator: str | None = None,
    *,
    kind: str = "ScanFilter",
    keys: Iterable[str] = (),
) -> Condition | None:
    """Return the condition of a ScanFilter or QueryFilter; None when it asks for nothing.

    Args:
        filters: a comparison by attribute.
        operator: ConditionalOperator, AND or OR.
        kind: the parameter, for messages.
        keys: attributes that a QueryFilter must leave to the key condition.
    """
    comparisons = _comparisons(filters or {}, kind)
    for name in keys:
        if name in comparisons:
            raise validation(
                f"{kind} can only contain non-primary key attributes: Primary key attribute: {name}"
            )
    return _condition(comparisons, operator)


def key_conditions(
    conditions: Mapping[str, Any],
    hash_names: Sequence[str],
    range_names: Sequence[str],
    *,
    types: Mapping[str, str] | None = None,
) -> KeyCondition:
    """Return the condition of a KeyConditions parameter; arguments as in `parse_key_condition`."""
    comparisons = _comparisons(conditions, "KeyConditions")
    return key_condition(comparisons, hash_names, range_names, types=types)


def attributes_to_get(names: Sequence[str]) -> Projection:
    """Return the projection of an AttributesToGet parameter."""
    if not names:
        raise validation(
            "1 validation error detected: Value '[]' at 'attributesToGet' failed to satisfy "
            "constraint: Member must have length greater than or equal to 1"
        )
    if not all(isinstance(name, str) for name in names):
        raise serialization("Unexpected value type in payload")
    check_names(names)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise validation(f"{_INVALID}Duplicate value in attribute name: {name}")
        seen.add(name)
    return Projection((name,) for name in names)


def attribute_updates(updates: Mapping[str, Any]) -> Update:
    """Return the update of an AttributeUpdates parameter."""
    check_names(updates)
    changes = []
    values: dict[str, AttributeValue] = {}
    for name, entry in updates.items():
        structure = _structure(entry)
        action = structure.get("Action") or "PUT"
        if action not in _ACTIONS:
            raise _not_in_enum(action, f"attributeUpdates.{name}.member.action", _ACTIONS)
        given = structure.get("Value")
        if given is None:
            if action != "DELETE":
                raise validation(
                    f"{_INVALID}Only DELETE action is allowed when no attribute value is specified"
                )
            changes.append(PathChange(ChangeKind.REMOVE, (name,), None))
            continue
        value = canonical(given)
        kind = next(iter(value))
        if action == "DELETE" and kind not in _SETS:
            raise validation(
                f"{_INVALID}DELETE action with value is not supported for the type {kind}"
            )
        if action == "ADD" and kind not in _ADDED:
            raise validation(f"{_INVALID}ADD action is not supported for the type {kind}")
        reference = f":{name}"
        values[reference] = value
        clause = ChangeKind.SET if action == "PUT" else ChangeKind[action]
        changes.append(PathChange(clause, (name,), Given(Literal(reference))))
    return Update(changes, values, mismatch="Type mismatch for attribute to update")


def _comparisons(conditions: Mapping[str, Any], kind: str) -> dict[str, Comparison]:
    place = kind[0].lower() + kind[1:]
    comparisons = {}
    for name, entry in conditions.items():
        structure = _structure(entry)
        operator = structure.get("ComparisonOperator")
        where = f"{place}.{name}.member.comparisonOperator"
        if operator is None:
            raise validation(
                f"1 validation error detected: Value null at '{where}' failed to satisfy "
                "constraint: Member must not be null"
            )
        operands = structure.get("AttributeValueList") or []
        comparisons[name] = _comparison(operator, operands, where)
    return comparisons


def _expectation(name: str, entry: Mapping[str, Any]) -> Comparison:
    operator = entry.get("ComparisonOperator")
    value, exists = entry.get("Value"), entry.get("Exists")
    listed = entry.get("AttributeValueList")
    where = f"expected.{name}.member.comparisonOperator"
    if listed is not None and value is not None:
        raise _misfit("Value and AttributeValueList cannot be used together", name)
    if operator is not None:
        if exists is not None:
            raise _misfit("Exists and ComparisonOperator cannot be used together", name)
        operands = listed if value is None else [value]
        return _comparison(operator, operands or [], where)
    if listed is not None:
        raise _misfit("AttributeValueList can only be used with a ComparisonOperator", name)
    if exists is False:
        if value is not None:
            raise _misfit("Value cannot be used when Exists is false", name)
        return "NULL", ()
    if value is None:
        shown = "null" if exists is None else "true"
        raise _misfit(f"Value must be provided when Exists is {shown}", name)
    return "EQ", (canonical(value),)


def _comparison(operator: str, operands: Sequence[Any], where: str) -> Comparison:
    if operator not in _OPERATORS:
        raise _not_in_enum(operator, where, _OPERATORS)
    if not isinstance(operands, list):
        raise serialization("Unexpected field type")
    values = [canonical(value) for value in operands]
    least, most = {"NULL": (0, 0), "NOT_NULL": (0, 0), "BETWEEN": (2, 2), "IN": (1, 100)}.get(
        operator, (1, 1)
    )
    if not least <= len(values) <= most:
        raise validation(
            f"{_INVALID}Invalid number of argument(s) for the {operator} ComparisonOperator"
        )
    taken = _TAKEN.get(operator)
    kinds = [next(iter(value)) for value in values]
    for kind in kinds:
        if taken is not None and kind not in taken:
            raise validation(
                f"{_INVALID}ComparisonOperator {operator} is not valid for {kind} "
                "AttributeValue type"
            )
    if len(set(kinds)) > 1:
        raise validation(
            f"{_INVALID}AttributeValues inside AttributeValueList must be of same type"
        )
    if operator == "BETWEEN" and (compare(values[0], values[1]) or 0) > 0:
        raise validation(
            "The BETWEEN condition was provided a range where the lower bound is greater than "
            "the upper bound"
        )
    return operator, values


def _condition(comparisons: Mapping[str, Comparison], operator: str | None) -> Condition | None:
    if operator is not None:
        if operator not in ("AND", "OR"):
            raise _not_in_enum(operator, "conditionalOperator", ("OR", "AND"))
        if not comparisons:
            raise validation("ConditionalOperator cannot be used without Filter or Expected")
        if len(comparisons) == 1:
            raise validation(
                "ConditionalOperator can only be used when Filter or Expected has two or more "
                "elements"
            )
    if not comparisons:
        return None
    check_names(comparisons)
    values: dict[str, AttributeValue] = {}
    nodes = tuple(_node(name, *comparison, values) for name, comparison in comparisons.items())
    paths = tuple((name,) for name in comparisons)
    return Condition(Junction(operator or "AND", nodes), values, paths)


def _node(
    name: str,
    operator: str,
    operands: Sequence[AttributeValue],
    values: dict[str, AttributeValue],
) -> Node:
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


def _structure(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise serialization("Unexpected value type in payload")
    return entry


def _misfit(rule: str, attribute: str) -> ApiError:
    return validation(f"{_INVALID}{rule} for Attribute: {attribute}")


def _not_in_enum(value: object, where: str, allowed: Sequence[str]) -> ApiError:
    return validation(
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy "
        f"constraint: Member must satisfy enum value set: [{', '.join(allowed)}]"
    )

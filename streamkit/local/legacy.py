"""The parameters that expressions replaced: Expected, AttributeUpdates, KeyConditions and the like.

They become the same `Condition`, `Update`, `KeyCondition` and `Projection` as expressions do; only
validation and messages differ. A request uses either the old parameters or expressions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.expressions.assignments import Given
from streamkit.local.expressions.changes import ChangeKind, PathChange, Update
from streamkit.local.expressions.conditions import Condition
from streamkit.local.expressions.keys import Comparison, KeyCondition, key_condition
from streamkit.local.expressions.operands import Literal
from streamkit.local.expressions.predicates import Junction
from streamkit.local.expressions.projections import Projection
from streamkit.local.legacy_comparisons import comparison, node, not_in_enum
from streamkit.local.specification import INVALID
from streamkit.local.values import AttributeValue, canonical, check_names

_ACTIONS = ("ADD", "DELETE", "PUT")
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
            raise validation(f"{INVALID}Duplicate value in attribute name: {name}")
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
            raise not_in_enum(action, f"attributeUpdates.{name}.member.action", _ACTIONS)
        given = structure.get("Value")
        if given is None:
            if action != "DELETE":
                raise validation(
                    f"{INVALID}Only DELETE action is allowed when no attribute value is specified"
                )
            changes.append(PathChange(ChangeKind.REMOVE, (name,), None))
            continue
        value = canonical(given)
        kind = next(iter(value))
        if action == "DELETE" and kind not in _SETS:
            raise validation(
                f"{INVALID}DELETE action with value is not supported for the type {kind}"
            )
        if action == "ADD" and kind not in _ADDED:
            raise validation(f"{INVALID}ADD action is not supported for the type {kind}")
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
        comparisons[name] = comparison(operator, operands, where)
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
        return comparison(operator, operands or [], where)
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


def _condition(comparisons: Mapping[str, Comparison], operator: str | None) -> Condition | None:
    if operator is not None:
        if operator not in ("AND", "OR"):
            raise not_in_enum(operator, "conditionalOperator", ("OR", "AND"))
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
    nodes = tuple(node(name, *comparison, values) for name, comparison in comparisons.items())
    paths = tuple((name,) for name in comparisons)
    return Condition(Junction(operator or "AND", nodes), values, paths)


def _structure(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise serialization("Unexpected value type in payload")
    return entry


def _misfit(rule: str, attribute: str) -> ApiError:
    return validation(f"{INVALID}{rule} for Attribute: {attribute}")

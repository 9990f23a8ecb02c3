"""Conditions on items: boto3's `Attr` builder, plus `absent` and `present`.

`Attr` names *attributes of the table* (an entity's alias where it has one), not Python fields. This
is the only module that knows boto3's classes; the rest asks `compile_condition` for an expression.
"""

from enum import Enum
from typing import Any

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder

from streamkit.codec import encode

__all__ = ["Attr", "Condition", "Existence", "absent", "all_of", "compile_condition", "present"]


class Existence(Enum):
    """Whether the item must be there; the key attribute's name is filled in at commit."""

    ABSENT = "absent"
    PRESENT = "present"


absent = Existence.ABSENT
present = Existence.PRESENT

Condition = ConditionBase | Existence


def _concrete(condition: Condition, pk_name: str) -> ConditionBase:
    if condition is Existence.ABSENT:
        return Attr(pk_name).not_exists()
    if condition is Existence.PRESENT:
        return Attr(pk_name).exists()
    return condition


def all_of(conditions: list[Condition], pk_name: str) -> ConditionBase:
    """Join conditions with AND; `pk_name` is what `absent` and `present` look at."""
    joined = _concrete(conditions[0], pk_name)
    for condition in conditions[1:]:
        joined = joined & _concrete(condition, pk_name)
    return joined


def compile_condition(condition: ConditionBase) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return (expression, attribute names, attribute values in wire form).

    Raises:
        ValueError: a value is of a type that DynamoDB cannot store.
    """
    built = ConditionExpressionBuilder().build_expression(condition)
    values = {name: encode(value) for name, value in built.attribute_value_placeholders.items()}
    return built.condition_expression, built.attribute_name_placeholders, values

"""Key conditions: one value of the partition key and, perhaps, a range of the sort key.

Both keys of a global index may have several attributes. Then the query gives a value for each of
the partition key's, and for those of the sort key that stand before the one with a range.

`KeyCondition` gives the range twice: as a predicate, and as bounds in the order of `sort_token`,
so that a sorted partition can be searched by bisection. `key_condition` builds it from comparisons
by attribute; both the expression and the older KeyConditions parameter come down to that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from streamkit.local.errors import validation
from streamkit.local.expressions.conditions import bound_tree
from streamkit.local.expressions.functions import BeginsWith
from streamkit.local.expressions.operands import Literal, Operand, Path, Size, Values
from streamkit.local.expressions.placeholders import Placeholders
from streamkit.local.expressions.predicates import Between, Equality, Junction, Leaf, Node, Ordering
from streamkit.local.values import AttributeValue, SortToken, sort_token

_KIND = "KeyConditionExpression"
_COMPARISONS = {"=": "EQ", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE"}
_MIRRORED = {"=": "EQ", "<": "GT", "<=": "GE", ">": "LT", ">=": "LE"}
_INDEXABLE = frozenset({"EQ", "LT", "LE", "GT", "GE", "BETWEEN", "BEGINS_WITH"})
_INVALID = "One or more parameter values were invalid: "
_CONDITION = "Invalid condition in KeyConditionExpression: "

Comparison: TypeAlias = tuple[str, Sequence[AttributeValue]]
"""An operator by its older name (EQ, LT, LE, GT, GE, BETWEEN, BEGINS_WITH) and its operands."""


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """What a query asks of the keys.

    Attributes:
        hash_values: the value of each attribute of the partition key.
        before: the tokens of the sort key's attributes before the one that has the range.
        lower: the least token that the sort key may have, None when it may be anything.
        lower_inclusive: whether `lower` itself is in the range.
        upper: the greatest token, None when there is no end.
        upper_inclusive: whether `upper` itself is in the range.
    """

    hash_values: tuple[AttributeValue, ...]
    before: tuple[SortToken, ...] = ()
    lower: SortToken | None = None
    lower_inclusive: bool = True
    upper: SortToken | None = None
    upper_inclusive: bool = True

    @property
    def ranged(self) -> bool:
        """Whether it asks for something of the sort key."""
        return self.lower is not None or self.upper is not None

    @property
    def exact(self) -> bool:
        """Whether it asks for one value of the sort key."""
        return self.lower is not None and self.lower == self.upper

    def holds(self, entry: Sequence[Any]) -> bool:
        """Return whether a sort key whose tokens begin an entry is in the range."""
        count = len(self.before)
        if tuple(entry[:count]) != self.before:
            return False
        token = entry[count]
        if self.lower is not None and not (
            self.lower < token or (self.lower_inclusive and self.lower == token)
        ):
            return False
        return self.upper is None or bool(
            token < self.upper or (self.upper_inclusive and self.upper == token)
        )


def parse_key_condition(
    text: str,
    placeholders: Placeholders,
    hash_names: Sequence[str],
    range_names: Sequence[str],
    *,
    types: Mapping[str, str] | None = None,
) -> KeyCondition:
    """Parse a KeyConditionExpression for a table or index with this key schema.

    Args:
        text: the expression.
        placeholders: those of the request; what the expression uses is noted there.
        hash_names: the attributes of the partition key.
        range_names: the attributes of the sort key; none when there is no sort key.
        types: the types of the key attributes (S, N or B), to check the values against.

    Raises:
        ApiError: ValidationException, with the service's message.
    """
    tree = bound_tree(text, placeholders, _KIND, redundant_parentheses=True)
    comparisons: dict[str, Comparison] = {}
    _collect(tree.root, placeholders.values, comparisons)
    return key_condition(comparisons, hash_names, range_names, types=types)


def key_condition(
    comparisons: Mapping[str, Comparison],
    hash_names: Sequence[str],
    range_names: Sequence[str],
    *,
    types: Mapping[str, str] | None = None,
) -> KeyCondition:
    """Build a key condition from at most one comparison per attribute."""
    if len(hash_names) == 1 and len(range_names) <= 1:
        _check_names(comparisons, hash_names[0], range_names)
    else:
        _check_several(comparisons, hash_names, range_names)
    for name, (operator, operands) in comparisons.items():
        if operator not in _INDEXABLE:
            raise validation("Attempted conditional constraint is not an indexable operation")
        _check_operands(name, operands, types or {})
    if any(comparisons[name][0] != "EQ" for name in hash_names):
        raise validation("Query key condition not supported")
    condition = KeyCondition(tuple(comparisons[name][1][0] for name in hash_names))
    given = [comparisons[name] for name in range_names if name in comparisons]
    if not given:
        return condition
    before = tuple(sort_token(operands[0]) for _, operands in given[:-1])
    return _with_range(replace(condition, before=before), *given[-1])


def _check_names(
    comparisons: Mapping[str, Comparison], hash_name: str, range_names: Sequence[str]
) -> None:
    """Refuse comparisons of other attributes than those of a key with one attribute of a kind."""
    if not 1 <= len(comparisons) <= 2:
        raise validation("Conditions can be of length 1 or 2 only")
    if hash_name not in comparisons:
        raise validation(f"Query condition missed key schema element: {hash_name}")
    if len(comparisons) == 2:
        if not range_names:
            raise validation("Query key condition not supported")
        if range_names[0] not in comparisons:
            raise validation(f"Query condition missed key schema element: {range_names[0]}")


def _check_several(
    comparisons: Mapping[str, Comparison], hash_names: Sequence[str], range_names: Sequence[str]
) -> None:
    """Refuse comparisons that a key with several attributes of a kind does not take.

    All attributes of the partition key need an equality. Those of the sort key are given from left
    to right without a gap, and all but the last one with an equality.
    """
    equal = {name for name, (operator, _) in comparisons.items() if operator == "EQ"}
    missing = [name for name in hash_names if name not in equal]
    if missing:
        raise validation(
            f"HASH key attributes {', '.join(missing)} must have equality conditions specified in "
            "the query"
        )
    if not comparisons.keys() <= {*hash_names, *range_names}:
        raise validation("Query key condition not supported")
    for place, name in enumerate(range_names):
        gaps = [other for other in range_names[:place] if other not in equal]
        if name in comparisons and gaps:
            raise validation(
                f"RANGE key attributes {', '.join(gaps)} must have equality conditions specified "
                f"in the query because a condition is present on key attribute {name}"
            )


def _check_operands(
    name: str, operands: Sequence[AttributeValue], types: Mapping[str, str]
) -> None:
    wanted = types.get(name)
    for value in operands:
        ((kind, raw),) = value.items()
        if kind not in ("S", "N", "B") or (wanted is not None and kind != wanted):
            raise validation(f"{_INVALID}Condition parameter type does not match schema type")
        if raw == "":
            label = "string" if kind == "S" else "binary"
            raise validation(
                "One or more parameter values are not valid. The AttributeValue for a key "
                f"attribute cannot contain an empty {label} value. Key: {name}"
            )


def _with_range(
    condition: KeyCondition, operator: str, operands: Sequence[AttributeValue]
) -> KeyCondition:
    first = sort_token(operands[0])
    if operator == "EQ":
        return replace(condition, lower=first, upper=first)
    if operator in ("GT", "GE"):
        return replace(condition, lower=first, lower_inclusive=operator == "GE")
    if operator in ("LT", "LE"):
        return replace(condition, upper=first, upper_inclusive=operator == "LE")
    if operator == "BETWEEN":
        return replace(condition, lower=first, upper=sort_token(operands[1]))
    if operator == "BEGINS_WITH" and isinstance(first, bytes):
        return replace(condition, lower=first, upper=_after(first), upper_inclusive=False)
    raise validation("Query key condition not supported")


def _after(prefix: bytes) -> bytes | None:
    """Return the least string of bytes that is beyond all that begin with the prefix."""
    shorter = prefix.rstrip(b"\xff")
    return shorter[:-1] + bytes([shorter[-1] + 1]) if shorter else None


def _collect(node: Node, values: Values, comparisons: dict[str, Comparison]) -> None:
    if isinstance(node, Junction) and node.name == "AND":
        for part in node.parts:
            _collect(part, values, comparisons)
        return
    if not isinstance(node, Leaf):
        operator = node.name if isinstance(node, Junction) else "NOT"
        raise validation(f"Invalid operator used in KeyConditionExpression: {operator}")
    if node.name == "<>" or not isinstance(node, Equality | Ordering | Between | BeginsWith):
        raise validation(f"Invalid operator used in KeyConditionExpression: {node.name}")
    if isinstance(node, Between | BeginsWith) and not isinstance(node.operands[0], Path):
        raise validation(
            f"{_CONDITION}{node.name} operator must have the key attribute as its first operand"
        )
    name = _key_attribute(node.operands)
    if name in comparisons:
        raise validation("KeyConditionExpressions must only contain one condition per key")
    comparisons[name] = _comparison(node, values)


def _key_attribute(operands: Sequence[Operand]) -> str:
    name = None
    for operand in operands:
        if isinstance(operand, Size):
            raise validation("KeyConditionExpressions cannot contain nested operations")
        if not isinstance(operand, Path):
            continue
        if name is not None:
            raise validation(f"{_CONDITION}Multiple attribute names used in one condition")
        if operand.tail:
            raise validation("KeyConditionExpressions cannot have conditions on nested attributes")
        name = operand.head
    if name is None:
        raise validation(f"{_CONDITION}No key attribute specified")
    return name


def _comparison(leaf: Leaf, values: Values) -> Comparison:
    operands = [values[one.reference] for one in leaf.operands if isinstance(one, Literal)]
    if isinstance(leaf, Between):
        return "BETWEEN", operands
    if isinstance(leaf, BeginsWith):
        return "BEGINS_WITH", operands
    attribute_first = isinstance(leaf.operands[0], Path)
    return (_COMPARISONS if attribute_first else _MIRRORED)[leaf.name], operands

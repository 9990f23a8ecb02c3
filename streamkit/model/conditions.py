"""Conditions on items: boto3's `Attr` builder, plus `absent` and `present`.

`Attr` names *attributes of the table* (an entity's alias where it has one), not Python fields. This
is the only module that knows boto3's classes; other modules ask `compile_condition` for an
expression. boto3 ships no types, so the few that a condition needs are declared here: type checkers
need no other package to check users' code.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec
from boto3.dynamodb.conditions import (
    AttributeExists,
    AttributeNotExists,
    ConditionExpressionBuilder,
    Equals,
)

from streamkit.model.codec import decode_item, encode
from streamkit.model.declaration import named

if TYPE_CHECKING:

    class ConditionBase:
        """A condition; `&`, `|` and `~` combine it with others."""

        def __init__(self, *values: Any) -> None: ...
        def __and__(self, other: "ConditionBase") -> "ConditionBase": ...
        def __or__(self, other: "ConditionBase") -> "ConditionBase": ...
        def __invert__(self) -> "ConditionBase": ...
        def get_expression(self) -> dict[str, Any]: ...

    class AttributeBase:
        """Something that an operator compares."""

        name: str

        def __init__(self, name: str) -> None: ...
        def eq(self, value: Any) -> ConditionBase: ...
        def ne(self, value: Any) -> ConditionBase: ...
        def lt(self, value: Any) -> ConditionBase: ...
        def lte(self, value: Any) -> ConditionBase: ...
        def gt(self, value: Any) -> ConditionBase: ...
        def gte(self, value: Any) -> ConditionBase: ...
        def between(self, low_value: Any, high_value: Any) -> ConditionBase: ...
        def begins_with(self, value: Any) -> ConditionBase: ...
        def is_in(self, value: Any) -> ConditionBase: ...
        def contains(self, value: Any) -> ConditionBase: ...
        def attribute_type(self, value: str) -> ConditionBase: ...

    class Attr(AttributeBase):
        """An attribute of the table, by its name there; boto3's `Attr`."""

        def exists(self) -> ConditionBase:
            """Hold if the item has the attribute."""
            ...

        def not_exists(self) -> ConditionBase:
            """Hold if the item does not have the attribute."""
            ...

        def size(self) -> AttributeBase:
            """Compare the attribute's size instead."""
            ...

else:
    from boto3.dynamodb.conditions import Attr, AttributeBase, ConditionBase

__all__ = [
    "AsRead",
    "Attr",
    "Condition",
    "Existence",
    "absent",
    "all_of",
    "any_of",
    "as_it_was",
    "attribute",
    "check_condition",
    "compile_condition",
    "identity",
    "present",
]


class Existence(Enum):
    """The condition that the item exists, or not; the key attribute's name is added at commit."""

    ABSENT = "absent"
    PRESENT = "present"


absent = Existence.ABSENT
present = Existence.PRESENT


class AnyOf(msgspec.Struct, frozen=True, eq=False):
    """A condition that holds if one of several does."""

    conditions: "tuple[Condition, ...]"


class AsRead(msgspec.Struct, frozen=True, eq=False):
    """The condition that attributes of an item, in wire form, are as they were read, or missing."""

    names: Sequence[str]
    item: Mapping[str, Mapping[str, Any]]

    @property
    def terms(self) -> list[ConditionBase]:
        """Return the same as one condition for each attribute."""
        there = {name: self.item[name] for name in self.names if name in self.item}
        return as_it_was(self.names, decode_item(there))


Condition = ConditionBase | Existence | AnyOf | AsRead


_PATHS = {".": "\ufdd0", "[": "\ufdd1", "]": "\ufdd2"}
"""Characters that mean a path in a condition, and the replacements, which occur in no text."""
_HIDDEN, _SHOWN = str.maketrans(_PATHS), str.maketrans({v: k for k, v in _PATHS.items()})


def attribute(name: str) -> Attr:
    """Return `Attr` of an item's own attribute; plain `Attr("a.b")` means `b` inside `a`."""
    return Attr(name.translate(_HIDDEN))


def as_it_was(names: Iterable[str], image: Mapping[str, Any]) -> list[ConditionBase]:
    """Return the conditions that attributes still have an image's values, or are still missing."""
    return [
        attribute(name).eq(image[name]) if name in image else attribute(name).not_exists()
        for name in names
    ]


def any_of(*conditions: Condition) -> AnyOf:
    """Return the condition that one of several holds; they may include `absent` and `present`."""
    return AnyOf(conditions)


class _Every(ConditionBase):
    """A condition that holds if all of many do; with `&`, each would nest one level deeper."""

    expression_operator = "AND"

    def __init__(self, *conditions: ConditionBase) -> None:
        super().__init__(*conditions)
        places = " {operator} ".join(f"{{{place}}}" for place in range(len(conditions)))
        self.expression_format = f"({places})"


def _concrete(condition: Condition, pk_name: str) -> ConditionBase:
    if condition is Existence.ABSENT:
        return attribute(pk_name).not_exists()
    if condition is Existence.PRESENT:
        return attribute(pk_name).exists()
    if isinstance(condition, AnyOf):
        return reduce(or_, (_concrete(part, pk_name) for part in condition.conditions))
    return _Every(*condition.terms) if isinstance(condition, AsRead) else condition


def all_of(conditions: list[Condition], pk_name: str) -> ConditionBase:
    """Join conditions with AND, each once; `absent` and `present` look at the key `pk_name`."""
    conditions = _one_by_one(conditions)
    if len(conditions) == 1:
        return _concrete(conditions[0], pk_name)
    different = {identity(condition): condition for condition in conditions}
    joined = [_concrete(condition, pk_name) for condition in different.values()]
    return joined[0] if len(joined) == 1 else _Every(*joined)


def _one_by_one(conditions: Iterable[Condition]) -> list[Condition]:
    return [
        term for one in conditions for term in (one.terms if isinstance(one, AsRead) else (one,))
    ]


def identity(condition: object) -> Hashable:
    """Return a value that is equal only for conditions with the same meaning.

    The conditions themselves cannot be compared: to Python, `True` is equal to 1.
    """
    if isinstance(condition, ConditionBase):
        expression = condition.get_expression()
        return expression["operator"], tuple(map(identity, expression["values"]))
    if isinstance(condition, AnyOf):
        return "any", tuple(map(identity, condition.conditions))
    if isinstance(condition, AttributeBase):
        return condition.name
    return type(condition).__name__, repr(condition)


def check_condition(condition: object) -> None:
    """Check that a condition can be sent, while an error still counts as its handler's failure.

    Raises:
        TypeError: it is not a condition, as `Attr("n") == 3` is not.
        ValueError: it holds a value of a type that DynamoDB cannot store.
    """
    if isinstance(condition, Existence):
        return
    if isinstance(condition, AnyOf):
        for part in condition.conditions:
            check_condition(part)
        return
    if not isinstance(condition, ConditionBase):
        raise TypeError(
            f"a condition is absent, present or built as Attr(...).eq(...), not {named(condition)}"
        )
    compile_condition(condition)


def compile_condition(condition: ConditionBase) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return (expression, attribute names, attribute values in wire form).

    Raises:
        ValueError: a value is of a type that DynamoDB cannot store.
    """
    terms = condition.get_expression()["values"] if type(condition) is _Every else (condition,)
    if all(map(_is_simple, terms)):
        return _compile_simple(terms, joined=type(condition) is _Every)
    built = ConditionExpressionBuilder().build_expression(condition)
    values = {name: encode(value) for name, value in built.attribute_value_placeholders.items()}
    names = {
        placeholder: name.translate(_SHOWN)
        for placeholder, name in built.attribute_name_placeholders.items()
    }
    return built.condition_expression, names, values


EQUAL, THERE, GONE = "{} = {}", "attribute_exists({})", "attribute_not_exists({})"
"""The forms of the terms that nearly every condition consists of."""

_SIMPLE = {Equals: EQUAL, AttributeExists: THERE, AttributeNotExists: GONE}
"""The terms that nearly every condition consists of: boto3's builder takes four times as long for
them.
"""


def _is_simple(term: ConditionBase) -> bool:
    if type(term) not in _SIMPLE:
        return False
    compared, *values = term.get_expression()["values"]
    if type(compared) is not Attr or any(isinstance(value, AttributeBase) for value in values):
        return False
    return not any(path in compared.name for path in _PATHS)


def _compile_simple(
    terms: Iterable[ConditionBase], *, joined: bool
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return what boto3's builder would return for such terms."""
    texts: list[str] = []
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    for place, term in enumerate(terms):
        compared, *given = term.get_expression()["values"]
        names[f"#n{place}"] = compared.name.translate(_SHOWN)
        value = f":v{len(values)}"
        texts.append(_SIMPLE[type(term)].format(f"#n{place}", value))
        if given:
            values[value] = encode(given[0])
    text = " AND ".join(texts)
    return f"({text})" if joined else text, names, values

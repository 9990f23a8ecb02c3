"""Values: equality, order, size and sums of canonical attribute values.

`equal` is DynamoDB's equality, which ignores the order of a set; `compare` and `sort_token` give
DynamoDB's order; sizes follow its billing rules. The types, and the function that makes values
canonical, come from `attributes` and are exported here too, so that this one module is enough.
"""

from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from streamkit.local.arithmetic import add_numbers, canonical_number, subtract_numbers
from streamkit.local.attributes import (
    AttributeValue,
    Item,
    canonical,
    canonical_item,
    check_names,
    name_complaint,
    nesting,
    nesting_error,
)

__all__ = [
    "AttributeValue",
    "Item",
    "SortToken",
    "add_numbers",
    "canonical",
    "canonical_item",
    "canonical_number",
    "check_names",
    "compare",
    "equal",
    "equal_items",
    "item_size",
    "name_complaint",
    "nesting",
    "nesting_error",
    "sort_token",
    "subtract_numbers",
    "value_size",
]

SortToken: TypeAlias = bytes | Decimal

_SETS = frozenset({"SS", "NS", "BS"})


def equal(left: AttributeValue, right: AttributeValue) -> bool:
    """Return whether two canonical values are equal: sets without order, documents deeply."""
    if left == right:
        return True
    ((kind, a),) = left.items()
    ((other, b),) = right.items()
    if kind != other:
        return False
    if kind == "M":
        return len(a) == len(b) and all(
            name in b and (value == b[name] or equal(value, b[name])) for name, value in a.items()
        )
    if kind == "L":
        return len(a) == len(b) and all(map(equal, a, b))
    if kind in _SETS:
        return len(a) == len(b) and set(a) == set(b)
    return False


def equal_items(left: Item, right: Item) -> bool:
    """Return whether two items hold equal values under the same names."""
    return left == right or equal({"M": left}, {"M": right})


def compare(left: AttributeValue, right: AttributeValue) -> int | None:
    """Compare two canonical values: return a negative number, 0 or a positive number.

    Returns:
        None when the types differ, or are not S, N or B: such values have no order.
    """
    ((kind, a),) = left.items()
    ((other, b),) = right.items()
    if kind != other or kind not in _TOKENS:
        return None
    if a == b:
        return 0
    if kind == "S":
        # The order of code points is the order of their UTF-8 bytes.
        return -1 if a < b else 1
    if kind == "N":
        return -1 if Decimal(a) < Decimal(b) else 1
    return -1 if b64decode(a) < b64decode(b) else 1


_TOKENS: dict[str, Callable[[Any], SortToken]] = {"S": str.encode, "N": Decimal, "B": b64decode}


def sort_token(value: AttributeValue) -> SortToken:
    """Return a sort key for a value; tokens of one type (S, N or B) compare as DynamoDB does."""
    ((kind, raw),) = value.items()
    return _TOKENS[kind](raw)


def item_size(item: Item) -> int:
    """Return the size of an item in bytes, attribute names included."""
    size = 0
    for name, value in item.items():
        ((kind, raw),) = value.items()
        size += (len(name) if name.isascii() else _string_size(name)) + _SIZES[kind](raw)
    return size


def value_size(value: AttributeValue) -> int:
    """Return the size of one value in bytes by DynamoDB's rules, without its name."""
    ((kind, raw),) = value.items()
    return _SIZES[kind](raw)


def _string_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _number_size(number: str) -> int:
    # Digits are stored in pairs, counted from the point both ways; outer zeros are not stored.
    whole, _, fraction = number.lstrip("-").partition(".")
    if not fraction:
        whole = whole.rstrip("0")
    elif whole == "0":
        whole, fraction = "", fraction.lstrip("0")
    pairs = (len(whole) + 1) // 2 + (len(fraction) + 1) // 2
    return 1 + pairs + (number[0] == "-")


def _binary_size(encoded: str) -> int:
    return len(encoded) // 4 * 3 - encoded.count("=")


def _map_size(members: Item) -> int:
    return 3 + len(members) + item_size(members)


def _list_size(members: list[AttributeValue]) -> int:
    return 3 + len(members) + sum(map(value_size, members))


def _one_byte(_raw: bool) -> int:
    return 1


_SIZES: dict[str, Callable[[Any], int]] = {
    "S": _string_size,
    "N": _number_size,
    "B": _binary_size,
    "BOOL": _one_byte,
    "NULL": _one_byte,
    "M": _map_size,
    "L": _list_size,
    "SS": lambda members: sum(map(_string_size, members)),
    "NS": lambda members: sum(map(_number_size, members)),
    "BS": lambda members: sum(map(_binary_size, members)),
}

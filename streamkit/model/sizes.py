"""Sizes: upper estimates of the bytes that values take, in a request and in a table. Pure."""

from collections.abc import Mapping
from typing import Any


def attributes_size(attributes: Mapping[str, dict[str, Any]]) -> int:
    """Return an upper estimate of the bytes of attributes by name."""
    total = 3
    for name, attribute in attributes.items():
        for kind in attribute:
            value = attribute[kind]
            if type(value) is str and value.isascii():  # the most frequent case
                total += len(name) + len(value) + 4
            else:
                total += len(name) + size_at_most(attribute)
    return total


def size_at_most(value: Any) -> int:
    """Return an upper estimate of the bytes of a plain value, or of one in wire form."""
    if isinstance(value, str):
        return len(value) if value.isascii() else 3 * len(value)
    if isinstance(value, dict):
        total = 3
        for name, part in value.items():
            total += size_at_most(name) + size_at_most(part)
        return total
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list | tuple | set | frozenset):
        return 3 + sum(1 + size_at_most(part) for part in value)
    return 21


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return an upper bound of the bytes of an item as DynamoDB counts them."""
    return sum(len(name.encode()) + _stored(value) for name, value in item.items())


def _stored(attribute: Mapping[str, Any]) -> int:
    ((kind, value),) = attribute.items()
    match kind:
        case "S":
            return len(value.encode())
        case "N":
            return 2 + len(value) // 2
        case "B":
            return len(value)
        case "M":
            return 3 + sum(1 + len(n.encode()) + _stored(v) for n, v in value.items())
        case "L":
            return 3 + sum(1 + _stored(member) for member in value)
        case "SS" | "BS":
            return sum(len(m.encode() if isinstance(m, str) else m) for m in value)
        case "NS":
            return sum(2 + len(m) // 2 for m in value)
    return 1

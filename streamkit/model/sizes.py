"""Sizes: an upper estimate of the bytes that wire values take. Pure."""

from collections.abc import Mapping
from typing import Any


def attributes_size(attributes: Mapping[str, dict[str, Any]]) -> int:
    """Return an upper estimate of the bytes of attributes by name."""
    total = 3
    for name, attribute in attributes.items():
        for kind in attribute:
            value = attribute[kind]
            if type(value) is str and value.isascii():  # the commonest case
                total += len(name) + len(value) + 4
            else:
                total += len(name) + _size(attribute)
    return total


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else 3 * len(value)
    if isinstance(value, dict):
        total = 3
        for name, part in value.items():
            total += len(name) + _size(part)
        return total
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list | tuple | set | frozenset):
        return 3 + sum(1 + _size(part) for part in value)
    return 21

"""Key fields: the fields of an entity whose attributes are the key of a global secondary index.

Since November 2025 such a key has up to four attributes, of types of their own. They are the item's
own attributes, so nothing is written for the index: an item that lacks one of them is not in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
from pydantic import BaseModel

from streamkit.errors import DeclarationError
from streamkit.model.codec import encode
from streamkit.model.declaration import Declaration
from streamkit.model.fields import dump_fields

MOST_FIELDS = 4

KeyValue = tuple[str, Any]
"""The type of an attribute value, and what it holds."""


class KeyFields(msgspec.Struct, frozen=True):
    """Some fields of an entity, in their order in the key."""

    fields: tuple[str, ...]

    @classmethod
    def read(cls, names: Sequence[str], declaration: Declaration) -> Self:
        """Return the fields of these names.

        Raises:
            DeclarationError: they cannot be a key of any entity.
        """
        names = tuple(names)
        if not 1 <= len(names) <= MOST_FIELDS:
            raise DeclarationError(
                f"{declaration}: a key has 1 to {MOST_FIELDS} fields, and {len(names)} are given"
            )
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise DeclarationError(
                    f"{declaration}: {name!r} is not the name of a field; a template stands alone,"
                    " not in a tuple"
                )
        return cls(names)

    @property
    def text(self) -> str:
        """Return the names for people."""
        return ", ".join(self.fields)


def key_values(
    entity: type[BaseModel], values: Mapping[str, Any], names: Sequence[str], where: str
) -> tuple[KeyValue, ...]:
    """Return the values of some fields as an item stores them.

    Raises:
        ValueError: a value cannot be part of a key.
    """
    dumped = dump_fields(entity, {name: values[name] for name in names})
    found = []
    for name in names:
        if dumped[name] is None:
            raise ValueError(f"{where}: {name} is None, and an item without it is not in the index")
        ((kind, raw),) = encode(dumped[name], f"{where}: {name}").items()
        if not raw:
            raise ValueError(f"{where}: {name} is empty, and a part of a key cannot be")
        found.append((kind, raw))
    return tuple(found)

"""Index keys under an update: what an update of some fields makes of them. Pure.

An index shows an item under the keys that are stored in it. An update that sets `status` has to set
the key `STATUS#{status}`, too, or queries still find the item where it was. So an update writes the
keys that follow from the fields that it knows: those of the item's key, and those that it sets.

In: the entity, and an update's fields. Out: attributes of index keys; None removes one. On failure:
`ValueError` if a key changes and needs fields that the update does not know.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import FunctionType
from typing import TYPE_CHECKING, Any

from streamkit.errors import USER_ERRORS
from streamkit.model.codec import AttributeValue, encode_key
from streamkit.model.keys import Index
from streamkit.model.schema import TableSchema
from streamkit.model.templates import KeyTemplate

if TYPE_CHECKING:
    from streamkit.entity import Entity

NOTHING: frozenset[str] = frozenset()


class _Unknown(Exception):
    """`when=` reads a field that is not known."""


class _Known:
    """Stands for an item of which some fields are known, and notes what `when=` may read of it.

    Properties and methods of the entity run on it, too: what they read decides as well.
    """

    def __init__(self, entity: "type[Entity]", values: Mapping[str, Any]) -> None:
        self._entity, self._values = entity, values
        self.read: set[str] = set()

    def note(self, function: object) -> None:
        """Note the names in a function's code: it may end before it has read them."""
        self.read.update(getattr(getattr(function, "__code__", None), "co_names", ()))

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        if name in self._values:
            return self._values[name]
        found = inspect.getattr_static(self._entity, name, None)
        if isinstance(found, property):
            self.note(found.fget)
            return found.__get__(self)
        if isinstance(found, FunctionType):
            self.note(found)
            return found.__get__(self)
        raise _Unknown(name)


def index_keys(
    entity: "type[Entity]",
    schema: TableSchema,
    known: Mapping[str, Any],
    changed: AbstractSet[str] = NOTHING,
) -> dict[str, AttributeValue | None]:
    """Return the index keys that an update of some fields writes; None removes an attribute.

    Args:
        entity: the entity of the item.
        schema: its table.
        known: the values that fields have after the update, as far as they are known.
        changed: the fields that the update changes. Without any: what to write along, so that an
            item that did not exist is in its indexes.

    Raises:
        ValueError: an index key changes, and it also depends on fields that are not known.
    """
    found: dict[str, AttributeValue | None] = {}
    indexes = entity.__entity__.indexes.values() if entity.__entity__ else ()
    for index in indexes:
        halves = list(templates_of(index, schema))
        if halves:
            found |= _keys(entity, index, halves, known, changed)
    return found


Half = tuple[KeyTemplate, str, str]
"""A template, and the name and the type of the attribute that it builds."""


def templates_of(index: Index, schema: TableSchema) -> Iterator[Half]:
    """Yield the templates of an index; none if the table does not have it, as `check` says.

    An attribute of the table's own key is left out: no update may set it, and it is right already.
    """
    named = index.pk_attribute or index.sk_attribute
    if index.name not in schema.indexes and not named:
        return
    for template, there in zip((index.pk, index.sk), index.key_attributes(schema), strict=True):
        if isinstance(template, KeyTemplate) and there[0][0] not in schema.key_attributes:
            yield template, *there[0]


def _keys(
    entity: "type[Entity]",
    index: Index,
    halves: list[Half],
    known: Mapping[str, Any],
    changed: AbstractSet[str],
) -> dict[str, AttributeValue | None]:
    there, decides = _is_in(entity, index.when, known)
    moves = bool(changed & decides)
    if there is False:
        return {name: None for _, name, _ in halves} if moves else {}
    found: dict[str, AttributeValue | None] = {}
    for template, name, kind in halves:
        fields = set(template.fields)
        unknown = fields - {one for one in known if known[one] is not None}
        if changed and (moves or fields & changed) and (unknown or there is None):
            unknown |= decides - known.keys() if there is None else set()
            raise ValueError(
                f"{entity.__name__}: {', '.join(sorted(changed & (fields | decides)))} is part of"
                f" a key of the index {index.name}, which also needs"
                f" {', '.join(sorted(unknown)) or 'the item'}; set it, too, or Put the whole item"
            )
        if there and not unknown and (not changed or moves or fields & changed):
            found[name] = encode_key(template.build(dict(known)), kind)
    return found


def _is_in(
    entity: "type[Entity]", when: Callable[[Any], bool] | None, known: Mapping[str, Any]
) -> tuple[bool | None, set[str]]:
    """Return whether an item is in an index, and the names that decide it; None: not known."""
    if when is None:
        return True, set()
    item = _Known(entity, known)
    try:
        return bool(when(item)), item.read
    except USER_ERRORS:  # of the user's function, which may not be made for this
        item.note(when)
        return None, item.read


def decided_by(entity: "type[Entity]", index: Index) -> set[str]:
    """Return the fields of an entity that `when=` of its index may read."""
    return _is_in(entity, index.when, {})[1] & entity.model_fields.keys()


def touches(entity: "type[Entity]", changed: AbstractSet[str]) -> bool:
    """Return whether an update of some fields may change a key of an index."""
    return any(
        index.when is not None or any(not changed.isdisjoint(key.fields) for key in _keys_of(index))
        for index in (entity.__entity__.indexes.values() if entity.__entity__ else ())
    )


def _keys_of(index: Index) -> Iterator[KeyTemplate]:
    return (key for key in (index.pk, index.sk) if isinstance(key, KeyTemplate))

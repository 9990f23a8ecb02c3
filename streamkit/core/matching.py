"""Matching: which items belong to an entity, by the same rules as routing. Pure.

In: an item in wire form. Out: whether it belongs to an entity. The type attribute decides if there
is one; otherwise the most specific key template that fits does. A part of a group that is spread
over several items belongs to the group's entity.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from streamkit.entity import Entity, EntitySpec, spec_of
from streamkit.model.codec import key_text
from streamkit.model.parts import is_part, without_suffix
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX


class Matcher:
    """Tells the items of an entity from others as routing does: by type, else by key templates.

    `others` are the other known entities: a key that fits several belongs to the most specific one.
    """

    def __init__(
        self, entity: type[Entity], schema: TableSchema, others: Iterable[type[Entity]] = ()
    ) -> None:
        self.schema = schema
        self._spec = spec_of(entity)
        self._is_spread = entity.__parts__ is not None
        mine = _literals(self._spec, schema)
        self._others = [*map(spec_of, others)]
        self._nearer = [spec for spec in self._others if _literals(spec, schema) > mine]

    def matches(self, item: Mapping[str, Any]) -> bool:
        """Return whether an item, in wire form, belongs to the entity."""
        spec = self._spec
        key = self._key(item) if self.schema.pk in item else None
        if key is None or key[0].startswith(CONTROL_PREFIX):
            return False
        if is_part(key[1] or key[0]) and not self._is_spread:
            return False
        pk, sk = _of_group(*key)
        told = self._told(item)
        if told is not None:
            return told == spec.type
        return self._fits(spec, pk, sk) and not self._is_of_any(self._nearer, pk, sk)

    def is_anothers(self, item: Mapping[str, Any]) -> bool:
        """Return whether an item is of another entity: by its type, or by its key if it has none.

        An item whose key fits no known entity may still be read: a view need not have its template.
        One whose key is no text is of no entity.
        """
        told, key = self._told(item), self._key(item)
        if key is None:
            return True
        if told is not None:
            return told != self._spec.type
        pk, sk = _of_group(*key)
        others = self._nearer if self._fits(self._spec, pk, sk) else self._others
        return self._is_of_any(others, pk, sk)

    def _told(self, item: Mapping[str, Any]) -> str | None:
        """Return the type that an item has, if it is a text."""
        attribute = self.schema.type_attribute
        told: str | None = None if attribute is None else item.get(attribute, {}).get("S")
        return told

    def _key(self, item: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the texts of an item's key; None if its bytes are no text."""
        schema = self.schema
        pk, sk = key_text(item[schema.pk]), "" if schema.sk is None else key_text(item[schema.sk])
        return (pk, sk) if pk and (sk or schema.sk is None) else None

    def _is_of_any(self, specs: Iterable[EntitySpec], pk: str, sk: str) -> bool:
        return any(self._fits(spec, pk, sk) for spec in specs)

    def _fits(self, spec: EntitySpec, pk: str, sk: str) -> bool:
        if not spec.pk.matches(pk):
            return False
        if spec.sk is None or self.schema.sk is None:
            return True
        return (spec.sk.text != spec.pk.text or sk == pk) and spec.sk.matches(sk)


def _of_group(pk: str, sk: str) -> tuple[str, str]:
    """Return the key of the group for a part's key, and any other key as it is."""
    return (pk, without_suffix(sk)) if sk else (without_suffix(pk), sk)


def _literals(spec: EntitySpec, schema: TableSchema) -> tuple[int, bool]:
    """Return a measure of how specific an entity's keys are, for comparison."""
    if spec.sk is None or schema.sk is None:
        return spec.pk.literal_length, False
    same = spec.sk.text == spec.pk.text
    return spec.pk.literal_length + spec.sk.literal_length, same

"""Matching: which items are an entity's, told as routing tells them. Pure.

In: an item in wire form. Out: whether a migration of an entity is about it. The type attribute
decides where there is one; else the key templates do, of which the most specific one counts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from streamkit.actions import CONTROL_PREFIX
from streamkit.entity import Entity, EntitySpec, spec_of
from streamkit.model.schema import TableSchema


class Matcher:
    """Tells the items of an entity from others as routing does: by type, else by key templates.

    `others` are the app's entities: a key that fits several is of the most specific one.
    """

    def __init__(
        self, entity: type[Entity], schema: TableSchema, others: Iterable[type[Entity]] = ()
    ) -> None:
        self.schema = schema
        self._spec = spec_of(entity)
        mine = _literals(self._spec, schema)
        self._nearer = [spec for spec in map(spec_of, others) if _literals(spec, schema) > mine]

    def matches(self, item: Mapping[str, Any]) -> bool:
        """Say whether an item, in wire form, is one of the entity."""
        schema, spec = self.schema, self._spec
        if schema.pk not in item:
            return False
        pk = str(item[schema.pk].get("S", ""))
        if pk.startswith(CONTROL_PREFIX):
            return False
        if schema.type_attribute is not None and schema.type_attribute in item:
            return bool(item[schema.type_attribute] == {"S": spec.type})
        sk = "" if schema.sk is None else str(item[schema.sk].get("S", ""))
        return self._fits(spec, pk, sk) and not any(self._fits(s, pk, sk) for s in self._nearer)

    def _fits(self, spec: EntitySpec, pk: str, sk: str) -> bool:
        if not spec.pk.matches(pk):
            return False
        if spec.sk is None or self.schema.sk is None:
            return True
        return (spec.sk.text != spec.pk.text or sk == pk) and spec.sk.matches(sk)


def _literals(spec: EntitySpec, schema: TableSchema) -> tuple[int, bool]:
    """Return how specific an entity's keys are, to be compared."""
    if spec.sk is None or schema.sk is None:
        return spec.pk.literal_length, False
    same = spec.sk.text == spec.pk.text
    return spec.pk.literal_length + spec.sk.literal_length, same

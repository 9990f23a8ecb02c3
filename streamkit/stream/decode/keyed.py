"""Keyed: what the key of an item that was read says about the item.

The entity remembers the key as it was read. Fields that have no attribute are read from the key
where that is unambiguous (`model.key_reader`); an attribute that exists wins. Where an
attribute *is* a key of the table, it holds the text of the whole template, so its field is read
from the key, too.

In: the plain values of an item, or the texts of its key. Out: `StoredKey`, and values filled in.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pydantic import AliasChoices, AliasPath

from streamkit.entity import Entity, attribute_names, built_key, spec_of
from streamkit.model.item_as_read import stored_key
from streamkit.model.key_reader import KeyReader
from streamkit.model.keys import StoredKey, wire_key
from streamkit.model.parts import without_suffix
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import item_ref

ANOTHER_KEY = (
    "have fields that build another key: updates go to the item that is there, reads by fields do"
    " not find it"
)


class KeyedFields:
    """Knows which fields of one entity the keys of one table hold.

    `names` are the fields that a key can tell. `in_key` are the attributes that are keys of the
    table; their fields are only ever read from there. `fields` are those that matter, if not all
    do.
    """

    def __init__(
        self, entity: type[Entity], schema: TableSchema, fields: Iterable[str] | None = None
    ) -> None:
        self._schema = schema
        self._key_reader = key_reader(entity)
        self._is_spread = entity.__parts__ is not None
        self._names = attribute_names(entity)
        self.names = readable = self._key_reader.readable
        self.attributes = {
            a for name in spec_of(entity).key_names for a in _attributes(entity, name)
        }
        keys = schema.key_attributes
        self.in_key = keys & {a for name in readable for a in _attributes(entity, name)}
        # A field may be read from several attributes: one of them is enough.
        wanted = sorted(readable if fields is None else readable & set(fields))
        self._looked_for = [(name, _attributes(entity, name) - self.in_key) for name in wanted]
        self._expected = tuple(self._names[name] for name in wanted)

    def of_values(self, values: Mapping[str, Any]) -> StoredKey | None:
        """Return the key among an item's plain values; None if it is missing, or not text."""
        pk = _text(values.get(self._schema.pk))
        sk = None if self._schema.sk is None else _text(values.get(self._schema.sk))
        if pk is None or (sk is None and self._schema.sk is not None):
            return None
        return self.of_texts(pk, sk)

    def of_texts(self, pk: str, sk: str | None) -> StoredKey:
        """Return the key of these texts; for a part, the key of its group."""
        if not self._is_spread:
            return pk, sk, ()
        return (without_suffix(pk), None, ()) if sk is None else (pk, without_suffix(sk), ())

    def fill(self, values: dict[str, Any], key: StoredKey) -> StoredKey:
        """Add to plain values what only the key says; return the key, with the fields it filled."""
        for attribute in self._expected:
            if attribute not in values:
                break
        else:  # this is nearly always so
            return key
        pk, sk, _ = key
        said = self._key_reader.read(pk, sk)
        found = tuple(
            name
            for name, attributes in self._looked_for
            if name in said and values.keys().isdisjoint(attributes)
        )
        values.update({self._names[name]: said[name] for name in found})
        return pk, sk, found


def trouble_of_key(item: Entity, schema: TableSchema) -> str | None:
    """Return what is odd about the key of an item that was read; None if nothing is."""
    stored, spec = stored_key(item), spec_of(type(item))
    if stored is None:
        return None
    try:
        pk, sk = built_key(item)
    except ValueError:
        return "have fields that cannot be part of their key: updates go to the items all the same"
    if item_ref(schema, wire_key(schema, type(item), pk, sk)) != item_ref(
        schema, wire_key(schema, type(item), *stored[:2])
    ):
        return ANOTHER_KEY
    literals = [text for t in (spec.pk, spec.sk) if t is not None for text in t.shape]
    separators = {char for text in literals for char in text if not char.isalnum()}
    values = [value for name in stored[2] if isinstance(value := getattr(item, name), str)]
    if any(separators & {*value} for value in values):
        return (
            "have a separator of the template in a value that is read from the key: they may be of"
            " another type, whose entity the app is to know (App(entities=[...]))"
        )
    return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, Decimal):  # DynamoDB writes no exponents, as `str` would
        return format(value, "f")
    return None if value is None else str(value)


def _attributes(entity: type[Entity], name: str) -> frozenset[str]:
    """Return the attributes that a field may be read from, including its own name."""
    alias = entity.model_fields[name].validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    firsts = [choice.path[0] if isinstance(choice, AliasPath) else choice for choice in choices]
    return frozenset({name, *(first for first in firsts if isinstance(first, str))})


@lru_cache(maxsize=1024)
def key_reader(entity: type[Entity]) -> KeyReader:
    """Return the reader of an entity's keys; it is made once, because tables make many decoders.

    Raises:
        DeclarationError: the entity is an abstract base, without keys.
    """
    return KeyReader(spec_of(entity), entity.model_fields)

"""Entities: pydantic models of the items of one type, bound to the templates of their keys.

    class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{order_id}"):
        username: str
        order_id: str

A template that names no field, a misspelt class keyword, or a field that hides a method fails when
the class is made, with its line. Instances are frozen, so that handlers can share them. An
attribute that is absent in an item is `None` or the empty set of a field that allows it, because
DynamoDB stores neither at the top level of an item.
"""

import inspect
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, ClassVar, Self, Unpack

from pydantic import ConfigDict

from streamkit.errors import DeclarationError
from streamkit.model.codec import AttributeValue, encode
from streamkit.model.declaration import Declaration
from streamkit.model.fields import dump_fields, validate_fields
from streamkit.model.item_as_read import ItemAsRead, stored_key
from streamkit.model.item_writer import item_writer
from streamkit.model.keys import Index, Key, wire_key
from streamkit.model.parts import Parts
from streamkit.model.queries import Query, built_query
from streamkit.model.schema import TableSchema
from streamkit.model.spec import EntitySpec, check_fields, let_absent_be_empty, read_spec

__all__ = [
    "Entity",
    "EntitySpec",
    "Index",
    "Key",
    "Query",
    "Upcast",
    "attribute_names",
    "spec_of",
]

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes an item's plain values by attribute name, and returns them in the newest shape."""

_EXACT = frozenset({str, int})
_CONFIG_KEYWORDS = frozenset(ConfigDict.__annotations__)


class Entity(ItemAsRead):
    """The base of all entities; a subclass without `pk` is an abstract base."""

    model_config = ConfigDict(
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        ignored_types=(Index,),
    )

    __declaration__: ClassVar[Declaration]
    __own_upcasts__: ClassVar[list[Upcast]] = []
    __also_read__: ClassVar[tuple[str, ...]] = ()
    __parts__: ClassVar[Parts | None] = None

    def __init_subclass__(
        cls,
        *,
        pk: str | None = None,
        sk: str | None = None,
        type: str | None = None,  # noqa: A002 - the word of the declaration
        **config: Unpack[ConfigDict],
    ) -> None:
        cls.__declaration__ = declaration = Declaration.here(cls.__name__)
        cls.__own_upcasts__ = []
        unknown = [keyword for keyword in config if keyword not in _CONFIG_KEYWORDS]
        if unknown:
            raise DeclarationError(
                f"{declaration}: unknown class keyword {', '.join(map(repr, unknown))}; "
                f"an entity takes pk, sk, type and pydantic's settings"
            )
        super().__init_subclass__(**config)
        hidden = _PUBLIC_NAMES & inspect.get_annotations(cls).keys()
        if hidden:
            raise DeclarationError(
                f"{declaration}: a field cannot be called {', '.join(sorted(hidden))}, which "
                f"entities define; an alias lets the attribute keep its name"
            )
        cls.__entity__ = read_spec(cls, cls.__entity__, declaration, pk=pk, sk=sk, type_name=type)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if cls.__pydantic_complete__:
            let_absent_be_empty(cls)
        check_fields(cls, cls.__declaration__, cls.__entity__)

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        let_absent_be_empty(cls)

    @classmethod
    def key(cls, /, **fields: Any) -> Key[Self]:
        """Return the key of the item with these field values, checked by the fields' types.

        The key of the same texts and whole numbers is remembered for a while, not checked again.

        Raises:
            ValueError: a field is missing, unknown, of the wrong type or empty.
        """
        spec = spec_of(cls)
        # Values of other types can be equal and not the same, as Decimals are.
        is_exact = _EXACT.issuperset(map(type, fields.values()))
        place = (*fields, *fields.values()) if is_exact else None
        known: Key[Self] | None = spec.known_keys.get(place)
        if known is not None:
            return known
        where = f"the key of {cls.__name__}"
        if fields.keys() != spec.key_fields:
            missing = [name for name in spec.key_names if name not in fields]
            extra = [name for name in fields if name not in spec.key_names]
            raise ValueError(f"{where} {_difference(missing, extra)}")
        values = validate_fields(cls, fields, where=where)
        key = Key(cls, *spec.build(values), tuple(values.items()))
        if place is not None:
            spec.remember(place, key)
        return key

    @classmethod
    def query(cls, /, *, index: Index | None = None, **fields: Any) -> Query[Self]:
        """Return a query for the items under a partition key, of the table or of an index.

        All fields of the partition key are needed; fields of the sort key, from its beginning,
        narrow the query further.

        Raises:
            ValueError: a field is missing, unknown, of the wrong type, or given without the
                sort-key fields before it; or the index is not this entity's.
        """
        spec = spec_of(cls)
        where = f"a query of {cls.__name__}"
        if index is not None and index not in spec.indexes.values():
            raise ValueError(f"{where}: {index.name} is not an index of it")
        pk, sk = (spec.pk, spec.sk) if index is None else (index.pk, index.sk)
        sk_fields = sk.fields if sk else ()
        missing = [name for name in pk.fields if name not in fields]
        extra = [name for name in fields if name not in pk.fields + sk_fields]
        if missing or extra:
            raise ValueError(f"{where} {_difference(missing, extra)}")
        values = validate_fields(cls, fields, where=where)
        return built_query(cls, index, (pk, sk), values)

    @classmethod
    def upcast(cls, function: Upcast) -> Upcast:
        """Register a function that brings an older shape of an item up to date.

        It sees every image of the entity, as plain values by attribute name, before validation;
        several run in the order they were registered. An item in the newest shape must come out
        unchanged.
        """
        cls.__own_upcasts__.append(function)
        return function

    @classmethod
    def upcasts(cls) -> tuple[Upcast, ...]:
        """Return the registered functions, those of base classes first."""
        bases = [base for base in reversed(cls.__mro__) if issubclass(base, Entity)]
        return tuple(function for base in bases for function in base.__own_upcasts__)

    @property
    def item_key(self) -> Key[Self]:
        """Return the key that this item was read with, or else the key built from its fields."""
        entity = type(self)
        spec = spec_of(entity)
        stored = stored_key(self)
        fields = tuple((name, getattr(self, name)) for name in spec.key_names)
        if stored is not None:
            pk, sk, unstored = stored
            return Key(entity, pk, sk, fields, unstored=unstored)
        return Key(entity, *built_key(self), fields)

    def attributes(self, schema: TableSchema) -> dict[str, AttributeValue]:
        """Return the whole item for a put: fields, keys, index keys and the type attribute.

        `None` and empty sets at the top level are left out.

        Raises:
            ValueError: a value cannot be stored, or a field and a key claim one attribute.
        """
        entity, as_read = type(self), stored_key(self)
        if as_read is None and (write := item_writer(entity, schema)) is not None:
            return write(self)
        spec, stored = spec_of(entity), None
        if entity.__pydantic_decorators__.computed_fields:
            stored = entity.model_fields.keys() | (self.model_extra or ())
        item: dict[str, AttributeValue] = {}
        # `model_dump` calls this too, but takes twice as long in all.
        dumped = self.__pydantic_serializer__.to_python(self, by_alias=True, include=stored)
        for name, value in dumped.items():
            if not _is_absent(value):
                item[name] = encode(value, f"{entity.__name__}.{name}")
        pk, sk, *_ = as_read or built_key(self)
        written = wire_key(schema, entity, pk, sk)
        for index in spec.indexes.values():
            written |= index.attributes(self, schema)
        if schema.type_attribute is not None:
            written[schema.type_attribute] = {"S": spec.type}
        in_key = _in_key(entity, schema)
        for name, value in written.items():
            if name in in_key:
                item[name] = value  # the key holds the field, and is read back
            elif item.setdefault(name, value) != value:
                raise ValueError(
                    f"{spec.declaration}: the field stored as {name} differs from the key or "
                    f"type that is stored there"
                )
        return item

    @classmethod
    def set_attributes(
        cls,
        schema: TableSchema,
        fields: Mapping[str, Any],
    ) -> dict[str, AttributeValue | None]:
        """Return some fields for an update; `None` means that the attribute is removed.

        Fields are named as in Python or as in the item, and checked alone, by their own types.
        Index keys may depend on the fields, but need the whole item, so they are not included. A
        change of a field in the primary key is not detected either.

        Raises:
            ValueError: a field is unknown, does not fit its type, or cannot be removed.
        """
        names = attribute_names(cls)
        by_attribute = {attribute: name for name, attribute in names.items()}
        unknown = [n for n in fields if n not in names and n not in by_attribute]
        if unknown:
            raise ValueError(f"{spec_of(cls).declaration} has no field {', '.join(unknown)}")
        given = {n if n in names else by_attribute[n]: value for n, value in fields.items()}
        fields_of = cls.model_fields
        removable = {n for n, v in given.items() if v is None and not fields_of[n].is_required()}
        values = validate_fields(
            cls,
            {name: value for name, value in given.items() if name not in removable},
            where=f"setting fields of {cls.__name__}",
        )
        dumped = dump_fields(cls, values)
        changes: dict[str, AttributeValue | None] = {names[name]: None for name in removable}
        for name, value in dumped.items():
            path = f"{cls.__name__}.{name}"
            changes[names[name]] = None if _is_absent(value) else encode(value, path)
        reserved = schema.key_attributes & changes.keys()
        if reserved:
            named = ", ".join(sorted(reserved))
            raise ValueError(f"{cls.__name__}: a key attribute cannot be set: {named}")
        return changes


# A field of one of these names would hide a method that the framework calls.
_PUBLIC_NAMES = frozenset(
    {"key", "query", "upcast", "upcasts", "item_key", "attributes", "set_attributes"}
)


def spec_of(entity: type[Entity]) -> EntitySpec:
    """Return the entity's declarations.

    Raises:
        DeclarationError: it has no keys of its own.
    """
    if entity.__entity__ is None:
        declaration = getattr(entity, "__declaration__", None) or Declaration.of(entity)
        raise DeclarationError(f"{declaration}: {entity.__keyless__}")
    return entity.__entity__


def built_key(item: Entity) -> tuple[str, str | None]:
    """Return the texts of the key that an item's fields build, even if it was read with another."""
    return spec_of(type(item)).build(item)


def attribute_names(entity: type[Entity]) -> dict[str, str]:
    """Return the attribute that stores each field, by field name."""
    return {name: field.serialization_alias or name for name, field in entity.model_fields.items()}


@lru_cache(maxsize=1024)
def _in_key(entity: type[Entity], schema: TableSchema) -> frozenset[str]:
    """Return the key attributes of a table that store fields of the entity's key."""
    names = attribute_names(entity)
    return schema.key_attributes & {names[name] for name in spec_of(entity).key_names}


def _is_absent(value: object) -> bool:
    return value is None or (not value and isinstance(value, AbstractSet))


def _difference(missing: list[str], extra: list[str]) -> str:
    parts = {"needs": missing, "does not take": extra}
    return " and ".join(f"{verb} {', '.join(names)}" for verb, names in parts.items() if names)

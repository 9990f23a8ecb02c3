"""Keys and indexes as values: what an entity's templates build.

They are frozen, know their entity for the type checker, and hold key *strings*. The names and types
of the attributes come from a `TableSchema` only when a request is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from streamkit.errors import DeclarationError
from streamkit.model.codec import AttributeValue, encode_key, key_digest
from streamkit.model.declaration import Declaration
from streamkit.model.key_fields import KeyFields
from streamkit.model.parts import suffix
from streamkit.model.schema import KeyAttributes, TableSchema
from streamkit.model.templates import KeyTemplate

if TYPE_CHECKING:
    from streamkit.entity import Entity

E_co = TypeVar("E_co", bound="Entity", covariant=True)


StoredKey = tuple[str, str | None, tuple[str, ...]]
"""The key that an item was read with, and the fields that only the key holds."""


@dataclass(frozen=True, slots=True)
class Key(Generic[E_co]):
    """The primary key of one item and its entity; for a spread group, the key of one part.

    `fields` are what the key says of its item. Those that are `unstored` have no attribute in the
    item that the key was read from, and an update writes none.
    """

    entity: type[E_co]
    pk: str
    sk: str | None = None
    fields: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)
    part: int = field(default=0, repr=False)
    unstored: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        """Hash only what nearly always differs, because keys are looked up all the time."""
        return hash((self.pk, self.sk, self.part))

    def wire(self, schema: TableSchema) -> dict[str, AttributeValue]:
        """Return the key attributes as requests take them.

        Raises:
            ValueError: the table has a sort key and this key does not.
        """
        return wire_key(schema, self.entity, self.pk, self.sk, suffix(self.part))

    def parts(self) -> "tuple[Self, ...]":
        """Return the keys of all parts of the group; for an entity that is not spread, this key."""
        spread = self.entity.__parts__
        return tuple(replace(self, part=n) for n in range(spread.count)) if spread else (self,)

    def field_attributes(self, schema: TableSchema) -> Mapping[str, AttributeValue]:
        """Return the attributes that the key determines: its fields, and the type."""
        # A field that is stored as the key itself exists already, and no update may set it.
        stored = self.entity.model_fields
        fields = {
            name: value
            for name, value in self.fields
            if (stored[name].serialization_alias or name) not in schema.key_attributes
        }
        known = self.entity.set_attributes(schema, fields)
        attributes = {name: value for name, value in known.items() if value is not None}
        spec = self.entity.__entity__
        if schema.type_attribute is not None and spec is not None:
            attributes[schema.type_attribute] = {"S": spec.type}
        return attributes

    @property
    def digest(self) -> str:
        """Return a short hash for logs: equal for equal keys, without revealing them."""
        ending = suffix(self.part)
        if self.sk is None:
            return key_digest(self.pk + ending)
        return key_digest(self.pk, self.sk + ending)


def wire_key(
    schema: TableSchema, entity: type[Any], pk: str, sk: str | None, ending: str = ""
) -> dict[str, AttributeValue]:
    """Return the key attributes of an item; `ending` is the suffix of its part of the group.

    Raises:
        ValueError: the table has a sort key and the item does not.
    """
    if schema.sk is None or schema.sk_type is None:
        return {schema.pk: encode_key(pk + ending, schema.pk_type)}
    if sk is None:
        raise ValueError(f"{entity.__name__} has no sk, but {schema.name} has one")
    return {
        schema.pk: encode_key(pk, schema.pk_type),
        schema.sk: encode_key(sk + ending, schema.sk_type),
    }


@dataclass(frozen=True, slots=True, init=False)
class Index:
    """A secondary index that an entity's items appear in.

    Declared on the entity as `by_day: ClassVar = Index("GSI1", pk="DEALS#{day}")`. With `when`, an
    item for which it is false has none of the index's attributes (a sparse index). The names of the
    attributes are looked up by the index's name unless they are given.

    A key of a global index may be fields of the entity instead of a template, as in
    `Index("GSI2", pk=("tournament", "region"), sk=("round", "bracket"))`: their attributes are the
    key, in the table's definition too, and nothing else is written.
    """

    name: str
    pk: KeyTemplate | KeyFields
    sk: KeyTemplate | KeyFields | None
    when: Callable[[Any], bool] | None
    pk_attribute: str | None
    sk_attribute: str | None
    declaration: Declaration = field(compare=False, repr=False)
    counts: tuple[int, int] = field(compare=False, repr=False)

    def __init__(
        self,
        name: str,
        *,
        pk: str | tuple[str, ...],
        sk: str | tuple[str, ...] | None = None,
        when: Callable[[Any], bool] | None = None,
        pk_attribute: str | None = None,
        sk_attribute: str | None = None,
    ) -> None:
        declaration = Declaration.here(f"index {name}")
        for word, key in (("pk", pk), ("sk", sk or ()), ("name", name)):
            if not isinstance(key, str if word == "name" else str | tuple):
                raise DeclarationError(f"{declaration}: {word}={key!r}: it is a text, or fields")
        values = {
            "name": name,
            "pk": _read(pk, declaration),
            "sk": None if sk is None else _read(sk, declaration),
            "when": when,
            "pk_attribute": pk_attribute,
            "sk_attribute": sk_attribute,
            "declaration": declaration,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)
        object.__setattr__(self, "counts", (_count(self.pk), _count(self.sk)))
        self._check()

    def _check(self) -> None:
        if self.when is not None and not callable(self.when):
            raise DeclarationError(f"{self.declaration}: when={self.when!r}: it is a function")
        by_fields = [isinstance(key, KeyFields) for key in (self.pk, self.sk)]
        fields = [
            name for key in (self.pk, self.sk) if isinstance(key, KeyFields) for name in key.fields
        ]
        if len({*fields}) < len(fields):
            raise DeclarationError(f"{self.declaration}: a field is in its keys twice")
        if (by_fields[0] and self.pk_attribute) or (by_fields[1] and self.sk_attribute):
            raise DeclarationError(
                f"{self.declaration}: a key of fields has their attributes; leave out pk_attribute"
                " and sk_attribute, and let an alias say how a field is stored"
            )
        if self.when is not None and by_fields[0] and (by_fields[1] or self.sk is None):
            raise DeclarationError(
                f"{self.declaration}: nothing but its own fields decides whether an item is in this"
                " index; leave out when=, and let one of them be None in an item that is not"
            )

    def attributes(self, item: "Entity", schema: TableSchema) -> dict[str, AttributeValue]:
        """Return the key attributes to be written into an item; none if `when` is false for it."""
        if self.when is not None and not self.when(item):
            return {}
        pk, sk = self.key_attributes(schema)
        attributes: dict[str, AttributeValue] = {}
        if isinstance(self.pk, KeyTemplate):
            name, kind = pk[0]
            attributes[name] = encode_key(self.pk.build(item), kind)
        if isinstance(self.sk, KeyTemplate):
            name, kind = sk[0]
            attributes[name] = encode_key(self.sk.build(item), kind)
        return attributes

    def key_attributes(self, schema: TableSchema) -> tuple[KeyAttributes, KeyAttributes]:
        """Return names and types of the attributes of the index's partition key and sort key.

        Raises:
            DeclarationError: the table does not have this index, or not with as many attributes.
        """
        known = schema.indexes.get(self.name)
        pk: KeyAttributes = known.pk if known else ()
        sk: KeyAttributes = known.sk if known else ()
        if self.pk_attribute:
            pk = ((self.pk_attribute, pk[0][1] if pk else "S"),)
        if self.sk_attribute:
            sk = ((self.sk_attribute, sk[0][1] if sk else "S"),)
        if not pk:
            others = ", ".join(sorted(schema.indexes)) or "none"
            raise DeclarationError(
                f"{self.declaration}: {schema.name} has no index {self.name} (it has {others});"
                " correct the name, or add the index to the table"
            )
        if (len(pk), len(sk)) == self.counts:
            return pk, sk
        title, there = ("sort", sk) if len(pk) == self.counts[0] else ("partition", pk)
        names = ", ".join(name for name, _ in there)
        has = f"the {title} key {names}" if there else f"no {title} key"
        raise DeclarationError(f"{self.declaration}: {self.name} of {schema.name} has {has}")


def _read(key: str | tuple[str, ...], declaration: Declaration) -> KeyTemplate | KeyFields:
    if isinstance(key, str):
        return KeyTemplate.parse(key, declaration)
    return KeyFields.read(key, declaration)


def _count(key: KeyTemplate | KeyFields | None) -> int:
    if isinstance(key, KeyFields):
        return len(key.fields)
    return 0 if key is None else 1

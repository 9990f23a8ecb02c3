"""Keys, indexes and queries as values: what an entity's templates build.

They are frozen, know their entity for the type checker, and hold key *strings*. The names and types
of the attributes come from a `TableSchema` only when a request is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from streamkit.errors import DeclarationError
from streamkit.model.codec import AttributeValue, encode_key, key_digest
from streamkit.model.declaration import Declaration
from streamkit.model.fields import validate_fields
from streamkit.model.parts import suffix
from streamkit.model.schema import TableSchema
from streamkit.model.templates import LAST_CHARACTER, KeyTemplate, Placeholder

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
    """

    name: str
    pk: KeyTemplate
    sk: KeyTemplate | None
    when: Callable[[Any], bool] | None
    pk_attribute: str | None
    sk_attribute: str | None
    declaration: Declaration = field(compare=False, repr=False)

    def __init__(
        self,
        name: str,
        *,
        pk: str,
        sk: str | None = None,
        when: Callable[[Any], bool] | None = None,
        pk_attribute: str | None = None,
        sk_attribute: str | None = None,
    ) -> None:
        declaration = Declaration.here(f"index {name}")
        values = {
            "name": name,
            "pk": KeyTemplate.parse(pk, declaration),
            "sk": None if sk is None else KeyTemplate.parse(sk, declaration),
            "when": when,
            "pk_attribute": pk_attribute,
            "sk_attribute": sk_attribute,
            "declaration": declaration,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    def attributes(self, item: "Entity", schema: TableSchema) -> dict[str, AttributeValue]:
        """Return the index's key attributes for an item; none if `when` is false for it."""
        if self.when is not None and not self.when(item):
            return {}
        (pk_name, pk_type), sort = self.key_attributes(schema)
        attributes = {pk_name: encode_key(self.pk.build(item), pk_type)}
        if self.sk is not None and sort is not None:
            attributes[sort[0]] = encode_key(self.sk.build(item), sort[1])
        return attributes

    def key_attributes(self, schema: TableSchema) -> tuple[tuple[str, str], tuple[str, str] | None]:
        """Return name and type of the index's partition key, and of its sort key if it has one.

        Raises:
            DeclarationError: the table does not have this index, or not with these keys.
        """
        known = schema.indexes.get(self.name)
        pk = self.pk_attribute or (known.pk if known else None)
        sk = self.sk_attribute or (known.sk if known else None)
        if pk is None:
            there = ", ".join(sorted(schema.indexes)) or "none"
            raise DeclarationError(
                f"{self.declaration}: {schema.name} has no index {self.name} (it has {there});"
                " correct the name, or add the index to the table"
            )
        if (self.sk is None) != (sk is None):
            has = "no sort key" if sk is None else f"the sort key {sk}"
            raise DeclarationError(f"{self.declaration}: {self.name} of {schema.name} has {has}")
        pk_type = known.pk_type if known else "S"
        sk_type = (known.sk_type if known else None) or "S"
        return (pk, pk_type), (None if sk is None else (sk, sk_type))


@dataclass(frozen=True, slots=True)
class Scan(Generic[E_co]):
    """Every item of an entity that is in an index (a sparse one finds few), or in the table."""

    entity: type[E_co]
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class Query(Generic[E_co]):
    """Items of one entity under one partition key, of the table or of an index.

    The sort key is bounded by `sk_prefix`, or by `lower` and `upper` (both inclusive, either may be
    None), or not at all. Nothing is read until a `Table` receives the query.
    """

    entity: type[E_co]
    index: Index | None
    pk: str
    sk_prefix: str | None = None
    lower: str | None = None
    upper: str | None = None
    descending: bool = False
    maximum: int | None = None
    next_field: Placeholder | None = field(default=None, repr=False)

    def reverse(self) -> Self:
        """Return the query with the same items, last sort key first."""
        return replace(self, descending=not self.descending)

    def limit(self, count: int) -> Self:
        """Return the query limited to `count` items.

        Raises:
            ValueError: `count` is not positive.
        """
        if count < 1:
            raise ValueError(f"a query is limited to at least 1 item, not {count}")
        return replace(self, maximum=count)

    def between(self, low: Any = None, high: Any = None) -> Self:
        """Return the query bounded in its next sort-key field; `None` leaves a side open.

        The field is the first of the sort key's template that the query was not given. Both ends
        are inclusive: the upper one includes every key that begins with it.

        Raises:
            ValueError: every sort-key field is given already, or a bound does not fit the field.
        """
        following = self.next_field
        if following is None:
            raise ValueError(f"a query of {self.entity.__name__}: no sort-key field is left open")
        if following.is_descending:
            low, high = high, low
        prefix = self.sk_prefix or ""
        lower, upper = self.sk_prefix, prefix + LAST_CHARACTER if prefix else None
        if low is not None:
            lower = prefix + self._bound(following, low)
        if high is not None:
            upper = prefix + self._bound(following, high)
            if following.literal or not self._ends_with(following):
                upper += following.literal + LAST_CHARACTER
        return replace(self, sk_prefix=None, lower=lower, upper=upper, next_field=None)

    def _bound(self, placeholder: Placeholder, value: Any) -> str:
        where = f"a query of {self.entity.__name__}"
        values = validate_fields(self.entity, {placeholder.name: value}, where=where)
        return placeholder.render(values[placeholder.name], where)

    def _ends_with(self, placeholder: Placeholder) -> bool:
        spec = self.entity.__entity__
        template = self.index.sk if self.index else spec.sk if spec else None
        return template is not None and template.placeholders[-1] is placeholder

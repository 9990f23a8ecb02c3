"""Tell the items that a migration reads, and which of them are of one family. Pure.

A family has one old item, whose key is the family's. Where several items become one (`merge`),
those with the same fields in their keys are of one family, at most one of each entity; its key is
that of the first entity's item, whether or not that is there.

In: items and keys as they are stored. Out: entities, keys and places, and the queries that find the
parts of a split. On failure: `TransformError` for a key that cannot be read back; an item of such a
key is a family of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from streamkit.core.matching import Matcher
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.kinds.migration import Migration
from streamkit.migrate.items.rewrites import Key, TransformError, WireItem, visible
from streamkit.model.codec import key_text
from streamkit.model.declaration import named
from streamkit.model.queries import Query
from streamkit.model.schema import TableSchema
from streamkit.progress.scan.places import place_text
from streamkit.stream.decode import ImageDecoder
from streamkit.stream.decode.keyed import key_reader


class Sources:
    """The items that one migration reads; `others` are the app's entities."""

    def __init__(
        self, migration: Migration, schema: TableSchema, others: Iterable[type[Entity]]
    ) -> None:
        self._schema = schema
        self._declared = migration.declared
        known = (*others, *migration.names)
        self._entities = {
            one: (Matcher(one, schema, known), ImageDecoder(one, schema))
            for one in migration.sources
        }
        self._own = {one: self._attributes(one) for one in migration.sources}

    @property
    def are_several(self) -> bool:
        """Whether several items become one."""
        return len(self._entities) > 1

    @property
    def own(self) -> frozenset[str]:
        """The attributes that one of the entities stores, keys and type included."""
        return frozenset[str]().union(*self._own.values())

    def _attributes(self, entity: type[Entity]) -> frozenset[str]:
        schema = self._schema
        own = set(attribute_names(entity).values()) | schema.key_attributes
        for index in spec_of(entity).indexes.values():
            pk, sk = index.key_attributes(schema)
            own |= {name for name, _ in pk + sk}
        if schema.type_attribute is not None:
            own.add(schema.type_attribute)
        return frozenset(own)

    def matches(self, item: WireItem) -> bool:
        """Return whether an item, in wire form, is one of them."""
        return any(matcher.matches(item) for matcher, _ in self._entities.values())

    def entity_of(self, item: WireItem) -> type[Entity]:
        """Return the entity of an item that matches."""
        for one, (matcher, _) in self._entities.items():
            if matcher.matches(item):
                return one
        return next(iter(self._entities))

    def entity(self, item: WireItem) -> Entity:
        """Return an item as its entity.

        Raises:
            DecodeError: it does not fit.
        """
        found: Entity = self._entities[self.entity_of(item)][1].decode_item(visible(item))
        return found

    def carried(self, item: WireItem, items: Iterable[WireItem]) -> WireItem:
        """Return what several items become, with the attributes that their entities do not know.

        Raises:
            TransformError: there are two of one name.
        """
        found = dict(item)
        for one in items:
            own = self._own[self.entity_of(one)]
            for name, value in visible(one).items():
                if name not in own and found.setdefault(name, value) != value:
                    raise TransformError(
                        f"{self._declared}: two of the items that become one have an attribute"
                        f" {name}: say in their entities what becomes of it"
                    )
        return found

    # -- families ------------------------------------------------------------------------------

    def family(self, key: Key) -> Key:
        """Return the key of the family of an old item, or of its key."""
        own = self._schema.key_of(key)
        if not self.are_several:
            return own
        try:
            return next(iter(self._keys(own).values()))
        except TransformError:
            return own

    def places(self, key: Key) -> dict[str, str]:
        """Return the places of the old items of a family, each with the name of its entity.

        Raises:
            TransformError: which items are of this family cannot be told from the key.
        """
        own = self._schema.key_of(key)
        if not self.are_several:
            return {place_text(own): ""}
        return {place_text(one): entity.__name__ for entity, one in self._keys(own).items()}

    def _keys(self, key: Key) -> Mapping[type[Entity], Key]:
        entity, schema = self.entity_of(key), self._schema
        sk = None if schema.sk is None else key_text(key[schema.sk])
        fields = key_reader(entity).read(key_text(key[schema.pk]), sk)
        fields = {name: one for name, one in fields.items() if name in spec_of(entity).key_names}
        try:
            found = {one: one.key(**fields).wire(schema) for one in self._entities}
        except ValueError:
            found = {}
        if found.get(entity) != dict(key):
            raise TransformError(
                f"{self._declared}: from the key of a {entity.__name__} cannot be told which items"
                " become one with it"
            )
        return found


def queries_of_parts(migration: Migration, item: Entity) -> list[Query[Any]]:
    """Return the queries that find the parts of an item; none without `collect=`.

    Raises:
        TransformError: it returns something else, or a query that does not see every part at once.
    """
    if migration.collect is None:
        return []
    result: Any = migration.collect(item)
    queries = result if isinstance(result, list | tuple) else [result]
    part = migration.target or Entity
    for one in queries:
        if not isinstance(one, Query) or not issubclass(one.entity, part):
            of = f" of {one.entity.__name__}" if isinstance(one, Query) else ""
            raise TransformError(
                f"{migration.declared}: collect= returns a query of the parts, as in"
                f" {part.__name__}.query(...), or a list of such, not {named(one)}{of}"
            )
        if one.index is not None or one.maximum is not None:
            raise TransformError(
                f"{migration.declared}: collect= finds all parts in the table itself: leave the"
                " index, which trails it, and the limit out"
            )
    return list(queries)

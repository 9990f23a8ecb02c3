"""Shapes: the table that an app's entities fit, for `CreateTable`. Pure, except for `create`.

    SHAPE = TableShape(ttl="expires", indexes={"UserIndex": IndexShape(pk="Username", project=())})
    await SHAPE.create(aws.dynamodb, app.table, entities_of(app))

In: entities, which say what keys and indexes they need, and a shape, which says what they cannot:
the names of attributes, the types of keys, the attributes of an index. Out: requests. For examples,
tests and first steps; make a production table as you make your other tables.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamkit.core.consumer import Consumer
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import ConfigurationError
from streamkit.model.declaration import by_known_fields, check_types
from streamkit.model.key_fields import KeyFields
from streamkit.model.keys import Index
from streamkit.stream.decode.fast import stored_kind

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
KeyType = Literal["S", "N", "B"]
Declared = list[tuple[type[Entity], Index]]


@by_known_fields
@dataclass(frozen=True, slots=True)
class IndexShape:
    """What entities do not say about an index.

    Attributes:
        pk: its partition key's attribute; by default what the entities say, else `<index>PK`.
        sk: its sort key's, likewise; it has one if an entity declares one.
        pk_type: `S`, `N` or `B`.
        sk_type: `S`, `N` or `B`.
        project: the attributes it carries beside the keys; None for all, `()` for keys alone.

    Raises:
        DeclarationError: there is no such argument, or a value is of another type.
    """

    pk: str | None = None
    sk: str | None = None
    pk_type: KeyType = "S"
    sk_type: KeyType = "S"
    project: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def projection(self) -> dict[str, Any]:
        """Return what the index carries, in the form of requests."""
        if self.project is None:
            return {"ProjectionType": "ALL"}
        if not self.project:
            return {"ProjectionType": "KEYS_ONLY"}
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(self.project)}


@by_known_fields
@dataclass(frozen=True, slots=True)
class TableShape:
    """What entities do not say about their table.

    Attributes:
        pk: the partition key's attribute.
        sk: the sort key's; None, or entities that have none, for a table without one.
        pk_type: `S`, `N` or `B`.
        sk_type: `S`, `N` or `B`.
        ttl: the attribute by which items expire.
        indexes: by name, those that need more than the entities say.

    Raises:
        DeclarationError: there is no such argument, or a value is of another type.
    """

    pk: str = "PK"
    sk: str | None = "SK"
    pk_type: KeyType = "S"
    sk_type: KeyType = "S"
    ttl: str | None = None
    indexes: Mapping[str, IndexShape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)

    def create_table(
        self, name: str, entities: Iterable[type[Entity]], *, stream: bool = True
    ) -> dict[str, Any]:
        """Return the `CreateTable` request: on demand, with a stream of both images.

        Raises:
            ConfigurationError: no table can have the name.
        """
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"App(table={name!r}): DynamoDB takes names of 3 to 255 letters, digits, '_', '-'"
                " and '.'"
            )
        entities = tuple(entities)
        sorted_items = not entities or any(spec_of(entity).sk for entity in entities)
        keys = {self.pk: self.pk_type}
        if self.sk is not None and sorted_items:
            keys[self.sk] = self.sk_type
        types: dict[str, KeyType] = {**keys}
        indexes = []
        for index, declared in _indexes(entities).items():
            shape = self.indexes.get(index, IndexShape())
            pk, sk = self._pk(index, shape, declared), self._sk(index, shape, declared)
            types |= pk | sk
            indexes.append(
                {
                    "IndexName": index,
                    "KeySchema": _key_schema(pk, sk),
                    "Projection": shape.projection,
                }
            )
        request: dict[str, Any] = {
            "TableName": name,
            "KeySchema": _key_schema([*keys][:1], [*keys][1:]),
            "AttributeDefinitions": [
                {"AttributeName": attribute, "AttributeType": kind}
                for attribute, kind in sorted(types.items())
            ],
            "BillingMode": "PAY_PER_REQUEST",
        }
        if indexes:
            request["GlobalSecondaryIndexes"] = indexes
        if stream:
            view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
            request["StreamSpecification"] = view
        return request

    def time_to_live(self, name: str) -> dict[str, Any] | None:
        """Return the `UpdateTimeToLive` request; None if nothing expires."""
        if self.ttl is None:
            return None
        setting = {"AttributeName": self.ttl, "Enabled": True}
        return {"TableName": name, "TimeToLiveSpecification": setting}

    async def create(
        self, dynamodb: Any, name: str, entities: Iterable[type[Entity]], *, stream: bool = True
    ) -> None:
        """Create the table, wait until it is there, and switch expiry on."""
        await dynamodb.create_table(**self.create_table(name, entities, stream=stream))
        await dynamodb.get_waiter("table_exists").wait(TableName=name)
        expiry = self.time_to_live(name)
        if expiry is not None:
            await dynamodb.update_time_to_live(**expiry)

    def _pk(self, name: str, shape: IndexShape, declared: Declared) -> dict[str, KeyType]:
        """Return the attributes of an index's partition key, with their types."""
        fields = _field_types((entity, index.pk) for entity, index in declared)
        if fields:
            return fields
        said = next((i.pk_attribute for _, i in declared if i.pk_attribute), f"{name}PK")
        pk = shape.pk or said
        return {pk: self._type_of(pk, shape.pk_type)}

    def _sk(self, name: str, shape: IndexShape, declared: Declared) -> dict[str, KeyType]:
        """Return the attributes of an index's sort key, with their types."""
        fields = _field_types((entity, index.sk) for entity, index in declared)
        if fields or not any(index.sk for _, index in declared):
            return fields
        said = next((i.sk_attribute for _, i in declared if i.sk_attribute), f"{name}SK")
        sk = shape.sk or said
        return {sk: self._type_of(sk, shape.sk_type)}

    def _type_of(self, attribute: str, said: KeyType) -> KeyType:
        """Return the type of an index's key attribute, which may be one of the table's keys."""
        return {self.pk: self.pk_type, self.sk: self.sk_type}.get(attribute, said)


def entities_of(app: Consumer) -> tuple[type[Entity], ...]:
    """Return the entities of an app and its listeners that say something of their table, each once.

    One that annotations alone name, because handlers only write it, adds the indexes that no other
    entity declares; it may be for another table, so nothing else follows from it.
    """
    consumers = (app, *app.listeners.values())
    own = dict.fromkeys(entity for one in consumers for entity in one.entities)
    declared, is_sorted = _indexes(own), any(spec_of(entity).sk for entity in own)
    for entity in (entity for one in consumers for entity in one.named):
        spec = spec_of(entity)
        new = {index.name for index in spec.indexes.values()} - declared.keys()
        if new and (is_sorted or spec.sk is None):
            own[entity] = None
    return tuple(own)


def _indexes(entities: Iterable[type[Entity]]) -> dict[str, Declared]:
    """Return the entities' declarations of each index."""
    found: dict[str, Declared] = {}
    for entity in entities:
        for index in spec_of(entity).indexes.values():
            found.setdefault(index.name, []).append((entity, index))
    return found


def _field_types(keys: Iterable[tuple[type[Entity], object]]) -> dict[str, KeyType]:
    """Return the attributes of the first key that consists of fields, with their types."""
    for entity, key in keys:
        if isinstance(key, KeyFields):
            stored, fields = attribute_names(entity), entity.model_fields
            kinds: dict[str | None, KeyType] = {"N": "N", "B": "B"}
            return {stored[name]: kinds.get(stored_kind(fields[name]), "S") for name in key.fields}
    return {}


def _key_schema(pk: Iterable[str], sk: Iterable[str]) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for kind, names in (("HASH", pk), ("RANGE", sk))
        for name in names
    ]

"""A table's schema, from `DescribeTable`: key attributes, indexes, stream; pure data.

Entities name indexes, not attributes, so that one declaration serves tables with differently named
key attributes; the attribute names come from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

V = TypeVar("V")

Projection = Literal["ALL", "KEYS_ONLY", "INCLUDE"]

KeyAttributes = tuple[tuple[str, str], ...]
"""The attributes of a partition or sort key in their order, with their types."""


@dataclass(frozen=True, slots=True)
class IndexSchema:
    """One secondary index: its key attributes with their types, and what it projects.

    Each key of a global index has up to four attributes. `sk` is empty if there is no sort key. An
    index that is being created is not active: it cannot be read.
    """

    name: str
    pk: KeyAttributes
    sk: KeyAttributes
    projection: Projection
    included: frozenset[str]
    is_global: bool
    is_active: bool = True

    @property
    def keys(self) -> KeyAttributes:
        """Return the attributes that an item needs to be in the index."""
        return self.pk + self.sk


@dataclass(frozen=True, slots=True, eq=False)
class TableSchema:
    """A table's key attributes, indexes, TTL and type attributes, and its stream.

    Two schemas are equal only if they are the same object, so that results can be cached by schema.
    """

    name: str
    pk: str
    sk: str | None
    pk_type: str
    sk_type: str | None
    indexes: Mapping[str, IndexSchema]
    ttl: str | None = None
    stream_arn: str | None = None
    view_type: str | None = None
    type_attribute: str | None = None

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        *,
        ttl: str | None = None,
        type_attribute: str | None = None,
    ) -> Self:
        """Read the `Table` member of a `DescribeTable` reply.

        `ttl` comes from `DescribeTimeToLive`, and `type_attribute` from the app.
        """
        types = {
            attribute["AttributeName"]: attribute["AttributeType"]
            for attribute in description["AttributeDefinitions"]
        }
        pk, sk = _keys(description["KeySchema"])
        indexes = [
            _index(index, types, is_global=is_global)
            for member, is_global in (
                ("GlobalSecondaryIndexes", True),
                ("LocalSecondaryIndexes", False),
            )
            for index in description.get(member) or ()
        ]
        stream = description.get("StreamSpecification") or {}
        enabled = bool(stream.get("StreamEnabled"))
        return cls(
            name=description["TableName"],
            pk=pk,
            sk=sk,
            pk_type=types[pk],
            sk_type=types[sk] if sk is not None else None,
            indexes={index.name: index for index in indexes},
            ttl=ttl,
            # A disabled stream keeps its ARN in the description; it gets no new records.
            stream_arn=description.get("LatestStreamArn") if enabled else None,
            view_type=stream.get("StreamViewType") if enabled else None,
            type_attribute=type_attribute,
        )

    @property
    def key_attributes(self) -> frozenset[str]:
        """Return the names of the primary key's attributes."""
        return frozenset({self.pk} if self.sk is None else {self.pk, self.sk})

    @property
    def stream_label(self) -> str:
        """Return the label of the stream, which is when it was enabled; empty without one."""
        return (self.stream_arn or "").rpartition("/")[2]

    @property
    def indexes_created(self) -> list[str]:
        """Return the indexes that cannot be read yet: DynamoDB is filling them."""
        return sorted(name for name, index in self.indexes.items() if not index.is_active)

    def key_of(self, item: Mapping[str, V]) -> dict[str, V]:
        """Return the attributes of an item that are its primary key."""
        return {name: item[name] for name in self.key_attributes}

    @property
    def reserved_attributes(self) -> frozenset[str]:
        """Return the attributes that streamkit writes: keys, index keys and the type attribute.

        Several attributes that are one key of an index are fields of the items.
        """
        names = {self.pk, self.sk, self.type_attribute}
        for index in self.indexes.values():
            names |= {key[0][0] for key in (index.pk, index.sk) if len(key) == 1}
        return frozenset(name for name in names if name is not None)


def _keys(key_schema: list[dict[str, str]]) -> tuple[str, str | None]:
    by_role = {key["KeyType"]: key["AttributeName"] for key in key_schema}
    return by_role["HASH"], by_role.get("RANGE")


def _attributes(
    key_schema: list[dict[str, str]], types: Mapping[str, str], role: str
) -> KeyAttributes:
    names = [key["AttributeName"] for key in key_schema if key["KeyType"] == role]
    return tuple((name, types[name]) for name in names)


def _index(index: Mapping[str, Any], types: Mapping[str, str], *, is_global: bool) -> IndexSchema:
    projection = index.get("Projection") or {}
    return IndexSchema(
        name=index["IndexName"],
        pk=_attributes(index["KeySchema"], types, "HASH"),
        sk=_attributes(index["KeySchema"], types, "RANGE"),
        projection=projection.get("ProjectionType", "ALL"),
        included=frozenset(projection.get("NonKeyAttributes") or ()),
        is_global=is_global,
        # A local index has no status.
        is_active=index.get("IndexStatus", "ACTIVE") in ("ACTIVE", "UPDATING"),
    )

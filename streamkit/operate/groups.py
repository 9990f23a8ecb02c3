"""The groups of aggregates in which an item counts, named by hashes of their keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.app import App
from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, DecodeError
from streamkit.kinds.aggregate.aggregate import fields_read, source_of
from streamkit.kinds.aggregate.contributions import contributions
from streamkit.model.schema import TableSchema
from streamkit.stream.decode.images import ImageDecoder


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an aggregate in which the item counts, by the hash of the group's key."""

    aggregate: str
    key: str


def groups_of(
    consumers: Sequence[App],
    entity: type[Entity] | None,
    item: Mapping[str, Any] | None,
    schema: TableSchema,
) -> tuple[tuple[Group, ...], str | None]:
    """Return the groups that an item counts in, and the reason if they cannot be computed."""
    counting = [a for one in consumers for a in one.aggregates if source_of(a) is entity]
    if entity is None or item is None:
        return (), None
    try:
        decode = ImageDecoder(entity, schema).decode_item
        found = [
            Group(one.__name__, key.digest)
            for one in counting
            for key in contributions(one, decode(item, fields_read(one)))
        ]
        return tuple(found), None
    except DecodeError as error:
        return (), str(error)
    except USER_ERRORS as error:  # an aggregate's own code; a worker parks the change
        return (), f"its groups cannot be told: {type(error).__name__}"

"""The groups of aggregates in which an item counts, named by hashes of their keys."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.app import App
from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, DecodeError
from streamkit.kinds.aggregate.aggregate import Aggregate, fields_read, source_of
from streamkit.kinds.aggregate.contributions import contributions
from streamkit.model.keys import Key
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
        found = [_groups_in(one, decode(item, fields_read(one))) for one in counting]
        return tuple(itertools.chain(*found)), None
    except DecodeError as error:
        return (), str(error)
    except USER_ERRORS as error:  # an aggregate's own code; a worker parks the change
        return (), f"its groups cannot be told: {type(error).__name__}"


def _groups_in(aggregate: type[Aggregate[Any]], item: Entity) -> Iterator[Group]:
    keys: Mapping[Key[Any], Any] = contributions(aggregate, item)
    for key in keys:
        yield Group(aggregate.__name__, key.digest)

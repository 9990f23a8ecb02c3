"""Keep the index keys of an item that a migration sets fields of. Pure.

A function that returns `Set(status=...)` leaves the rest of the item, and a key like
`STATUS#{status}` has to follow. It becomes what a put of the item would store, unless the function
sets the attribute itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.migrate.items.rewrites import Image, wire
from streamkit.model.codec import decode_item
from streamkit.model.index_keys import decided_by, templates_of
from streamkit.model.schema import TableSchema


def follow_indexes(
    entity: type[Entity],
    schema: TableSchema,
    read: Callable[[Mapping[str, Any]], Entity],
    shown: Image,
    sets: Image,
    removes: set[str],
) -> frozenset[str]:
    """Add the index keys that follow to what is set and removed; return what decides them.

    Args:
        entity: the migration's entity.
        schema: its table.
        read: makes an entity of an item in wire form.
        shown: the item as it is.
        sets: the attributes that are set; keys are added.
        removes: the attributes that are removed; keys are added.

    Raises:
        DecodeError: the item, as it will be, does not fit the entity.
    """
    names, written = attribute_names(entity), sets.keys() | removes
    decides = frozenset[str]()
    for index in spec_of(entity).indexes.values():
        halves = [half for half in templates_of(index, schema) if half[1] not in written]
        fields = {name for template, *_ in halves for name in template.fields}
        fields |= decided_by(entity, index)
        attributes = {names[name] for name in fields}
        if not halves or not attributes & written:
            continue
        decides |= attributes
        after = {n: value for n, value in {**shown, **sets}.items() if n not in removes}
        keys = decode_item(index.attributes(read(wire(after)), schema))
        for _, name, _ in halves:
            if name in keys:
                sets[name] = keys[name]
            else:
                removes.add(name)
    return decides

"""Keep the index keys of an item that a migration sets fields of. Pure.

A function that returns `Set(status=...)` leaves the rest of the item, and a key like
`STATUS#{status}` has to follow. It becomes what a put of the item would store, unless the function
sets the attribute itself. The item's own key cannot follow: a field in it may only become what the
key says.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from streamkit.entity import Entity, attribute_names, built_key, spec_of
from streamkit.errors import DecodeError
from streamkit.migrate.items.rewrites import Image, TransformError, wire
from streamkit.model.codec import decode_item
from streamkit.model.index_keys import decided_by, templates_of
from streamkit.model.keys import wire_key
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

    `shown` is the item as it is; `read` makes an entity of one in wire form.

    Raises:
        DecodeError: the item, as it will be, does not fit the entity.
        TransformError: a field of the item's key becomes another one.
    """
    names, written = attribute_names(entity), sets.keys() | removes
    new = {name for name, value in sets.items() if name not in shown or value != shown[name]}
    changed = [name for name in spec_of(entity).key_names if names[name] in new]
    if changed and _moves(entity, schema, read, {**shown, **sets}):
        told = ", ".join(f"{name}=" for name in changed)
        raise TransformError(f"Set({told}...): the item's key changes; that is mode='rekey'")
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


def key_types(schema: TableSchema) -> dict[str, tuple[str, str]]:
    """Return the type of each attribute that is an index's key, and the index's name."""
    indexes = schema.indexes.values()
    return {name: (kind, index.name) for index in indexes for name, kind in index.keys}


def _moves(
    entity: type[Entity],
    schema: TableSchema,
    read: Callable[[Mapping[str, Any]], Entity],
    after: Image,
) -> bool:
    """Return whether the fields of an item build another key than it has."""
    with suppress(DecodeError):  # nobody can read it, so nobody finds another item in it
        key = wire_key(schema, entity, *built_key(read(wire(after))))
        return any(value != after[name] for name, value in decode_item(key).items())
    return False

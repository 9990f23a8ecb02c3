"""Build the writes to one item of a migration, as actions conditional on what was read. Pure.

In: an item as it was read, and what it becomes. Out: an `Action` of one call or of a part of a
transaction; see `calls`. On failure: `TransformError` if more was read than one condition can hold.
"""

import uuid
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from streamkit.migrate.items.rewrites import Key, TransformError, WireItem, plain
from streamkit.model.conditions import AsRead, Condition, as_it_was, present
from streamkit.model.origin import ORIGIN, WriteOrigin, deletion
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Verb, Wire, item_ref

TERMS_MAX = 145
"""The most terms of a condition.

An expression takes 300 operators and functions; each term is one, and so is the AND before it.
Further conditions beside those on what was read have to fit, too.
"""
TEXT_MAX = 4000
"""An expression is 4 KB at most."""
_PRESENT, _ABSENT = len("#n12 = :v34 AND "), len("attribute_not_exists(#n123) AND ")


def origin_text(writer: str, *, deleting: bool = False) -> str:
    """Return the origin of an item that this migration writes, different each time."""
    unique = uuid.uuid4().hex[:12]
    return WriteOrigin("migration", 0).text(writer, deletion(unique) if deleting else unique)


def unchanged(schema: TableSchema, item: WireItem, reads: AbstractSet[str]) -> list[Condition]:
    """Return the conditions that an item exists and is what was read, in these attributes.

    It is also of the same type: of another entity's item, the migration's function says nothing.

    Raises:
        TransformError: too many attributes for one expression.
    """
    told = set() if schema.type_attribute is None else {schema.type_attribute}
    names = sorted((reads | told) - schema.key_attributes)
    text = sum(_PRESENT if name in item else _ABSENT for name in names)
    if len(names) >= TERMS_MAX or text > TEXT_MAX:
        raise TransformError(
            f"{len(reads)} attributes are read, more than one condition can hold; let the migration"
            " take the fields that it needs"
        )
    return [present, AsRead(names, item)]


def as_left(item: WireItem, name: str) -> list[Condition]:
    """Return the conditions that an item has the same owner, and is as its writer has left it.

    An origin is different with each write, so a process that is late is always refused.
    """
    return [*as_it_was((name, ORIGIN), plain(item))]


def check(schema: TableSchema, key: Key, conditions: Iterable[Condition]) -> Action:
    """Return the action that checks that an item is as the conditions say."""
    return Action(item_ref(schema, key), Verb.CHECK).only_if(*conditions)


def put(
    schema: TableSchema, item: WireItem, conditions: Iterable[Condition], writer: str
) -> Action:
    """Return the action that puts an item IF what is in its place is as the conditions say."""
    action = Action(item_ref(schema, item), Verb.PUT, dict(item))
    action.leave_origin(origin_text(writer))
    return action.only_if(*conditions)


def delete(schema: TableSchema, key: Key, conditions: Iterable[Condition]) -> Action:
    """Return the action that deletes an item IF it is as the conditions say."""
    return Action(item_ref(schema, key), Verb.DELETE).only_if(*conditions)


def update(
    schema: TableSchema,
    key: Key,
    conditions: Iterable[Condition],
    writer: str,
    *,
    sets: Mapping[str, Wire] | None = None,
    removes: Iterable[str] = (),
    origin: str = "",
) -> Action:
    """Return the action that sets and removes attributes IF an item is as the conditions say.

    `writer` is the migration's name in the item's origin, a new one unless `origin` is given.
    """
    ref = item_ref(schema, key)
    action = Action(ref, Verb.UPDATE, sets=dict(sets or {}), removes=set(removes))
    action.leave_origin(origin or origin_text(writer))
    return action.only_if(*conditions)

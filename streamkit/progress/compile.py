"""From effects to actions: attribute names and wire values instead of fields. Pure.

In: an effect, and the table that it goes to. Out: one action, with the effect's condition. On
failure: `ValueError` or `TypeError`, which is the failure of the handler that returned the effect.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Any

from streamkit.effects import Add, AddToSet, Check, Delete, Effect, Put, RemoveFromSet, Set
from streamkit.entity import attribute_names, spec_of
from streamkit.model.codec import decode
from streamkit.model.conditions import check_condition
from streamkit.model.fields import validate_fields
from streamkit.model.index_keys import index_keys, touches
from streamkit.model.keys import Key
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, GuardSource, ItemRef, Verb, Wire, item_ref
from streamkit.progress.own_effects import Accumulate, Owned, Store


def compile_effect(effect: Effect, schema: TableSchema, source: GuardSource) -> Action:
    """Turn an effect into an action on the table that `schema` describes.

    Raises:
        ValueError: a field is unknown or its value cannot be stored; the message names it.
        TypeError: it is not an effect of this module's kinds, or its condition is not one.
    """
    action = _compile(effect, schema)
    if effect.guard is not None:
        check_condition(effect.guard.condition)
        action.guards.append((effect.guard, source))
    return action


def _compile(effect: Effect, schema: TableSchema) -> Action:
    if isinstance(effect, Put):
        item = effect.entity.attributes(schema)
        if isinstance(effect, Owned):
            item |= {name: {"S": text} for name, text in effect.beside.items()}
        return Action(item_ref(schema, item), Verb.PUT, item=item)
    if isinstance(effect, Delete):
        return Action(item_ref(schema, effect.key.wire(schema)), Verb.DELETE)
    if isinstance(effect, Check):
        return Action(item_ref(schema, effect.key.wire(schema)), Verb.CHECK)
    if isinstance(effect, Accumulate):
        action = _upsert(effect.key, schema)
        action.adds.update(effect.amounts)
        action.sets |= effect.stored
        action.plain = effect.plain
        return action
    if isinstance(effect, Store):
        action = _upsert(effect.key, schema)
        for name, value in effect.attributes.items():
            if value is None:
                action.removes.add(name)
            else:
                action.sets[name] = dict(value)
        return action
    if isinstance(effect, Set | Add | AddToSet | RemoveFromSet):
        return _compile_update(effect, schema)
    raise TypeError(f"{type(effect).__name__} cannot be committed to a table")


_FieldEffects = Set[Any] | Add[Any] | AddToSet[Any] | RemoveFromSet[Any]


def _compile_update(effect: _FieldEffects, schema: TableSchema) -> Action:
    if effect.key is None:
        raise TypeError("a Set without a key is for migrations; here say which item it sets")
    action = _upsert(effect.key, schema)
    known = _beginning(effect.key, effect.key.fields, effect.key.unstored, schema)[2]
    attributes = effect.key.entity.set_attributes(schema, effect.fields)
    for name, value in attributes.items():
        if name in known and not _leaves(effect, value, known[name]):
            raise ValueError(
                f"{type(effect).__name__}: {name} is part of the item's key, or its type, and"
                " stays; delete the item and put another"
            )
        _update_attribute(action, effect, name, value)
    if spec_of(effect.key.entity).indexes:
        _update_index_keys(action, effect, schema)
    return action


def _update_index_keys(action: Action, effect: _FieldEffects, schema: TableSchema) -> None:
    """Let an update also write the index keys that follow from what it sets."""
    key = effect.key
    assert key is not None  # noqa: S101 - it was looked at
    entity, names = key.entity, attribute_names(key.entity)
    by_attribute = {attribute: name for name, attribute in names.items()}
    given = {n if n in names else by_attribute[n]: value for n, value in effect.fields.items()}
    if not touches(entity, given.keys()):
        return
    known = {name: value for name, value in key.fields if name not in given}
    if isinstance(effect, Set):
        set_ = {name: value for name, value in given.items() if value is not None}
        known |= validate_fields(entity, set_, where=f"setting fields of {entity.__name__}")
        known |= dict.fromkeys(given.keys() - set_.keys())
    for name, value in index_keys(entity, schema, known, given.keys()).items():
        if value is None:
            action.sets.pop(name, None)
            action.removes.add(name)
        else:
            action.sets[name] = value


def _leaves(effect: Effect, value: Wire | None, known: Wire) -> bool:
    return isinstance(effect, Set) and value is not None and decode(value) == decode(known)


def _upsert(key: Key[Any], schema: TableSchema) -> Action:
    """Begin an update that leaves a readable item, even if the item did not exist.

    So the fields in its key and its type are written along; they cost nothing when they exist.
    """
    ref, known, _ = _beginning(key, key.fields, key.unstored, schema)
    return Action(ref, Verb.UPDATE, sets=known.copy())


@lru_cache(maxsize=10_000)
def _beginning(
    key: Key[Any],
    fields: tuple[tuple[str, Any], ...],
    unstored: tuple[str, ...],
    schema: TableSchema,
) -> tuple[ItemRef, dict[str, Wire], dict[str, Wire]]:
    """Return an update's item, the attributes it writes along, and all that the key determines.

    The result is cached, because change after change writes the same few aggregates. Keys are equal
    whether they know their `fields` or not, but the attributes written along differ, so the fields
    are part of the cache key.
    """
    known = dict(key.field_attributes(schema))
    names = attribute_names(key.entity)
    hidden = {names[name] for name in unstored}
    along = {name: value for name, value in known.items() if name not in hidden}
    keys = index_keys(key.entity, schema, dict(fields)).items()
    along |= {name: value for name, value in keys if value is not None}
    return item_ref(schema, key.wire(schema)), along, known


def _update_attribute(action: Action, effect: Effect, name: str, value: Wire | None) -> None:
    if isinstance(effect, Set):
        if value is None:
            action.removes.add(name)
        else:
            action.sets[name] = value
    elif isinstance(effect, Add):
        if value is None or "N" not in value:
            raise ValueError(f"Add: {name} is not a number")
        action.adds[name] = Decimal(value["N"])
    elif value is None:
        return  # no members: nothing to add or remove
    elif not value.keys() & {"SS", "NS", "BS"}:
        raise ValueError(f"{type(effect).__name__}: {name} is not a set")
    elif isinstance(effect, AddToSet):
        action.unions[name] = value
    else:
        action.subtractions[name] = value

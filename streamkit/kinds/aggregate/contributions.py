"""Compute what one change adds to the groups of an aggregate, and where it is stored. Pure.

In: an aggregate, and a change's images. Out: one effect for each group that the change affects:
contribution(new) - contribution(old). On failure: what `group` or a measure raises, or
`ArithmeticError` for a number of more than 38 digits; the change is then parked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from streamkit.changes import Change
from streamkit.effects import Effect, Otherwise
from streamkit.entity import Entity
from streamkit.kinds.aggregate.aggregate import Aggregate, stored_as
from streamkit.model.codec import NUMBERS, AttributeValue
from streamkit.model.conditions import present
from streamkit.model.keys import Key
from streamkit.model.origin import LAST_CHANGE
from streamkit.model.parts import part_of_shard
from streamkit.progress.own_effects import Accumulate


def contributions(
    aggregate: type[Aggregate[Any]], item: Entity | None
) -> dict[Key[Any], dict[str, Decimal]]:
    """Return what one item image adds, by group and attribute; nothing for no item.

    Raises:
        TypeError: `group` returns a key of another entity.
    """
    keys = groups_of(aggregate, item)
    if not keys or item is None:
        return {}
    amounts: dict[str, Decimal] = {}
    for attribute, measure in aggregate.__measures__.items():
        amounts |= measure.amounts(attribute, item)
    return dict.fromkeys(keys, amounts)


def groups_of(aggregate: type[Aggregate[Any]], item: Entity | None) -> Sequence[Key[Any]]:
    """Return the keys of the groups that an item is in; none for no item.

    Raises:
        TypeError: `group` returns a key of another entity.
    """
    groups = None if item is None else aggregate.group(item)
    if groups is None:
        return ()
    keys = (groups,) if isinstance(groups, Key) else tuple(groups)
    stored = stored_as(aggregate)
    for key in keys:
        if getattr(key, "entity", None) is not stored:
            other = key.entity if isinstance(key, Key) else type(key)
            raise TypeError(f"group() returns keys of {stored.__name__}, not {other.__name__}")
    return keys if len(keys) == 1 else tuple(dict.fromkeys(keys))


def difference(
    aggregate: type[Aggregate[Any]], old: Entity | None, new: Entity | None
) -> list[Accumulate]:
    """Return the effects that turn the contributions of `old` into those of `new`."""
    return between(contributions(aggregate, old), contributions(aggregate, new))


def between(
    before: Mapping[Key[Any], Mapping[str, Decimal]],
    after: Mapping[Key[Any], Mapping[str, Decimal]],
) -> list[Accumulate]:
    """Return the effects that turn one set of contributions into another."""
    effects: list[Accumulate] = []
    if not before:
        for key, given in after.items():
            changed = given if all(given.values()) else _not_zero(given)
            if changed:
                effects.append(Accumulate(key, changed))
        return effects
    for key in {**before, **after}:
        taken, given = before.get(key, {}), after.get(key, {})
        amounts = {
            name: NUMBERS.subtract(given.get(name, Decimal(0)), taken.get(name, Decimal(0)))
            for name in {**taken, **given}
        }
        changed = _not_zero(amounts)
        if changed:
            effects.append(Accumulate(key, changed))
    return effects


def _not_zero(amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: amount for name, amount in amounts.items() if amount}


def placed(
    aggregate: type[Aggregate[Any]], effects: Iterable[Accumulate], change: Change[Any]
) -> list[Effect]:
    """Return contributions as the aggregate's options store them, without expired buckets.

    Raises:
        ValueError: a group has no moment where `Until` looks for one.
    """
    return placed_by(aggregate, effects, change.shard_id, change.event_id, change.created_at)


def placed_by(
    aggregate: type[Aggregate[Any]],
    effects: Iterable[Accumulate],
    writer: str,
    event: str,
    at: datetime,
) -> list[Effect]:
    """Return the same for contributions that do not come from a change.

    Args:
        aggregate: the aggregate of the contributions.
        effects: the contributions.
        writer: a shard, or another writer; it chooses the part of a spread group.
        event: an id that was never used before for this group.
        at: the time of the contributions; buckets that are over then are left out.
    """
    options, until = aggregate.__options__, aggregate.__until__
    part = part_of_shard(writer, options.spread)
    marks = {LAST_CHANGE: {"S": event}} if options.remove_empty else {}
    found: list[Effect] = []
    for effect in effects:
        stored: dict[str, AttributeValue] = dict(marks)
        if until is not None:
            attribute, end = until[0], until[1].moment(dict(effect.key.fields))
            if end < at:
                continue
            stored[attribute] = {"N": str(int(end.timestamp()))}
        moved = effect
        if part or stored or options.approximate:
            key = replace(effect.key, part=part)
            moved = replace(effect, key=key, stored=stored, plain=options.approximate)
        if options.onto is None or options.missing == "create":
            found.append(moved)
        else:
            missing: Otherwise = "omit" if options.missing == "skip" else "park"
            found.append(moved.only_if(present, otherwise=missing))
    return found

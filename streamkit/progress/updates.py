"""Updates: what an update makes of an item, of a put, or of another update; by attribute. Pure.

Adds sum up, as exactly as DynamoDB's numbers do. Unions and subtractions of sets merge, where one
expression can say the result. A later assignment replaces what came before it.
"""

from decimal import Decimal
from typing import Any

from streamkit.model.codec import NUMBERS, encode
from streamkit.progress.actions import Action, Verb, Wire

_ZERO = Decimal(0)


def apply(action: Action, item: dict[str, Wire] | None) -> dict[str, Wire] | None:
    """Return the item after `action`; if an update creates it, its key is not included.

    Raises:
        ValueError: an update does not fit the item's attribute types.
    """
    if action.verb is Verb.CHECK:
        return item
    if action.verb is Verb.DELETE:
        return None
    if action.verb is Verb.PUT:
        return dict(action.item)
    base = Action(action.ref, Verb.PUT, item=dict(item or {}))
    merged = update_put(base, action)
    if merged is None:
        raise ValueError("an update does not fit the item's attribute types")
    return merged.item


def update_put(put: Action, update: Action) -> Action | None:
    """Return a put of the item as it is after both; None if the update does not fit its types."""
    merged = put.copy()
    item = merged.item
    item.update(update.sets)
    for name in update.removes:
        item.pop(name, None)
    for name, amount in update.adds.items():
        there = item.get(name, {"N": "0"})
        if "N" not in there:
            return None
        item[name] = encode(_sum(Decimal(there["N"]), amount))
    for name, members in update.unions.items():
        united = _set_operation(item.get(name), members, add=True)
        if united is None:
            return None
        item[name] = united
    for name, members in update.subtractions.items():
        if name not in item:
            continue
        rest = _set_operation(item[name], members, add=False)
        if rest is None:
            return None
        if any(rest.values()):
            item[name] = rest
        else:
            del item[name]
    return merged


def update_update(first: Action, second: Action) -> Action | None:
    """Return one update that does both; None if one expression cannot say it."""
    merged = first.copy()
    for name, value in second.sets.items():
        if merged.sets.get(name) != value:
            _forget(merged, name)
            merged.sets[name] = value
    for name in second.removes:
        _forget(merged, name)
        merged.removes.add(name)
    for name, amount in second.adds.items():
        if not _add(merged, name, amount):
            return None
    for name, members in second.unions.items():
        if not _unite(merged, name, members):
            return None
    for name, members in second.subtractions.items():
        if not _subtract(merged, name, members):
            return None
    return merged


def _forget(action: Action, name: str) -> None:
    for part in (action.sets, action.adds, action.unions, action.subtractions):
        part.pop(name, None)
    action.removes.discard(name)


def _sum(left: Decimal, right: Decimal) -> Decimal:
    return NUMBERS.add(left, right)


def _add(action: Action, name: str, amount: Decimal) -> bool:
    if name in action.sets:
        there = action.sets[name]
        if "N" not in there:
            return False
        action.sets[name] = encode(_sum(Decimal(there["N"]), amount))
    elif name in action.removes:
        action.removes.discard(name)
        action.sets[name] = encode(amount)
    elif name in action.unions or name in action.subtractions:
        return False
    else:
        action.adds[name] = _sum(action.adds.get(name, _ZERO), amount)
    return True


def _unite(action: Action, name: str, members: Wire) -> bool:
    if name in action.subtractions or name in action.adds:
        return False  # one expression cannot ADD to and DELETE from the same attribute
    if name in action.removes:
        action.removes.discard(name)
        action.sets[name] = members
        return True
    part = action.sets if name in action.sets else action.unions
    united = _set_operation(part.get(name), members, add=True)
    if united is None:
        return False
    part[name] = united
    return True


def _subtract(action: Action, name: str, members: Wire) -> bool:
    if name in action.unions or name in action.adds:
        return False
    if name in action.removes:
        return True
    if name in action.sets:
        rest = _set_operation(action.sets[name], members, add=False)
        if rest is None:
            return False
        if any(rest.values()):
            action.sets[name] = rest
        else:
            del action.sets[name]
            action.removes.add(name)
        return True
    united = _set_operation(action.subtractions.get(name), members, add=True)
    if united is None:
        return False
    action.subtractions[name] = united
    return True


def _set_operation(there: Wire | None, members: Wire, *, add: bool) -> Wire | None:
    ((kind, new),) = members.items()
    if there is None:
        return {kind: list(new)} if add else {kind: []}
    old: list[Any] | None = there.get(kind)
    if old is None:
        return None
    if kind == "NS":
        return {kind: _numbers(old, new, add=add)}
    if add:
        return {kind: [*old, *(member for member in new if member not in old)]}
    return {kind: [member for member in old if member not in new]}


def _numbers(old: list[str], new: list[str], *, add: bool) -> list[str]:
    """Unite or subtract numbers by value: 100 and 1E+2 are one member."""
    known, given = ({Decimal(text): text for text in texts} for texts in (old, new))
    if add:
        return list((given | known).values())
    return [text for number, text in known.items() if number not in given]

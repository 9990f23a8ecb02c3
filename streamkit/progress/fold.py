"""Fold: the actions of many changes become at most one action per item. Pure.

In: actions in the order of their changes. Out: one action per item, with the same result. Adds sum
up, set operations merge, the last unconditional put wins.

A condition looks at the item as it is when its effect's turn comes. So an action with a condition
can only be the first of its item in a commit: `merge` returns None, and the caller begins a new
commit there. One condition is an exception: whether the item exists follows from the action before.
What a handler *read* is different: those conditions describe the item in the table before the
commit, and join the action whatever comes before them (`join_read`).
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from streamkit.errors import InvariantError
from streamkit.model.codec import NUMBERS, encode
from streamkit.model.conditions import present
from streamkit.progress.actions import Action, ItemRef, Verb, Wire

_SETS = ("SS", "NS", "BS")
_ZERO = Decimal(0)


def fold(actions: Iterable[Action]) -> list[Action]:
    """Fold actions that are known to merge: streamkit's own, on control items.

    Raises:
        InvariantError: two actions do not merge.
    """
    folded: dict[ItemRef, Action] = {}
    for action in actions:
        there = folded.get(action.ref)
        merged = action if there is None else merge(there, action)
        if merged is None:
            raise InvariantError("two actions on one control item cannot be merged")
        folded[action.ref] = merged
    return list(folded.values())


def merge(first: Action, second: Action) -> Action | None:
    """Return one action that does `first`, then `second`; None if no action can.

    Neither argument is changed. None means that a commit must come between the two.
    """
    if second.guards:
        return _merge_present(first, second)
    if second.verb is Verb.CHECK:
        return first
    if first.verb is Verb.CHECK:
        return _with_guards(second, first)
    if second.verb in (Verb.PUT, Verb.DELETE):
        return _with_guards(second, first)
    if first.verb is Verb.PUT:
        return _update_put(first, second)
    if first.verb is Verb.DELETE:
        return None  # an update would need the key's attributes; a new commit is simpler, and rare
    return _update_update(first, second)


def _merge_present(first: Action, second: Action) -> Action | None:
    """Merge an action that only requires the item to exist.

    The item exists once `first` has written it. If `first` also requires only that, or only checks,
    both conditions describe the item before the commit. Then both stay, so that a refusal names
    every handler whose item is missing.
    """
    if first.verb is Verb.DELETE or not _wants_presence(second):
        return None
    bare = second.copy()
    bare.guards = []
    merged = merge(first, bare)
    if merged is None or not (first.verb is Verb.CHECK or _wants_presence(first)):
        return merged
    merged = merged.copy()
    merged.guards += second.guards
    return merged


def _wants_presence(action: Action) -> bool:
    """Return whether all conditions of an action are `present`, and it has any."""
    return bool(action.guards) and all(g.condition is present for g, _ in action.guards)


def merge_within(first: Action, second: Action) -> Action | None:
    """Merge two actions of *one* result; all conditions describe the item before that result."""
    bare = second.copy()
    bare.guards = []
    merged = merge(first, bare)
    if merged is None:
        return None
    if second.guards:
        merged = merged.copy()
        merged.guards += second.guards
    return merged


def join_read(action: Action | None, read: Action) -> Action:
    """Add the condition of a read to the commit's action on that item."""
    if action is None:
        return read
    joined = action.copy()
    joined.guards += read.guards
    return joined


def apply(action: Action, item: dict[str, Wire] | None) -> dict[str, Wire] | None:
    """Return the item after `action`; key attributes of a new item are not included."""
    if action.verb is Verb.CHECK:
        return item
    if action.verb is Verb.DELETE:
        return None
    if action.verb is Verb.PUT:
        return dict(action.item)
    base = Action(action.ref, Verb.PUT, item=dict(item or {}))
    merged = _update_put(base, action)
    if merged is None:
        raise ValueError("an update does not fit the item's attribute types")
    return merged.item


def _with_guards(action: Action, earlier: Action) -> Action:
    merged = action.copy()
    merged.guards = [*earlier.guards]
    return merged


def _update_put(put: Action, update: Action) -> Action | None:
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


def _update_update(first: Action, second: Action) -> Action | None:
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
    if old is None or kind not in _SETS:
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

"""Fold: the actions of many changes become at most one action per item. Pure.

In: actions in the order of their changes. Out: one action per item, with the same result. Adds sum
up, set operations merge, the last unconditional put wins.

A condition looks at the item as it is when its effect's turn comes. So an action with a condition
can only be the first of its item in a commit: `merge` returns None, and the caller begins a new
commit there. One condition is an exception: whether the item exists follows from the action before.
What a handler *read* is different: those conditions describe the item in the table before the
commit, and join the action also if others come before them (`join_read`).
"""

from collections.abc import Iterable

from streamkit.errors import InvariantError
from streamkit.model.conditions import present
from streamkit.progress.actions import Action, ItemRef, Verb
from streamkit.progress.updates import update_put, update_update


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
        return update_put(first, second)
    if first.verb is Verb.DELETE:
        return None  # an update would need the key's attributes; a new commit is simpler, and rare
    return update_update(first, second)


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


def _with_guards(action: Action, earlier: Action) -> Action:
    merged = action.copy()
    merged.guards = [*earlier.guards]
    return merged

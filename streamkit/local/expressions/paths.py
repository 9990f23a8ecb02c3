"""Document paths: `a.b[0]` as `("a", "b", 0)`, and reading, comparing and picking by them.

A tree of paths (`PathTree`) is what a projection comes down to: it picks all paths of an item in
one walk, with list elements in index order and close together, as the service returns them.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from streamkit.local.values import AttributeValue, Item

DocumentPath: TypeAlias = tuple[str | int, ...]
PathTree: TypeAlias = "dict[str | int, PathTree | None]"


def path_text(path: DocumentPath) -> str:
    """Return a path as error messages show it: `[a, b, [0]]`."""
    steps = (f"[{step}]" if isinstance(step, int) else step for step in path)
    return f"[{', '.join(steps)}]"


def read_path(item: Item, path: DocumentPath) -> AttributeValue | None:
    """Return the value at a path, or None when the item has nothing there."""
    value = item.get(str(path[0]))
    for step in path[1:]:
        if value is None:
            return None
        value = child(value, step)
    return value


def child(value: AttributeValue, step: str | int) -> AttributeValue | None:
    """Return the member of a map or list that one step leads to, or None."""
    if isinstance(step, int):
        elements: list[AttributeValue] = value.get("L", ())
        return elements[step] if step < len(elements) else None
    members: Item = value.get("M", {})
    return members.get(step)


def overlap(paths: Sequence[DocumentPath]) -> str | None:
    """Return what is wrong with a set of paths that are to be changed or picked together.

    Returns:
        The service's message about the first two that overlap (one is the other, or leads into
        it) or else conflict (the same value would have to be both a map and a list), or None.
    """
    conflict = None
    for later, second in enumerate(paths):
        for first in paths[:later]:
            relation = _relation(first, second)
            if relation is None or (relation == "conflict" and conflict):
                continue
            message = (
                f"Two document paths {relation} with each other; must remove or rewrite one of "
                f"these paths; path one: {path_text(first)}, path two: {path_text(second)}"
            )
            if relation == "overlap":
                return message
            conflict = message
    return conflict


def _relation(first: DocumentPath, second: DocumentPath) -> str | None:
    for one, two in zip(first, second, strict=False):
        if type(one) is not type(two):
            return "conflict"
        if one != two:
            return None
    return "overlap"


def path_tree(paths: Iterable[DocumentPath]) -> PathTree:
    """Merge paths; a path that leads into another one is swallowed by it."""
    tree: PathTree = {}
    for path in paths:
        node = tree
        for step in path[:-1]:
            deeper = node.setdefault(step, {})
            if deeper is None:
                break
            node = deeper
        else:
            node[path[-1]] = None
    return tree


def pick(item: Item, tree: PathTree) -> Item:
    """Return the part of an item that a tree of paths covers; nothing for what it does not have."""
    picked: Item = {}
    for first, deeper in tree.items():
        name = str(first)
        value = item.get(name)
        if value is not None and deeper is not None:
            value = _pick_within(value, deeper)
        if value is not None:
            picked[name] = value
    return picked


def _pick_within(value: AttributeValue, tree: PathTree) -> AttributeValue | None:
    picked: dict[str | int, AttributeValue] = {}
    for step, deeper in tree.items():
        found = child(value, step)
        if found is not None and deeper is not None:
            found = _pick_within(found, deeper)
        if found is not None:
            picked[step] = found
    if not picked:
        return None
    if "L" in value:
        return {"L": [picked[index] for index in sorted(picked)]}
    return {"M": picked}


def pick_paths(item: Item, paths: Iterable[DocumentPath]) -> Item:
    """Return the part of an item at these paths: what UPDATED_OLD and UPDATED_NEW return."""
    return pick(item, path_tree(paths))

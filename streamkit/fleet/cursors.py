"""Every cursor of a consumer, including finished ancestors: find them, and delete them.

In: a consumer's control items. Out: its cursors, found through the directories and then through
their parents. Cursors are deleted from the oldest ancestor to the youngest shard, so that after a
crash the rest can still be found. Only cursors of older generations are deleted: a worker that has
joined meanwhile keeps the cursors that it created. Without its cursor, every commit of a former
owner is refused.
"""

import random
from collections.abc import Mapping, Sequence

from streamkit.effects import Guard
from streamkit.model.conditions import Attr
from streamkit.progress.actions import CHILD, Action, GuardSource
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fold import fold
from streamkit.progress.transaction import Send

LISTER = "lister"
"""The name of the lister's cursor; no shard can have it."""
_PER_TRANSACTION = 40
"""Cursors deleted in one transaction: each with its entry in one of 16 directories."""


async def every_cursor(store: CursorStore) -> dict[str, Cursor]:
    """Read the cursors of all shards, by name."""
    found = await store.read_all()
    asked = set(found)
    while wanted := {c.parent for c in found.values() if c.parent} - asked:
        asked |= wanted
        found |= await store.read_many(wanted)
    return found


async def drop_cursors(store: CursorStore, *, below: int, send: Send) -> int:
    """Delete every cursor of a generation before `below`; return how many shards had one.

    Args:
        store: the consumer's control items.
        below: a generation's number. The lister's cursor is deleted too, and not counted.
        send: sends a transaction, IF the consumer is the one that has these cursors.
    """
    # The lister first: its commits need its cursor, so none of them creates a cursor behind this.
    await _drop(store, [LISTER], below, send)
    cursors = await every_cursor(store)
    names = sorted(cursors, key=lambda name: (_depth(cursors, name), name))
    dropped = 0
    for start in range(0, len(names), _PER_TRANSACTION):
        some = names[start : start + _PER_TRANSACTION]
        if await _drop(store, some, below, send):
            dropped += len(some)
        else:  # some cursors are newer, or deleted already: delete them one by one
            dropped += sum([await _drop(store, [name], below, send) for name in some])
    return dropped


def _depth(cursors: Mapping[str, Cursor], name: str) -> int:
    depth, parent = 0, cursors[name].parent
    while parent is not None and parent in cursors:
        depth, parent = depth + 1, cursors[parent].parent
    return depth


async def _drop(store: CursorStore, names: Sequence[str], below: int, send: Send) -> bool:
    """Delete cursors and their directory entries in one transaction, or nothing."""
    actions: list[Action] = []
    for name in names:
        removal = store.space.delete("cursor", name)
        removal.guards.append((Guard(Attr("generation").lt(below)), GuardSource("", name, CHILD)))
        actions += [removal, store.space.leave(name)]
    return await send(fold(actions), random.Random()) is None

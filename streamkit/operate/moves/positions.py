"""Make the cursors of a consumer from positions that a move has computed; write all at once.

In: cursors, while the consumer's host lets no worker begin. Out: the table holds these cursors and
no others: cursors that an interrupted move has left are deleted first.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamkit.errors import InvariantError
from streamkit.fleet.cursors import drop_cursors
from streamkit.operate.moves.fence import MoveFence
from streamkit.progress.control import Cursor, child_of
from streamkit.progress.cursor import creation
from streamkit.progress.fold import fold
from streamkit.stream.lineage import Shard

_TOGETHER = 40
"""Cursors in one transaction: two items each."""


def fresh_cursor(
    shard: Shard, made: Mapping[str, Cursor], *, generation: int, since: int = 0
) -> Cursor:
    """Return the cursor of a shard of which nothing was read; `made` has that of its parent."""
    parent = made.get(shard.parent or "")
    return child_of(
        shard.id,
        parent,
        generation=generation,
        parent_name=shard.parent,
        since=since,
        heir=parent is not None and not parent.children,
    )


def add_cursor(cursor: Cursor, made: dict[str, Cursor]) -> None:
    """Add a cursor to those that were made, and name it in that of its parent."""
    parent = made.get(cursor.parent or "")
    if parent is not None:
        made[parent.name] = replace(parent, children=parent.children | {cursor.name})
    made[cursor.name] = cursor


async def replace_cursors(fence: MoveFence, cursors: Sequence[Cursor], generation: int) -> None:
    """Replace a consumer's cursors by these, of a generation.

    Raises:
        MoveRefused: another mover is the current one.
        InvariantError: another process makes cursors, which it may not do now.
    """
    store = fence.store
    await drop_cursors(store, below=generation + 1, send=fence.transact)
    for start in range(0, len(cursors), _TOGETHER):
        some = cursors[start : start + _TOGETHER]
        actions = fold([action for cursor in some for action in creation(store.space, cursor)])
        if await fence.transact(actions, random.Random()) is not None:
            there = await store.read_many(cursor.name for cursor in some)
            if there != {cursor.name: cursor for cursor in some}:
                raise InvariantError("another process creates cursors of this consumer")

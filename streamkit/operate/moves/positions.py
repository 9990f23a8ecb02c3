"""Write all cursors of a consumer at once, from positions that a move has computed.

In: cursors, while the consumer's host lets no worker begin. Out: the table holds these cursors and
no others: cursors that an interrupted move has left are deleted first.
"""

import random
from collections.abc import Sequence

from streamkit.errors import InvariantError
from streamkit.fleet.cursors import drop_cursors
from streamkit.operate.moves.fence import MoveFence
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import creation
from streamkit.progress.fold import fold

_TOGETHER = 40
"""Cursors in one transaction: two items each."""


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

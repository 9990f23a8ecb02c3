"""Count the parked changes of a migration's own consumers.

In: the control items of these consumers. Out: fields of a `Progress`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.progress.cursor import CursorStore


async def parked_of(followers: Iterable[CursorStore]) -> dict[str, Any]:
    """Return how many changes are `parked`, and which of them are `stuck`: by their errors."""
    count, stuck = 0, Counter[str]()
    for store in followers:
        queues = await parked_queues(store)
        changes = await list_parked(store, queues)
        count += len(changes)
        waits = {queue.name for queue in queues if queue.stuck}
        stuck.update(one.error for one in changes if one.error and one.queue in waits)
    return {"parked": count, "stuck": dict(stuck)}

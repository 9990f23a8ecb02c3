"""Rewinding: what is left to do once a rewind is decided; the next process to come does it.

The deciding write starts a generation that is `rewinding`. Then parked changes and cursors of older
generations are deleted. Nothing is read before that, so what a late redrive still runs comes before
all that this generation does. Before the decision nothing may be dropped: it may never come. If the
rewind begins in an archive, the cursors that read the archive are created. In: the consumer's
control items. Out: the generation, not rewinding any more.
"""

import random
from dataclasses import replace

from streamkit.core.parked.head import leave
from streamkit.core.parked.queues import ParkedQueue, parked_queues, read_head
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import drop_cursors, every_cursor
from streamkit.fleet.generation import Generation, consumer_operation, same_consumer
from streamkit.model.conditions import Attr
from streamkit.progress.clock import SystemClock
from streamkit.progress.control import child_of
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import Step


async def finish_rewind(store: CursorStore, newest: Generation) -> int:
    """Delete what older generations left, and create the cursors with which this one begins.

    It is safe to repeat. Returns the number of cursors deleted.

    A process that stood still may find another consumer of the name, whose generations start at 1.
    """
    fenced, dropped = Fenced(store, same_consumer(newest), random.Random()), 0

    async def finished(now: Generation | None) -> Step[Generation | None] | None:
        if now is None or not now.rewinding:
            return None
        if (now.number, now.incarnation) != (newest.number, newest.incarnation):
            return None  # another process finished it, and a newer generation started
        return Step(replace(now, rewinding=False, begins=frozenset()))

    try:
        await _drop_parked(store, newest)
        # Only cursors below this generation: a worker that has joined meanwhile keeps the ones that
        # it created (model `rewound`, rule `below`).
        dropped = await drop_cursors(store, below=newest.number, send=fenced.send)
        await _begin_at(store, newest)
    except LeaseLost:
        return dropped
    # Last: as long as `rewinding` is set, a process that joins after a death does all of it again.
    await consumer_operation(store).change(finished, seen=newest)
    return dropped


async def _drop_parked(store: CursorStore, newest: Generation) -> None:
    """Drop the queues that began before this generation; their changes are read again.

    The cursors name the queues, so the queues go first. A queue's tag is checked when each of its
    changes leaves: one that this generation has begun stays, whatever finds it.
    """
    rng, schemas = random.Random(), {store.space.schema.name: store.space.schema}
    for queue in await parked_queues(store, await every_cursor(store)):
        while (found := await read_head(store, queue.name)) and _is_older(found[0], newest):
            await leave(store, schemas, *found, (), rng, SystemClock())


def _is_older(queue: ParkedQueue, newest: Generation) -> bool:
    """Return whether a queue began before a generation; an older streamkit stored only when."""
    if queue.generation:
        return queue.generation < newest.number
    return queue.since < newest.founded


async def _begin_at(store: CursorStore, newest: Generation) -> None:
    """Create the cursors of the shards where a rewind begins, as long as it is not finished.

    Raises:
        LeaseLost: another process has finished it.
    """
    still = Attr("generation").eq(newest.number) & Attr("rewinding").eq(True)
    fenced = Fenced(store, still & same_consumer(newest), random.Random())
    for name in sorted(newest.begins):
        number, since = newest.number, newest.since
        cursor = child_of(name, None, generation=number, parent_name=None, since=since)
        await fenced.send(creation(store.space, cursor), random.Random())

"""Rewinding: a generation that discards all cursors, from its question to what is left to do.

Its one write is the whole decision. A generation before it asks for the rewind, and every cursor is
raised to that one: then no commit is under way any more, and parked changes can be counted. A
worker that joins withdraws the question. A worker of an older streamkit does not know such
questions. So, until it is decided, a fingerprint that no handlers have is stored, and that worker
stands by as for any other roll-out. If it starts a generation of its own in the end, the decision
is refused.

The deciding write starts a generation that is `rewinding`. The next process, worker or operator's,
then deletes the parked changes and cursors of older generations. Nothing is read before that, so
what a late redrive still runs comes before all that this generation does. Before the decision
nothing may be dropped: it may never come. If the rewind begins in an archive, the cursors that read
the archive are created. In: the consumer's control items. Out: the generation, not rewinding any
more.
"""

import random
import uuid
from dataclasses import replace

from streamkit.core.parked.head import take_off
from streamkit.core.parked.queues import ParkedQueue, parked_queues, read_head
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import drop_cursors, every_cursor
from streamkit.fleet.generation import (
    Generation,
    consumer_operation,
    same_consumer,
    write_generation,
)
from streamkit.fleet.hosting import LAMBDA
from streamkit.model.conditions import Attr
from streamkit.progress.clock import SystemClock
from streamkit.progress.control import child_of
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import AuditEntry, Step


async def ask_rewind(
    store: CursorStore, newest: Generation, said: AuditEntry | None = None
) -> Generation:
    """Start a generation in which a rewind may be decided, unless a worker joins it.

    Where functions run the consumer there are no cursors to raise; this only shuts out a move.

    Raises:
        LeaseLost: something of the consumer changed meanwhile.
    """
    asked = replace(newest, mover="")
    if newest.host != LAMBDA:
        asked = replace(asked, number=newest.number + 1, asks=uuid.uuid4().hex[:8])
    if asked == newest:
        return newest
    asked = asked.noted(said)
    await write_generation(store, newest, asked)
    return asked


async def withdraw_rewind(store: CursorStore, asked: Generation) -> None:
    """Withdraw the question for a rewind; the generation goes on like those before it.

    Nothing happens if the rewind was decided meanwhile, or the question was withdrawn already.
    """

    async def withdrawn(now: Generation | None) -> Step[Generation | None] | None:
        if not asked.asks or now is None:
            return None
        if (now.asks, now.number) != (asked.asks, asked.number):
            return None
        return Step(replace(now, asks=""))

    await consumer_operation(store).change(withdrawn, seen=asked)


async def begin_rewind(
    store: CursorStore,
    newest: Generation,
    since: int,
    now: int,
    said: AuditEntry | None = None,
    begins: frozenset[str] = frozenset(),
) -> Generation:
    """Start the generation that reads again from a given time, once the rewind is not paused.

    Before this write nothing has changed; after it the old cursors do not count any more.

    Args:
        store: the consumer's control items.
        newest: the generation as read, or asked for.
        since: epoch second from which on changes are read again; 0 for all there are.
        now: epoch seconds.
        said: the entry for the audit trail.
        begins: the shards of an archive where it reads first; empty for those that are listed.

    Raises:
        LeaseLost: a worker joined meanwhile, or something else of the consumer changed.
    """
    incarnation = newest.incarnation
    if newest.host == LAMBDA:  # earlier high-water marks do not count any more
        incarnation = uuid.uuid4().hex[:8]

    async def begun(now_is: Generation | None) -> Step[Generation | None]:
        if now_is is None or now_is.without_pauses() != newest.without_pauses():
            raise LeaseLost("the consumer has changed since the rewind was asked for")
        after = replace(now_is, number=newest.number + 1, since=since, founded=now, rewinding=True)
        after = replace(after, begins=begins)
        return Step(replace(after, asks="", incarnation=incarnation).noted(said))

    rewound = await consumer_operation(store, "rewind").change(begun, seen=newest)
    assert rewound is not None  # noqa: S101 - it was begun
    return rewound


async def finish_rewind(store: CursorStore, newest: Generation) -> int:
    """Delete what older generations left, and create the cursors with which this one begins.

    It is safe to repeat, also for a process that stood still meanwhile: if the consumer was deleted
    and begun again under the same name, nothing is done.

    Returns:
        The number of cursors that were deleted.
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

    The cursors name the queues, so the queues go first. A queue's generation is checked when each
    of its changes leaves, so that a queue that began in this generation stays.
    """
    rng, schemas = random.Random(), {store.space.schema.name: store.space.schema}
    for queue in await parked_queues(store, await every_cursor(store)):
        while (found := await read_head(store, queue.name)) and _is_older(found[0], newest):
            await take_off(store, schemas, *found, (), rng, SystemClock())


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

"""Delete a consumer: every control item of it, of all streams of the table.

All items are found through directories, never by a scan. A deletion first prevents workers from
starting, then deletes from the leaves to the consumer's own item: a second try finds what an
interrupted one has left. A deletion that was overtaken deletes nothing of a new consumer.
"""

import random
from collections.abc import Iterable

from streamkit.aws import Aws
from streamkit.core.high_water_mark import item_of, path_of
from streamkit.core.parked.queues import ParkedQueue, list_parked, parked_queues, show
from streamkit.core.parking import LAMBDA_CHUNKS
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import LISTER, every_cursor
from streamkit.fleet.directory import ConsumerEntry, leave
from streamkit.fleet.generation import Generation, begin_move, newest_generation, same_consumer
from streamkit.fleet.hosting import DELETING
from streamkit.fleet.liveness import live_workers
from streamkit.fleet.members import MemberList
from streamkit.fleet.taken import app_store, marks_of
from streamkit.kinds.aggregate.sweep import Broom
from streamkit.model.conditions import Attr, absent
from streamkit.operate.consumers import open_ledgers
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import DIRECTORIES
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced


async def delete_consumer(
    aws: Aws,
    table: str,
    consumer: str,
    *,
    control_table: str | None = None,
    lease_seconds: float = 7.0,
    clock: Clock | None = None,
) -> int:
    """Delete every control item of a consumer, of all streams of the table; return how many.

    What its handlers wrote stays. Its parked changes are deleted. High-water marks of items, which
    the Lambda host keeps, expire by TTL within a week; a new consumer of the same name does not use
    them.

    Raises:
        ConfigurationError: a table is missing, there is no such consumer, a worker of it is alive,
            an app takes a handler over, or another process changed or deleted it meanwhile.
    """
    ledgers = await open_ledgers(aws, table, control_table)
    found = await ledgers.entries(consumer)
    if not found:
        raise ConfigurationError(
            f"table {table} knows no consumer {consumer!r}; `streamkit consumers list {table}`"
            " names those that it knows"
        )
    # Read before the look for workers: a consumer that is founded after this read has workers that
    # the look finds.
    newest = [await newest_generation(ledgers.store(entry)) for entry in found]
    for entry, known in zip(found, newest, strict=True):
        await _require_no_join(ledgers.store(entry), known)
        alive = await live_workers(ledgers.store(entry), clock or SystemClock(), lease_seconds)
        if alive:
            raise ConfigurationError(f"workers are alive, stop them first: {', '.join(alive)}")
    deleted = 0
    for entry, known in zip(found, newest, strict=True):
        try:
            deleted += await erase_consumer(ledgers.store(entry), entry, known)
        except LeaseLost:
            raise ConfigurationError(
                f"consumer {consumer} was changed or deleted by another command meanwhile; try"
                " again"
            ) from None
    return deleted


async def _require_no_join(store: CursorStore, newest: Generation | None) -> None:
    """Refuse to forget one of two consumers while one takes a handler over from the other.

    What is left would run the handler twice on some shards, or never again on others.

    Raises:
        ConfigurationError: such a join has not ended.
    """
    app, handler = app_store(store)
    theirs = await newest_generation(app)
    for one in (newest, theirs if theirs and handler in marks_of(theirs.joins) else None):
        for name in sorted(marks_of(one.joins if one else ())):
            raise ConfigurationError(
                f"{store.space.consumer}: an app takes {name} over from a consumer of its own;"
                " `streamkit consumers join --live` ends that, once the app runs it on every shard"
            )


async def erase_consumer(
    store: CursorStore, entry: ConsumerEntry, newest: Generation | None
) -> int:
    """Prevent workers from starting, then delete from the leaves to the consumer's item.

    Args:
        store: the consumer's control items.
        entry: the consumer.
        newest: its item as it was when no worker of it was alive.

    Raises:
        LeaseLost: it was changed or deleted meanwhile.
    """
    rng = random.Random()
    if newest is None:  # only its entry in the directory is left
        await Fenced(store, absent, rng).apply([leave(store.space.schema, entry)])
        return 0
    if newest.host != DELETING:
        newest = await begin_move(store, newest, DELETING)
    # A worker may only seem to be dead. From here on its commits are refused, so that no change
    # is parked after the capture.
    await capture(store, newest, read=False, stopped=True)
    erasing = _Erasing(store, Attr("host").eq(DELETING) & same_consumer(newest), rng)
    deleted = await erasing.all_but_the_consumer(newest)
    last = [] if store.space.schema.sk else [store.space.delete("members")]
    last += [store.space.delete("consumer"), leave(store.space.schema, entry)]
    await erasing.apply(last)
    return deleted + 1


class _Erasing(Fenced):
    """Deletes the control items of a consumer, IF it is still the one that is being deleted."""

    async def all_but_the_consumer(self, newest: Generation) -> int:
        """Delete every item but the consumer's; return how many there were."""
        store, space = self.store, self.store.space
        cursors = await every_cursor(store)
        queues = await parked_queues(store, cursors)
        parked = await list_parked(store, queues)
        await self.delete_there(await self._marks(queues))
        chunks = set(LAMBDA_CHUNKS).union(*(cursor.chunks for cursor in cursors.values()))
        deleted = await Broom(self, SystemClock()).sweep_all(newest.builds)
        for layer in (
            [("part", p.queue, p.position, str(n)) for p in parked for n in range(p.parts)],
            [("parked", p.queue, p.position) for p in parked],
            [("lane", queue.name) for queue in queues],
            [("holds", chunk) for chunk in sorted(chunks)],
            [("cursor", name) for name in [LISTER, *cursors]],
            [("dir", str(number)) for number in range(DIRECTORIES)],
        ):
            deleted += await self.delete_there([space.key(*names) for names in layer])
        member_list = MemberList(store)
        seen = await member_list.look()
        for name in seen.members:
            await member_list.remove(name)
        if seen.paused:
            await self.apply([member_list.pausing(0)])
        return deleted + len(seen.members)

    async def _marks(self, queues: Iterable[ParkedQueue]) -> list[dict[str, Wire]]:
        """Return the keys of the marks that parked queues name; the other marks expire.

        A new consumer of the same name does not read the marks of this one.
        """
        keys = []
        for queue in queues:
            if queue.chunk in LAMBDA_CHUNKS:
                head = await show(self.store, queue.name, queue.head)
                key = None if head is None else item_of(head)
                if key is not None:
                    keys.append(self.store.space.key(*await path_of(self.store, key)))
        return keys

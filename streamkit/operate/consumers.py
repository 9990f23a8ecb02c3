"""List the consumers that keep control items in a table, pause them, and delete one.

In: a table, and the table of the control items. Out: what is stored of each consumer, or how many
items of one were deleted. All items are found through directories, never by a scan. A deletion
first prevents workers from starting, then deletes from the leaves to the consumer's own item: a
second try finds what an interrupted one has left. A deletion that was overtaken deletes nothing of
a new consumer.
"""

import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.high_water_mark import item_of, path_of
from streamkit.core.parked.queues import ParkedQueue, list_parked, parked_queues, show
from streamkit.core.parking import LAMBDA_CHUNKS
from streamkit.core.tables import describe, open_store
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import LISTER, every_cursor
from streamkit.fleet.directory import ConsumerEntry, entries, leave
from streamkit.fleet.generation import (
    Generation,
    begin_move,
    newest_generation,
    same_consumer,
)
from streamkit.fleet.hosting import DELETING
from streamkit.fleet.liveness import live_workers
from streamkit.fleet.members import MemberList
from streamkit.fleet.pausing import set_held, set_paused
from streamkit.kinds.aggregate.sweep import Broom
from streamkit.model.conditions import Attr, absent
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import DIRECTORIES, ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import said_of


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """One consumer of one stream of a table.

    `current`: the stream is the one the table has now. `workers` counts heartbeat items; a worker
    that was killed leaves its item behind. Times are epoch seconds: changes count from `since` (0:
    all), `lost` is when the whole stream last lost records, `paused` is since when it reads nothing
    (0: not paused). `host` runs it: workers, Lambda functions, or a move that is under way.
    """

    name: str
    table: str
    stream: str
    current: bool
    generation: int | None
    shards: int
    workers: int
    since: int
    lost: int
    paused: int
    needs_rebuild: tuple[str, ...]
    host: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Ledgers:
    """The control items of every consumer of one table."""

    dynamodb: Any
    table: str
    label: str | None
    control: Any

    def store(self, entry: ConsumerEntry) -> CursorStore:
        """Return one consumer's control items."""
        space = ControlSpace.of(self.control, entry.consumer, entry.label)
        return CursorStore(self.dynamodb, space)

    async def entries(self, consumer: str | None = None) -> list[ConsumerEntry]:
        """Return the entries of all consumers of the table, or those of one."""
        found = await entries(self.dynamodb, self.control)
        return [e for e in found if e.table == self.table and consumer in (None, e.consumer)]


async def open_ledgers(aws: Aws, table: str, control_table: str | None = None) -> Ledgers:
    """Find where a table's consumers keep their items.

    Raises:
        ConfigurationError: a table is missing, may not be described, or cannot hold them.
    """
    schema = await describe(aws, table, type_attribute=None)
    control = schema
    if control_table not in (None, table):
        control = await describe(aws, str(control_table), type_attribute=None)
    label = schema.stream_arn.rpartition("/")[2] if schema.stream_arn else None
    return Ledgers(aws.dynamodb, table, label, control)


async def list_consumers(
    aws: Aws, table: str, control_table: str | None = None
) -> list[ConsumerReport]:
    """Return every consumer of a table, including those of its former streams.

    Raises:
        ConfigurationError: a table is missing, or may not be described.
    """
    ledgers = await open_ledgers(aws, table, control_table)
    return [await _consumer(ledgers, entry) for entry in await ledgers.entries()]


async def _consumer(ledgers: Ledgers, entry: ConsumerEntry) -> ConsumerReport:
    store = ledgers.store(entry)
    generation = await newest_generation(store)
    cursors = await store.read_all()
    seen = await MemberList(store).look()
    return ConsumerReport(
        name=entry.consumer,
        table=entry.table,
        stream=entry.label,
        current=entry.label == ledgers.label,
        generation=generation.number if generation else None,
        shards=sum(not cursor.finished for cursor in cursors.values()),
        workers=len(seen.members),
        since=generation.since if generation else 0,
        lost=generation.lost if generation else 0,
        paused=seen.paused,
        needs_rebuild=tuple(sorted(generation.rebuild)) if generation else (),
        host=generation.host if generation else "",
    )


async def pause_consumer(app: App, aws: Aws, *, clock: Clock | None = None) -> str:
    """Pause an app's consumer on every host, for workers that start later, too.

    Workers commit what is dispatched, keep their shards, and retry no parked changes. Functions
    finish what they have begun, and leave every later batch and their parked queues unchanged.

    Returns:
        The host that runs it: workers, Lambda functions, or a move that is under way.

    Raises:
        ConfigurationError: the table is missing or has no stream, or the consumer has never run.
    """
    said = said_of(clock or SystemClock(), "pause")
    return await set_paused(await open_store(app, aws), int(said.at), said)


async def resume_consumer(app: App, aws: Aws, *, clock: Clock | None = None) -> str:
    """Let a paused consumer continue; nothing happens if it is not paused.

    Returns:
        The host that runs it.

    Raises:
        ConfigurationError: the table is missing or has no stream, or the consumer has never run.
    """
    said = said_of(clock or SystemClock(), "resume")
    return await set_paused(await open_store(app, aws), 0, said)


async def pause_operation(
    app: App, aws: Aws, operation: str, *, paused: bool = True, clock: Clock | None = None
) -> Generation:
    """Pause an operation of an app's consumer, or let it go on: a rebuild, a move or a rewind.

    From this write on no process takes another step of it, and within seconds none scans for it;
    they wait, and so do processes that begin the same command. The consumer's host goes on.

    Args:
        app: the app whose consumer it is.
        aws: open clients.
        operation: `rebuild NAME` of an aggregate, `move` or `rewind`.
        paused: whether it waits, or goes on.
        clock: for simulations.

    Returns:
        The consumer's generation, which has the audit trail.

    Raises:
        ConfigurationError: it is not under way, or has decided already.
    """
    said = said_of(clock or SystemClock(), f"{operation}: {'paused' if paused else 'resumed'}")
    return await set_held(await open_store(app, aws), operation, said, paused=paused)


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
            or it was changed or deleted by another process meanwhile.
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
    for entry in found:
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
    await capture(store, newest, read=False)
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
        """Return the marks of items with parked queues, while queues name them; others expire.

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

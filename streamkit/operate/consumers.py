"""List the consumers that keep control items in a table, and pause them.

In: a table, and the table of the control items. Out: what is stored of each consumer. All items are
found through directories, never by a scan.
"""

from dataclasses import dataclass
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import describe, open_store
from streamkit.fleet.directory import ConsumerEntry, entries
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.members import MemberList
from streamkit.fleet.pausing import set_held, set_paused
from streamkit.fleet.taken import is_over
from streamkit.model.json_fields import JsonFields
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import said_of


@dataclass(frozen=True, slots=True)
class ConsumerReport(JsonFields):
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


@dataclass(frozen=True)
class Ledgers:
    """The control items of every consumer of one table."""

    dynamodb: Any
    table: str
    label: str
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
    return Ledgers(aws.dynamodb, table, schema.stream_label, control)


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
        shards=sum(not is_over(cursor) for cursor in cursors.values()),
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
    store = await open_store(app, aws)
    said = said_of(await store.clock(clock or SystemClock()), "pause")
    return await set_paused(store, int(said.at), said)


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

"""Read the state of a consumer, for people and programs.

In: an app and clients. Out: one `Status`: generation, workers, the shards as a tree with owner,
position and lag, and what is parked. Control items are read through their directories, never by a
scan. The parts are read one after the other: a shard may change its owner meanwhile.

Ages are differences between clocks of two machines; they only inform people, and no code decides by
them.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from streamkit.app import App
from streamkit.archive.long_pages import ArchiveWriter
from streamkit.aws import Aws
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.core.tables import AppTables, survey
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.directory import Halt, halts, predecessors
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import TAKING_OVER, WORKERS
from streamkit.fleet.lag import Archived, listens
from streamkit.fleet.members import Member, MemberList
from streamkit.observe.usage import Usage
from streamkit.operate.fan_outs import Audiences, FanOutStatus, fan_outs
from streamkit.operate.operations import OperationStatus, operations
from streamkit.operate.past.past import open_archive
from streamkit.operate.shards import (
    ShardStatus,
    by_handler,
    shard_statuses,
    time_left,
    unowned,
    worst_lag,
)
from streamkit.operate.unread import Unread
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Audit
from streamkit.worker.joined_app import app_as_run

_SILENT_SECONDS, _SILENT_LEASES = 30.0, 4
"""Fifteen heartbeats by default; other workers judge by its counter which one is dead."""
_ROUNDED_SECONDS = 1.0
"""The time of a heartbeat has whole seconds."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that has a heartbeat item; a worker that was killed leaves its item behind.

    `throttled` counts calls that AWS has throttled since it began. `silent`: its last heartbeat is
    older, by the table's clock, than four of the worker's leases, and than half a minute. `late`:
    it is older than one lease, so that other workers take its shards and its place as leader.
    """

    name: str
    state: str
    generation: int
    shards: int
    beats: int
    last_beat: int
    beat_age_seconds: float
    leads: bool
    throttled: int = 0
    silent: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one consumer; `shards` are in tree order, parents before their children.

    `time_to_loss_seconds` is what is left until the oldest unread change of any shard is trimmed,
    those in `unread_shards` included: open shards that none of the `workers` owns, or that have no
    cursor yet. Changes count from `since` on (0: all), `lost` is when the stream as a whole was
    replaced, `paused` is since when it is paused (0: it is not). `host` runs it: workers,
    functions, or a move that is under way; only their mapping knows what functions have read.
    `operations` are under way; `audit` says who began rebuilds, moves and rewinds, and when, the
    newest last. Migrations keep audits of their own. `halts` names this consumer and its listeners
    as far as they could not begin. `refused` is what the archive refuses its writer, or a reader.
    `replaced` is the label of the table's stream that the consumer read before, while no worker has
    begun to read the present one; else it is empty.
    """

    consumer: str
    table: str
    stream: str
    generation: int | None
    current: bool
    needs_rebuild: tuple[str, ...]
    workers: tuple[WorkerStatus, ...]
    shards: tuple[ShardStatus, ...]
    parked: dict[str, int]
    parked_queues: int
    stuck_queues: int
    lag_seconds: float | None
    time_to_loss_seconds: float | None
    since: int
    lost: int
    paused: int
    fan_outs: tuple[FanOutStatus, ...]
    host: str = WORKERS
    unread_shards: tuple[str, ...] = ()
    operations: tuple[OperationStatus, ...] = ()
    audit: Audit = ()
    halts: tuple[Halt, ...] = ()
    refused: tuple[str, ...] = ()
    replaced: str = ""

    @property
    def unbegun(self) -> str:
        """Say for people how far a consumer without a generation has come."""
        if self.halts:
            return "no worker has begun yet"
        if not self.replaced:
            return "no worker has run yet"
        return (
            "the table's stream was replaced: no worker has begun to read the new one, and the next"
            f" one says what may be lost since the stream of {self.replaced}"
        )

    @property
    def lost_shards(self) -> tuple[str, ...]:
        """Return the shards that have lost records, or may have, passed over or not."""
        return tuple(s.name for s in self.shards if s.lost or s.lag == "lost")

    @property
    def undecided_shards(self) -> tuple[str, ...]:
        """Return the shards of which the archive has not decided yet whether records are lost."""
        return tuple(s.name for s in self.shards if s.lag == "undecided")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {**asdict(self), "lost_shards": self.lost_shards}


async def read_status(
    app: App,
    aws: Aws,
    *,
    clock: Clock | None = None,
    look_into_stream: bool = True,
    audiences: Audiences | None = None,
) -> Status:
    """Read the state of an app's consumer.

    Args:
        app: the app whose consumer is read.
        aws: open clients.
        clock: goes on from the table's time, by which ages are computed.
        look_into_stream: measure the lag with a few `GetRecords` calls a shard; without them it is
            an upper bound that can be an hour too high on a quiet shard.
        audiences: of fan-outs, as earlier looks have counted them.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    app, tables = await app_as_run(app, aws), await survey(app, aws)
    store, stream = tables.store(app, aws), tables.table.stream_arn or ""
    clock = await store.clock(clock or SystemClock())  # this machine's may be minutes wrong
    generation = await newest_generation(store)
    cursors = await every_cursor(store)
    unread = Unread(cursors, clock, generation.founded if generation else 0)
    if look_into_stream:
        async with _archive_of(app, aws, tables) as archive:
            await unread.look(aws, stream, listens(app, tables.table), archive)
    lags, lag = unread.lags, worst_lag(cursors, unread.lags)
    seen = await MemberList(store).look()
    parked = await list_parked(store, queues := await parked_queues(store, cursors))
    audiences = audiences or Audiences(app, aws)
    return Status(
        consumer=app.name,
        table=app.table,
        stream=stream,
        generation=generation.number if generation else None,
        current=generation is not None and generation.fingerprint == app.fingerprint(),
        needs_rebuild=tuple(sorted(generation.rebuild)) if generation else (),
        workers=_workers(seen.members, clock.time()),
        shards=tuple(shard_statuses(cursors, lags, queues, parked, seen.members)),
        parked=by_handler(parked),
        parked_queues=len(queues),
        stuck_queues=sum(queue.stuck for queue in queues),
        lag_seconds=lag,
        time_to_loss_seconds=time_left(cursors, lags),
        since=generation.since if generation else 0,
        lost=generation.lost if generation else 0,
        paused=seen.paused,
        fan_outs=await audiences.measure(tables, fan_outs(app, queues, parked), clock.time()),
        host=_host(generation),
        unread_shards=tuple(unowned(cursors, seen.members)),
        operations=await operations(app, aws, tables, generation, clock.time(), lag, cursors),
        audit=generation.audit if generation else (),
        halts=await halts(store, app.table, {one.name for one in (app, *app.listeners.values())}),
        refused=await _refused(app, aws, tables, seen.members, clock.time()),
        replaced=await _replaced(app, store) if generation is None else "",
    )


async def _refused(
    app: App, aws: Aws, tables: AppTables, members: Mapping[str, Member], now: float
) -> tuple[str, ...]:
    """Return what the archive refuses the workers of a consumer, and those of its writer."""
    found = [*members.values()]
    if app.archive is not None and not app.copies:
        found += (await MemberList(tables.store(app.writer, aws)).read()).values()
    return tuple(sorted({m.refused for m in found if m.refused and not _is_silent(m, now)}))


@asynccontextmanager
async def _archive_of(app: App, aws: Aws, tables: AppTables) -> AsyncIterator[Archived | None]:
    """Open the archive that an app's consumer reads, if it has one."""
    if app.archive is None or app.copies:
        yield None
        return
    async with open_archive(app, tables, patient=True) as shards:
        store = CursorStore(aws.dynamodb, tables.space(app.writer))
        yield Archived(shards, ArchiveWriter(store.read))


async def _replaced(app: App, store: CursorStore) -> str:
    """Return the label of the newest other stream of the table that a consumer has read."""
    earlier = await predecessors(store, app.table)
    return earlier[0].space.label if earlier else ""


def _workers(members: Mapping[str, Member], now: float) -> tuple[WorkerStatus, ...]:
    return tuple(
        WorkerStatus(
            name=member.name,
            state=member.state,
            generation=member.generation,
            shards=member.held,
            beats=member.beats,
            last_beat=member.at,
            beat_age_seconds=max(0.0, now - member.at),
            leads=member.leads,
            throttled=used.throttled if (used := Usage.of(member.used)) else 0,
            silent=_is_silent(member, now),
            late=0 < member.lease < now - member.at - _ROUNDED_SECONDS,
        )
        for _, member in sorted(members.items())
    )


def _is_silent(member: Member, now: float) -> bool:
    return now - member.at > max(_SILENT_SECONDS, _SILENT_LEASES * member.lease)


def _host(generation: Generation | None) -> str:
    """Return what runs a consumer; workers do while it takes a handler over, or is taken over."""
    host = generation.host if generation else ""
    return WORKERS if host in ("", TAKING_OVER) else host

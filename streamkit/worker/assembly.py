"""The assembly of a worker's crew: this module alone connects its parts.

In: an app, a machine, tables, handlers. Out: a `Crew`, of which nothing runs yet.
"""

from dataclasses import replace
from functools import partial

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.archive.answers import WorkerObjects
from streamkit.archive.completeness import beginning
from streamkit.archive.lineage import LongLineage, RecordedLineage
from streamkit.archive.long_pages import ArchiveWriter
from streamkit.archive.objects import Flush, Objects
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.still_streamed import StillStreamed
from streamkit.core.dispatch import Dispatcher
from streamkit.core.tables import AppTables
from streamkit.fleet.claims import Claims
from streamkit.fleet.coordinator import Coordinator, Rhythm
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.founding import Founding, founding_of
from streamkit.fleet.heartbeat import Heartbeat
from streamkit.fleet.hosting import TAKING_OVER
from streamkit.fleet.known import KnownShards
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.lister import Lister
from streamkit.fleet.liveness import Liveness
from streamkit.fleet.members import Member, MemberList
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.taken import Births, app_store
from streamkit.fleet.view import FleetView
from streamkit.kinds.aggregate.sweep import Sweeping
from streamkit.observe.metrics import Counter
from streamkit.progress.commit import Committer
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.lease import LeaseWatch
from streamkit.progress.machine import Machine
from streamkit.progress.pacing import ByteBudget, Pacing
from streamkit.settings import Settings
from streamkit.stream.asking import AskRate
from streamkit.stream.listing import StreamLineage
from streamkit.stream.loss import Losses
from streamkit.stream.polling import PollingPool
from streamkit.table import Table
from streamkit.worker.automatic_retries import QueueRetries
from streamkit.worker.crew import Crew, ProcessPlace
from streamkit.worker.reading import ArchiveUse, Reading
from streamkit.worker.shardset import ShardSet
from streamkit.worker.stream_change import StreamChange


def assemble(
    app: App,
    machine: Machine,
    tables: AppTables,
    dispatcher: Dispatcher,
    settings: Settings,
    place: ProcessPlace,
    group: anyio.abc.TaskGroup,
    objects: Objects | None = None,
) -> Crew:
    """Build the crew of one worker; nothing runs yet.

    Args:
        app: its handlers run.
        machine: clients, clock and random numbers.
        tables: the app's tables.
        dispatcher: runs the handlers.
        settings: durations and bounds.
        place: the worker's place among those of its process; its name is the worker's.
        group: everything runs in it.
        objects: its app's archive, open, if there is one.
    """
    store, over = tables.store(app, machine.aws), anyio.Event()
    use = None if objects is None else _archive_use(app, machine, tables, objects, settings.lease)
    losses = _losses(app, machine, tables, store, dispatcher.meters.lost)
    founding = _founding(app, machine, tables, losses, use)
    view = _view(app, machine, store, founding, settings, place, over)
    reading = _reading(
        app, settings, place, view, losses, _lineage(machine, tables, store, use), use
    )
    retries = QueueRetries.of(app, machine, tables, dispatcher, wrote=reading.writes.note)
    hook = app.telemetry.on_shard
    shards = ShardSet(machine, tables, dispatcher, reading, retries, view, group, hook)
    claims = Claims(max(settings.grace, 2 * settings.lease), settings.lease)
    coordinator = _coordinator(shards, claims, settings, place)
    lister = partial(_lister, machine, tables, view, reading)
    sweeping = Sweeping(store, machine.clock, machine.rng)
    changed = StreamChange(machine.aws, tables.table)
    leadership = Leadership(
        coordinator, store, lister, settings.list_interval, sweeping.once, changed.look
    )
    return Crew(coordinator, shards, leadership, claims, settings, over)


def _losses(
    app: App, machine: Machine, tables: AppTables, store: CursorStore, lost: Counter
) -> Losses:
    """Build what applies the app's policy when records were trimmed before they were read."""
    aggregates = frozenset(handler.name for handler in app.handlers if handler.is_aggregate)
    return Losses(app.on_loss, Table(machine.aws.dynamodb, tables.table), store, aggregates, lost)


def _reading(
    app: App,
    settings: Settings,
    place: ProcessPlace,
    view: FleetView,
    losses: Losses,
    lineage: StreamLineage,
    use: ArchiveUse | None,
) -> Reading:
    """Build the means of reading that the shards share."""
    return Reading(
        PollingPool(settings.readers),
        ByteBudget(settings.prefetch_bytes),
        replace(settings.pace, checkpoint=0.1, quiet=0.5) if place.hurried else settings.pace,
        AskRate(lambda: view.asks),
        losses,
        lineage,
        place.reads,
        archive=use,
        units=settings.catch_up_wcu if app.exact else None,
    )


def _coordinator(
    shards: ShardSet, claims: Claims, settings: Settings, place: ProcessPlace
) -> Coordinator:
    """Build what takes, claims and gives shards."""
    return Coordinator(
        shards.view,
        shards,
        LeaseWatch(settings.lease, max(settings.lease / 2, 2 * settings.look_interval)),
        claims,
        Rhythm(settings.look_interval, settings.list_interval),
        shards.machine.clock,
        place.co_location,
    )


def _archive_use(
    app: App, machine: Machine, tables: AppTables, objects: Objects, lease: float
) -> ArchiveUse:
    """Build what an app with an archive needs of it."""
    store = tables.store(app.writer, machine.aws)
    mine = WorkerObjects(objects, app.copies)
    shards = ArchivedShards(mine, f"{app.table}/{store.space.label}")
    flush = app.archive.flush if app.archive is not None else Flush()
    writer = ArchiveWriter(store.read, Liveness(store, machine.clock, lease).is_over)
    return ArchiveUse(shards, mine, flush, writer, app.copies)


def _founding(
    app: App, machine: Machine, tables: AppTables, losses: Losses, use: ArchiveUse | None
) -> Founding:
    """Build what a consumer that has never run needs to begin."""
    past = None
    if use is not None:
        arn = tables.table.stream_arn or ""
        waiting = replace(use.shards, objects=replace(use.objects, waits=True))
        still = StillStreamed(machine.aws, arn, waiting, machine.clock)
        written = partial(every_cursor, tables.store(app.writer, machine.aws))
        past = partial(beginning, still, written)
    return founding_of(app, tables, machine.clock, losses, past)


def _lineage(
    machine: Machine, tables: AppTables, store: CursorStore, use: ArchiveUse | None
) -> StreamLineage:
    """Return what says which shards there are."""
    aws, arn = machine.aws, tables.table.stream_arn or ""
    if use is None:
        return StreamLineage(aws, arn)
    if use.copies:
        return RecordedLineage(aws, arn, use.shards, partial(store.time, machine.clock))
    return LongLineage(aws, arn, use.shards)


def _view(
    app: App,
    machine: Machine,
    store: CursorStore,
    founding: Founding,
    settings: Settings,
    place: ProcessPlace,
    over: anyio.Event,
) -> FleetView:
    """Build what the worker knows of its fleet before anything runs; `over` ends its name."""
    clock, fingerprint = machine.clock, app.fingerprint()
    # Short pauses between tries: a heartbeat that waits as long as a lease comes too late.
    member_list = MemberList(CursorStore(machine.aws.beats, store.space, settings.heartbeat / 3))
    me = Member(place.name, fingerprint=fingerprint, weight=settings.weight)
    me = replace(me, follows=place.co_location() is not None)
    heartbeat = Heartbeat(member_list, me, settings.heartbeat, clock, settings.lease)
    rollout = Rollout(
        store,
        fingerprint,
        app.handlers,
        clock,
        settings.take_over_after,
        founding,
        settings.take_over,
        renew=over.set,
    )
    return FleetView(heartbeat, KnownShards(store), rollout, place.consumers)


def _lister(
    machine: Machine, tables: AppTables, view: FleetView, reading: Reading, lead: Cursor
) -> Lister:
    """Build the lister that works under the lease `lead`."""
    store, control, joined = view.known.store, tables.control, view.rollout.joined
    dynamodb, rng = machine.aws.dynamodb, machine.rng
    births = Births(store, joined.joins) if joined and joined.joins else None
    if joined and joined.host == TAKING_OVER and not joined.joins:
        app, handler = app_store(store)
        births = Births(app, handler=handler)
    return Lister(
        reading.lineage,
        store,
        Committer(dynamodb, store.space, lead, {control.name: control}, rng),
        machine.clock,
        Pacing(reading.pace, rng),
        reading.asks,
        joined.since if joined else 0,
        births,
    )

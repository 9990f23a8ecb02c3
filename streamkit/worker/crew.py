"""A worker's crew: everything that runs under one name of a worker. `assemble` builds it.

In: an app, a machine, tables, handlers. Out: a `Crew` to `start`, and to `leave` with. This module
alone connects the parts:

    view ◄── shards ◄── coordinator ◄── leadership       which workers live, read which shards, lead
    retries ◄── shards                                   parked changes of the shards held here
"""

from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.archive.completeness import beginning
from streamkit.archive.lineage import LongLineage, RecordedLineage
from streamkit.archive.objects import Flush, Objects
from streamkit.archive.reader import ArchiveWriter
from streamkit.archive.shards import ArchivedShards
from streamkit.core.dispatch import Dispatcher
from streamkit.core.tables import AppTables
from streamkit.fleet.claims import Claims
from streamkit.fleet.coordinator import Coordinator, Rhythm
from streamkit.fleet.founding import Founding
from streamkit.fleet.heartbeat import Facts, Heartbeat
from streamkit.fleet.known import KnownShards
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.lister import Lister
from streamkit.fleet.liveness import Liveness
from streamkit.fleet.members import Member, MemberList, new_worker_name
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.sharing import CoLocation, not_co_located
from streamkit.fleet.view import FleetView
from streamkit.kinds.aggregate.sweep import Sweeping
from streamkit.observe.metrics import Metrics
from streamkit.progress.clock import Clock
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
from streamkit.stream.sharing import SharedReads
from streamkit.table import Table
from streamkit.worker.automatic_retries import QueueRetries
from streamkit.worker.reading import ArchiveUse, Reading
from streamkit.worker.shardset import ShardSet
from streamkit.worker.watchdog import watch_stream

IDLE_PAGES = 5
"""Quiet pages in a row, on every shard, after which `until_idle` ends; see `stream.reader`."""


@dataclass(frozen=True)
class ProcessPlace:
    """A worker's place among those of its process.

    `reads` are shared by the `consumers` of the same stream, None if there is only one.
    `co_location` returns the shards that the first consumer holds. `metrics` receives the counts
    of all workers of the process.
    """

    name: str = field(default_factory=new_worker_name)
    reads: SharedReads | None = None
    co_location: CoLocation = not_co_located
    consumers: int = 1
    metrics: Metrics | None = None


@dataclass(frozen=True)
class Crew:
    """Everything that runs under one name of a worker; `over` is set when that has to end."""

    coordinator: Coordinator
    shards: ShardSet
    leadership: Leadership
    claims: Claims
    settings: Settings
    over: anyio.Event
    _leading: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _led: anyio.Event = field(default_factory=anyio.Event)

    async def join(self) -> None:
        """Announce this worker to the other workers."""
        await self.coordinator.heartbeat.join(self._facts)

    def start(self) -> None:
        """Begin everything."""
        start, shards = self.shards.group.start_soon, self.shards
        machine, dispatcher = shards.machine, shards.dispatcher
        start(self.coordinator.heartbeat.beat_for_ever, self._facts)
        start(self.coordinator.look_for_ever)
        start(shards.reading.pool.run)
        start(shards.retries.run_for_ever)
        compare = dispatcher.shadows.compare_for_ever
        start(compare, machine.aws.dynamodb, shards.tables.schemas)
        start(self._lead)
        silence = 3 * max(self.settings.lease, self.settings.poll_ceiling)
        start(watch_stream, shards, self.coordinator, machine.aws, silence)

    async def _lead(self) -> None:
        with self._leading:
            await self.leadership.lead_for_ever()
        self._led.set()

    async def leave(self) -> None:
        """Drain, give everything back, and delete the heartbeat item."""
        self.coordinator.heartbeat.say(state="leaving")
        self._leading.cancel()
        await self._led.wait()
        await self.shards.drain()
        await self.leadership.resign()
        await self.coordinator.heartbeat.leave()

    def all_idle(self, pages: int) -> bool:
        """Return whether no worker of the fleet has anything to do."""
        return self.coordinator.all_idle(idle=self.is_idle(pages))

    def is_idle(self, pages: int) -> bool:
        """Return whether there is nothing to do here, as far as this worker knows.

        This is false while a shard is about to be taken, or has ended without a listed child, and
        while there may be a newer generation: there what this one has passed over is read again.
        """
        coordinator, lister = self.coordinator, self.leadership.lister
        enabled = self.shards.enabled and (lister is None or lister.enabled)
        if not coordinator.settled or (coordinator.me.childless and enabled):
            return False
        if coordinator.rollout.doubted or coordinator.rollout.superseded:
            return False
        if coordinator.me.leads and not self.leadership.listed:
            return False
        return self.shards.idle(pages) and not self.shards.retries.busy

    def _facts(self) -> Facts:
        dispatcher = self.shards.dispatcher
        used = dispatcher.meters.used
        return Facts(
            held=len(self.shards.held),
            claims=self.claims.tokens,
            idle=self.is_idle(IDLE_PAGES),
            used=used.text,
            lately=used.lately(int(self.coordinator.clock.time())),
            waits=dispatcher.failures.waiting,
        )


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
        place: among the workers of this process; its name is this worker's.
        group: everything runs in it.
        objects: its app's archive, open, if there is one.
    """
    aws, clock, rng = machine.aws, machine.clock, machine.rng
    store = tables.store(app, aws)
    aggregates = frozenset(handler.name for handler in app.handlers if handler.is_aggregate)
    table, lost = Table(aws.dynamodb, tables.table), dispatcher.meters.lost
    losses = Losses(app.on_loss, table, store, aggregates, lost)
    over = anyio.Event()
    use = None if objects is None else _archive_use(app, machine, tables, objects, settings.lease)
    founding = _founding(app, clock, losses, use)
    view = _view(app, machine, store, founding, settings, place, over)
    reading = Reading(
        PollingPool(settings.readers),
        ByteBudget(settings.prefetch_bytes),
        settings.pace,
        AskRate(lambda: view.asks),
        losses,
        _lineage(machine, tables, use),
        place.reads,
        archive=use,
        units=settings.catch_up_wcu if app.exact else None,
    )
    retries = QueueRetries.of(app, machine, tables, dispatcher, wrote=reading.writes.note)
    hook = app.telemetry.on_shard
    shards = ShardSet(machine, tables, dispatcher, reading, retries, view, group, hook)
    claims = Claims(max(settings.grace, 2 * settings.lease), settings.lease)
    coordinator = Coordinator(
        view,
        shards,
        LeaseWatch(settings.lease, max(settings.lease / 2, 2 * settings.look_interval)),
        claims,
        Rhythm(settings.look_interval, settings.list_interval),
        clock,
        place.co_location,
    )
    lister = partial(_lister, machine, tables, view, reading)
    sweeping = Sweeping(store, clock, rng)
    leadership = Leadership(coordinator, store, lister, settings.list_interval, sweeping.once)
    return Crew(coordinator, shards, leadership, claims, settings, over)


def _archive_use(
    app: App, machine: Machine, tables: AppTables, objects: Objects, lease: float
) -> ArchiveUse:
    """Build what an app with an archive needs of it."""
    store = tables.store(app.writer, machine.aws)
    shards = ArchivedShards(objects, f"{app.table}/{store.space.label}")
    flush = app.archive.flush if app.archive is not None else Flush()
    writer = ArchiveWriter(store.read, Liveness(store, machine.clock, lease).is_over)
    return ArchiveUse(shards, flush, writer, app.copies)


def _founding(app: App, clock: Clock, losses: Losses, use: ArchiveUse | None) -> Founding:
    """Build what a consumer that has never run needs to begin."""
    past = None if use is None else partial(beginning, use.shards)
    names = frozenset(app.listeners)
    return Founding(app.table, app.start, clock, losses, past, app.exact, names)


def _lineage(machine: Machine, tables: AppTables, use: ArchiveUse | None) -> StreamLineage:
    """Return what says which shards there are."""
    aws, arn = machine.aws, tables.table.stream_arn or ""
    if use is None:
        return StreamLineage(aws, arn)
    if use.copies:
        return RecordedLineage(aws, arn, use.shards, machine.clock)
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
    return Lister(
        reading.lineage,
        store,
        Committer(dynamodb, store.space, lead, {control.name: control}, rng),
        machine.clock,
        Pacing(reading.pace, rng),
        reading.asks,
        joined.since if joined else 0,
    )

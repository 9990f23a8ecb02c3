"""The worker: one process's part of the fleet that runs an app.

      start ──► check ──► join ──► share ──► drain ──► leave
                           ▲         │
                           └─────────┘     others took it for dead, or the generation took a step:
                                           it comes back under a new name

    check   the app fits its table, or the worker does not start
    join    make the heartbeat item, by which the others know of it
    share   look at the others, take, claim and give shards; run them; lead, if nobody else does
    drain   after `stop`: commit what is dispatched, write positions, give the leases back
    leave   take the heartbeat item away

Any number of workers share a consumer's shards; each shard has one owner at a time. A commit under
a lease that was lost is refused by the table, whatever this process believes.
"""

import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamkit.activity import first_error
from streamkit.aggregates.sweeping import Sweeping
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.control import Cursor
from streamkit.cursor import CursorStore
from streamkit.errors import LeaseLost
from streamkit.fleet.claims import Claims
from streamkit.fleet.coordinator import Coordinator, Rhythm
from streamkit.fleet.joining import Founding
from streamkit.fleet.known import KnownShards
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.members import Member, Roster, new_worker_name
from streamkit.fleet.presence import Presence
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.sharing import Anchor, no_anchor
from streamkit.lease import LeaseWatch
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import Meters
from streamkit.observe.metrics import Metrics, join
from streamkit.observe.repeats import counted_as
from streamkit.pacing import ByteBudget, Pacing
from streamkit.parked.retrying import LaneRetries
from streamkit.polling import PollingPool
from streamkit.processing.commit import Committer
from streamkit.processing.dispatch import Dispatcher, Tools
from streamkit.processing.injection import injector
from streamkit.processing.tracing import Tracing
from streamkit.running.preflight import findings, require
from streamkit.running.shardset import ShardSet
from streamkit.running.standing import Standing, standing_of
from streamkit.running.watchdog import watch_stream
from streamkit.settings import Settings
from streamkit.sinks.outlets import Outlets, open_outlets
from streamkit.source.asking import AskRate
from streamkit.source.lister import Lister
from streamkit.source.loss import Losses
from streamkit.source.sharing import SharedReads
from streamkit.surroundings import Surroundings, survey
from streamkit.table import Table

log = get_logger("streamkit.worker")

_IDLE_PAGES = 5
"""Quiet pages in a row, on every shard, after which `until_idle` ends; see `source.reader`."""


@dataclass(frozen=True)
class Place:
    """A worker's place among those of its process.

    `reads` are shared by all of them, `consumers` counts those of the same stream, and `anchor`
    says which shards the first of these holds. `resources` are what the app's lifespan has yielded
    already, None if it is the worker's own to run. `metrics` is told what all of them count.
    """

    reads: SharedReads
    name: str = field(default_factory=new_worker_name)
    anchor: Anchor = no_anchor
    consumers: int = 1
    resources: tuple[Any, ...] | None = None
    metrics: Metrics | None = None


class Worker:
    """Runs one app until it is stopped. `run` may be called once.

    Args:
        app: what to run.
        aws: open clients.
        settings: durations and bounds.
        clock, rng: time and randomness, for simulations.
        place: among the workers of this process; by default it is alone, see `workers`.
    """

    def __init__(
        self,
        app: App,
        aws: Aws,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        place: Place | None = None,
    ) -> None:
        self.app = app
        self.dispatcher: Dispatcher | None = None
        self._aws = aws
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.place = place or Place(SharedReads(aws, self._clock))
        self.name = self.place.name
        self.meters = Meters(join(self.place.metrics, app.telemetry.metrics), app.name)
        self.tracing = Tracing.of(app.telemetry, app.name)
        self._stop = anyio.Event()
        self._ended = False
        self._outlets = Outlets()
        self._crew: _Crew | None = None

    def stop(self) -> None:
        """Ask for a graceful end: drain, write positions, release, return from `run`."""
        self._stop.set()
        if self._crew is not None:
            self._crew.over.set()

    def is_idle(self, pages: int = _IDLE_PAGES) -> bool:
        """Say whether nobody has anything to do: every shard served so many quiet pages in a row.

        That goes for the shards here; the fleet's other workers say so in their heartbeats.
        """
        return self._crew is not None and self._crew.all_idle(pages)

    def count_anew(self) -> None:
        """Let only pages that are read from now on count for `is_idle`."""
        if self._crew is not None:
            self._crew.shards.count_anew()

    @property
    def shards(self) -> frozenset[str]:
        """The shards that this worker reads at the moment."""
        return frozenset(self._crew.shards.running) if self._crew is not None else frozenset()

    @property
    def held(self) -> frozenset[str] | None:
        """The shards that it reads or is about to take; None once it has ended."""
        if self._ended:
            return None
        return frozenset(self._crew.shards.held) if self._crew is not None else frozenset()

    @property
    def standing(self) -> Standing:
        """Where it stands, from memory: for gauges and probes."""
        if self._crew is None:
            return Standing(self.app.name, "ended" if self._ended else "starting")
        return standing_of(self.app.name, self._crew.leadership, self._crew.shards)

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped, or until the stream has nothing more to read here.

        Raises:
            ConfigurationError: the app does not fit its table, or may not use it.
            RetentionLost: records may have been trimmed before they were read.
        """
        self.meters.used.since = int(self._clock.time())
        try:
            with counted_as(self.meters):
                await self._run(until_idle)
        finally:
            self._ended = True

    async def _run(self, until_idle: bool) -> None:
        around = await survey(self.app, self._aws)
        opened = self.place.resources
        async with (
            self.app.resources() if opened is None else nullcontext(opened) as resources,
            open_outlets(self.app.sinks, self._clock) as self._outlets,
        ):
            require(findings(self.app, around, resources))
            store = CursorStore(self._aws.dynamodb, around.space(self.app))
            while not await self._live(around, store, resources, until_idle):
                # Others swept it, or the generation took a step; a name is never used twice.
                self.name = new_worker_name()

    async def _live(
        self, around: Surroundings, store: CursorStore, resources: tuple[Any, ...], until_idle: bool
    ) -> bool:
        """Work under one name. Return False if the worker has to begin anew, under another one."""
        tools = injector(self._aws.dynamodb, around.table, resources, around.schemas, store.space)
        self.dispatcher = self._make_dispatcher(around, tools)
        try:
            async with anyio.create_task_group() as group:
                crew = self._crew = _Crew(self, around, store, self.dispatcher, tools, group)
                await crew.coordinator.presence.join()
                log.info(
                    "worker.started", worker=self.name, app=self.app.name, table=self.app.table
                )
                crew.start()
                await self._until_done(crew, until_idle)
                superseded = crew.coordinator.rollout.superseded
                await crew.leave()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            error = first_error(errors)
            if not isinstance(error, LeaseLost):
                raise error from errors
            crew.shards.abandon()
            log.info("worker.swept", worker=self.name)
            return self._stop.is_set()
        finally:
            self._crew = None
        log.info("worker.stopped", worker=self.name)
        return self._stop.is_set() or not superseded

    async def _until_done(self, crew: "_Crew", until_idle: bool) -> None:
        pause = self._settings.poll_floor if until_idle else None
        while not (self._stop.is_set() or crew.over.is_set()):
            if until_idle and crew.all_idle(_IDLE_PAGES):
                return
            with anyio.move_on_after(pause):
                await crew.over.wait()

    def _make_dispatcher(self, around: Surroundings, tools: Tools) -> Dispatcher:
        return Dispatcher(
            self.app.handlers,
            self.app.router(around.table),
            around.table,
            tools,
            self._rng,
            self._settings.concurrency,
            clock=self._clock,
            outlets=self._outlets,
            tables=around.schemas,
            cascades=self.app.cascades(),
            meters=self.meters,
            tracing=self.tracing,
        )


class _Crew:
    """What runs under one name of a worker."""

    def __init__(
        self,
        worker: Worker,
        around: Surroundings,
        store: CursorStore,
        dispatcher: Dispatcher,
        tools: Tools,
        group: anyio.abc.TaskGroup,
    ) -> None:
        settings = worker._settings  # noqa: SLF001 - one thing in two classes
        self._worker, self._around, self._store, self._group = worker, around, store, group
        self._settings = settings
        self._clock, self._rng, self._aws = worker._clock, worker._rng, worker._aws  # noqa: SLF001
        self._pool = PollingPool(settings.readers)
        self._asks = AskRate(lambda: self.coordinator.asks)
        self._place = worker.place
        self._losses = Losses(
            worker.app.on_loss,
            Table(self._aws.dynamodb, around.table),
            store,
            frozenset(h.name for h in worker.app.handlers if h.is_aggregate),
            worker.meters.lost,
        )
        self._retries = LaneRetries.of(
            worker.app,
            self._aws,
            around,
            tools,
            rng=self._rng,
            clock=self._clock,
            like=dispatcher,
        )
        self.shards = ShardSet(
            self._aws,
            around,
            store,
            dispatcher,
            ByteBudget(settings.prefetch_bytes),
            settings.pace,
            self._clock,
            self._rng,
            self._pool,
            self._losses,
            group,
            self._retries,
            self._asks,
            self._place.reads,
            worker.app.telemetry.on_shard,
        )
        self.coordinator = self.shards.coordinator = self._make_coordinator(worker.app)
        sweeping = Sweeping(store, self._clock, self._rng)
        self.leadership = Leadership(
            self.coordinator, store, self._make_lister, settings.list_interval, sweeping.once
        )
        self.over = anyio.Event()
        self.coordinator.rollout.renew = self.over.set
        self._leading = anyio.CancelScope()
        self._led = anyio.Event()

    def _make_coordinator(self, app: App) -> Coordinator:
        settings, clock, shards = self._settings, self._clock, self.shards
        fingerprint, name = app.fingerprint(), self._worker.name
        follows = self._place.anchor() is not None
        # A heartbeat that waits between two tries as long as a lease would be late for it.
        roster = Roster(CursorStore(self._aws.beats, self._store.space, settings.heartbeat / 3))
        claims = Claims(max(settings.grace, 2 * settings.lease), settings.lease)
        presence = Presence(
            roster,
            Member(name, fingerprint=fingerprint, weight=settings.weight, follows=follows),
            settings.heartbeat,
            clock,
            held=lambda: len(shards.held),
            claims=lambda: claims.tokens,
            is_idle=lambda: self.is_idle(_IDLE_PAGES),
            used=lambda: self._worker.meters.used.text,
            waits=lambda: shards.dispatcher.failures.waiting,
            lease_seconds=settings.lease,
        )
        founding = Founding(app.table, app.start, clock, self._losses)
        take_over = (settings.take_over_after, founding, settings.take_over)
        return Coordinator(
            roster,
            KnownShards(self._store),
            shards,
            Rollout(self._store, fingerprint, app.handlers, clock, *take_over),
            LeaseWatch(settings.lease, max(settings.lease / 2, 2 * settings.look_interval)),
            claims,
            Rhythm(settings.look_interval, settings.list_interval),
            clock,
            presence,
            self._place.anchor,
            self._place.consumers,
        )

    def _make_lister(self, lead: Cursor) -> Lister:
        control, space = self._around.control, self._store.space
        joined = self.coordinator.rollout.joined
        return Lister(
            self._aws,
            self._around.table.stream_arn or "",
            self._store,
            Committer(self._aws.dynamodb, space, lead, {control.name: control}, self._rng),
            self._clock,
            Pacing(self._settings.pace, self._rng),
            self._asks,
            joined.since if joined else 0,
        )

    def start(self) -> None:
        """Begin everything."""
        start = self._group.start_soon
        start(self.coordinator.presence.beat_for_ever)
        start(self.coordinator.look_for_ever)
        start(self._pool.run)
        start(self._retries.run_for_ever)
        compare = self.shards.dispatcher.shadows.compare_for_ever
        start(compare, self._aws.dynamodb, self._around.schemas)
        start(self._lead)
        silence = 3 * max(self._settings.lease, self._settings.poll_ceiling)
        start(watch_stream, self.shards, self.coordinator, self._aws, silence)

    async def _lead(self) -> None:
        with self._leading:
            await self.leadership.lead_for_ever()
        self._led.set()

    async def leave(self) -> None:
        """Drain, give everything back, and take the heartbeat item away."""
        self.coordinator.presence.say(state="leaving")
        self._leading.cancel()
        await self._led.wait()
        await self.shards.drain()
        await self.leadership.resign()
        await self.coordinator.presence.leave()

    def all_idle(self, pages: int) -> bool:
        """Say whether nobody in the fleet has anything to do."""
        return self.coordinator.all_idle(idle=self.is_idle(pages))

    def is_idle(self, pages: int) -> bool:
        """Say whether there is nothing to do here, as far as can be known here.

        Not while a shard is about to be taken or has ended without a child that was listed.
        """
        coordinator, lister = self.coordinator, self.leadership.lister
        enabled = self.shards.enabled and (lister is None or lister.enabled)
        if not coordinator.settled or (coordinator.me.childless and enabled):
            return False
        if coordinator.me.leads and not self.leadership.listed:
            return False
        return self.shards.idle(pages) and not self._retries.busy

"""The worker: one process's part of the fleet that runs an app.

      start ──► check ──► join ──► share ──► drain ──► leave
                           ▲         │
                           └─────────┘     it was swept as dead, or the generation took a step:
                                           it comes back under a new name

    check   the app fits its table, or the worker does not start
    join    make the heartbeat item, by which other workers know of it
    share   look at the members, take, claim and give shards; run them; lead, if no other does
    drain   after `stop`: commit what is dispatched, write positions, give the leases back
    leave   delete the heartbeat item

Any number of workers share a consumer's shards; each shard has one owner at a time. The table
refuses a commit under a lease that was lost, also if this process does not know of the loss.
"""

import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

import anyio

from streamkit.app import App
from streamkit.archive.objects import Objects
from streamkit.aws import Aws
from streamkit.core.dispatch import Dispatcher
from streamkit.core.routes import Channels
from streamkit.core.tables import AppTables, survey
from streamkit.core.tracing import Tracing
from streamkit.errors import LeaseLost
from streamkit.fleet.hosting import TAKEN, TAKING_OVER, host_of
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.injection import injector
from streamkit.kinds.preflight import findings, require
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import Meters
from streamkit.observe.metrics import join
from streamkit.observe.repeats import counted_as
from streamkit.progress.activity import task_group
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.machine import Machine
from streamkit.settings import Settings
from streamkit.sinks.outlets import Outlets, open_outlets
from streamkit.worker.assembly import assemble
from streamkit.worker.crew import IDLE_PAGES, Crew, ProcessPlace
from streamkit.worker.joined_app import joined_app
from streamkit.worker.report import WorkerReport, report_of

log = get_logger("streamkit.worker")


class Worker:
    """Runs one app until it is stopped; `run` may be called once.

    Args:
        app: what to run.
        aws: open clients.
        settings: durations and bounds.
        clock, rng: time and randomness, for simulations.
        place: its place among the workers of this process; by default it is alone, see `process`.
    """

    def __init__(
        self,
        app: App,
        aws: Aws,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        place: ProcessPlace | None = None,
    ) -> None:
        self.app = app
        self.dispatcher: Dispatcher | None = None
        self._machine = Machine(aws, clock or SystemClock(), rng or random.Random())
        self._settings = settings or Settings()
        self._place = place or ProcessPlace()
        self.meters = Meters(join(self._place.metrics, app.telemetry.metrics), app.name)
        self.tracing = Tracing.of(app.telemetry, app.name)
        self._stop = anyio.Event()
        self._ended = False
        self._taken = False
        self._crew: Crew | None = None
        self._objects: Objects | None = None

    @property
    def name(self) -> str:
        """Return its name in the fleet; a swept worker takes another one."""
        return self._place.name

    def stop(self) -> None:
        """Begin a graceful end: drain, write positions, release, return from `run`."""
        self._stop.set()
        if self._crew is not None:
            self._crew.over.set()

    def is_idle(self, pages: int = IDLE_PAGES) -> bool:
        """Return whether no worker has anything to do: every shard served so many quiet pages.

        This worker checks its own shards; the fleet's other workers report theirs in their
        heartbeats.
        """
        return self._taken or (self._crew is not None and self._crew.all_idle(pages))

    def count_anew(self) -> None:
        """Restart the count for `is_idle`: only pages read from now on count."""
        if self._crew is not None:
            self._crew.shards.reading.writes.note()

    @property
    def shards(self) -> frozenset[str]:
        """Return the shards that this worker reads at the moment."""
        return frozenset(self._crew.shards.running) if self._crew is not None else frozenset()

    @property
    def held(self) -> frozenset[str] | None:
        """Return the shards that it reads or is about to take; None once it has ended."""
        if self._ended:
            return None
        return frozenset(self._crew.shards.held) if self._crew is not None else frozenset()

    @property
    def report(self) -> WorkerReport:
        """Return its state, from memory, for gauges and probes."""
        if self._crew is None:
            ended = "taken over" if self._taken else "ended" if self._ended else ""
            return WorkerReport(self.app.name, ended or "starting")
        return report_of(self.app.name, self._crew.leadership, self._crew.shards)

    async def run(
        self, *, until_idle: bool = False, resources: tuple[Any, ...] | None = None
    ) -> None:
        """Work until stopped, or until the stream has nothing more to read here.

        Args:
            until_idle: end when there is nothing to do.
            resources: what the app's lifespan has yielded; by default the lifespan is run here.

        Raises:
            ConfigurationError: the app does not fit its table, or may not use it.
            RetentionLost: records may have been trimmed before they were read.
        """
        self.meters.used.begin(int(self._machine.clock.time()))
        try:
            with counted_as(self.meters):
                await self._run(until_idle, resources)
        finally:
            self._ended = True

    async def _run(self, until_idle: bool, opened: tuple[Any, ...] | None) -> None:
        tables = await survey(self.app, self._machine.aws)
        async with (
            self.app.resources() if opened is None else nullcontext(opened) as resources,
            open_outlets(self.app.sinks, self._machine.clock) as outlets,
            _opened(self.app) as self._objects,
        ):
            require(findings(self.app, tables, resources))
            while not await self._live(tables, resources, outlets, until_idle):
                # It was swept, or the generation took a step; a name is never used twice.
                self._place = replace(self._place, name=new_worker_name())

    async def _live(
        self,
        tables: AppTables,
        resources: tuple[Any, ...],
        outlets: Outlets,
        until_idle: bool,
    ) -> bool:
        """Work under one name; return False if the worker must start again under another name."""
        app = await self._as_joined(tables)
        if app is None:
            log.info("consumer.taken", app=self.app.name)
            self._taken = True
            return True
        self.dispatcher = self._make_dispatcher(app, tables, resources, outlets)
        try:
            async with task_group() as group:
                parts = (app, self._machine, tables, self.dispatcher, self._settings)
                crew = self._crew = assemble(*parts, self._place, group, self._objects)
                await crew.join()
                log.info(
                    "worker.started", worker=self.name, app=self.app.name, table=self.app.table
                )
                crew.start()
                await self._until_done(crew, until_idle)
                superseded = crew.coordinator.rollout.superseded
                await crew.leave()
                group.cancel_scope.cancel()
        except LeaseLost:
            crew.shards.abandon()
            log.info("worker.swept", worker=self.name)
            return self._stop.is_set()
        finally:
            self._crew = None
        log.info("worker.stopped", worker=self.name)
        return self._stop.is_set() or not superseded

    async def _until_done(self, crew: Crew, until_idle: bool) -> None:
        pause = self._settings.poll_floor if until_idle else None
        while not (self._stop.is_set() or crew.over.is_set()):
            if until_idle and crew.all_idle(IDLE_PAGES):
                return
            with anyio.move_on_after(pause):
                await crew.over.wait()

    async def _as_joined(self, tables: AppTables) -> App | None:
        """Return the app with the handlers that it takes over; None if it was taken over itself."""
        store = tables.store(self.app, self._machine.aws)
        if self.app.exact:
            there = await host_of(store)
            self._place = replace(self._place, hurried=there == TAKING_OVER)
            return None if there == TAKEN else self.app
        return await joined_app(self.app, store)

    def _make_dispatcher(
        self, app: App, tables: AppTables, resources: tuple[Any, ...], outlets: Outlets
    ) -> Dispatcher:
        space = tables.space(app)
        dynamodb = self._machine.aws.dynamodb
        tools = injector(dynamodb, tables.table, resources, tables.schemas, space)
        return Dispatcher(
            app.handlers,
            app.routes(tables.schemas),
            tools,
            self._machine.clock,
            self._machine.rng,
            Channels(outlets, self.meters, self.tracing),
            concurrency=self._settings.concurrency,
        )


def _opened(app: App) -> AbstractAsyncContextManager[Objects | None]:
    """Open the app's archive, if it has one."""
    return nullcontext() if app.archive is None else app.archive.opened()

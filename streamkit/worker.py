"""The worker: reads every shard of an app's stream, and commits what its handlers answer.

      start ──► check ──► wait ──► lead ──► run ──► drain ──► release
                           ▲                 │
                           └──── lost ◄──────┘        another worker took over: wait again

    check   the app fits its table, or the worker does not start
    wait    another worker leads this consumer: watch its heartbeat for a lease duration
    lead    take the lister's lease, then every cursor that is not finished
    run     one pipeline a shard; the lister creates cursors; finished shards start their children
    drain   after `stop`: commit what is dispatched, write positions, give the leases back

One worker at a time owns a consumer's shards; a second one waits. A commit under a lease that was
lost is refused by the table, whatever this process believes.
"""

import random
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.commit import Committer
from streamkit.control import Cursor
from streamkit.cursor import CursorStore
from streamkit.dispatch import Dispatcher
from streamkit.errors import InvariantError, LeaseLost
from streamkit.fleet.generation import Generation, join_generation, newest_generation
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.members import Member, Watch, new_worker_name, runs_somewhere, sweep_members
from streamkit.injection import injector
from streamkit.observe.logger import get_logger
from streamkit.pacing import ByteBudget, Pacing
from streamkit.preflight import Surroundings, findings, require, survey
from streamkit.settings import Settings
from streamkit.shardset import ShardSet
from streamkit.source.lister import Lister

log = get_logger("streamkit.worker")

_IDLE_PAGES = 5
"""Quiet pages in a row, on every shard, after which `until_idle` ends: see the facts on empty
pages in `source.reader`."""
_SWEEP_LEASES = 10
"""A worker is swept only long after its shards were taken: it may have been paused."""
_LATE_SECONDS = 1.0
"""Between listings while children are awaited: one call in ten that the service allows."""


class Worker:
    """Runs one app until it is stopped. `run` may be called once.

    Args:
        app: what to run.
        aws: open clients.
        settings: durations and bounds.
        clock, rng: time and randomness, for simulations.
    """

    def __init__(
        self,
        app: App,
        aws: Aws,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.app = app
        self.name = new_worker_name()
        self.dispatcher: Dispatcher | None = None
        self._aws = aws
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._stop = anyio.Event()
        self._shards: ShardSet | None = None

    def stop(self) -> None:
        """Ask for a graceful end: drain, write positions, release, return from `run`."""
        self._stop.set()
        if self._shards is not None:
            self._shards.stop()

    def is_idle(self, pages: int = _IDLE_PAGES) -> bool:
        """Say whether every shard has served so many pages in a row without a change."""
        return self._shards is not None and self._shards.idle(pages)

    def count_anew(self) -> None:
        """Let only pages that are read from now on count for `is_idle`."""
        if self._shards is not None:
            self._shards.count_anew()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped, or until the stream has nothing more to read.

        Raises:
            ConfigurationError: the app does not fit its table, or may not use it.
            RetentionLost: records may have been trimmed before they were read.
        """
        around = await survey(self.app, self._aws)
        async with self.app.resources() as resources:
            require(findings(self.app, around, resources))
            store = CursorStore(self._aws.dynamodb, around.space(self.app))
            while not await self._live(around, store, resources, until_idle):
                # It stood still so long that others swept it; a name is never used twice.
                self.name = new_worker_name()

    async def _live(
        self, around: Surroundings, store: CursorStore, resources: tuple[Any, ...], until_idle: bool
    ) -> bool:
        """Work under one name. Return False if others took this worker for dead and swept it."""
        member = Member(
            store, self.name, self._settings.heartbeat, self._clock, self.app.fingerprint()
        )
        await member.join()
        log.info("worker.started", worker=self.name, app=self.app.name, table=self.app.table)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(member.beat_for_ever)
                await self._lead_until_stopped(around, store, resources, until_idle)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            error = first_error(errors)
            if not isinstance(error, LeaseLost):
                raise error from errors
            log.info("worker.swept", worker=self.name)
            return self._stop.is_set()
        await member.leave()
        log.info("worker.stopped", worker=self.name)
        return True

    async def _lead_until_stopped(
        self, around: Surroundings, store: CursorStore, resources: tuple[Any, ...], until_idle: bool
    ) -> None:
        watch = Watch(store, self._clock, self._settings.lease)
        leadership = Leadership(store, watch, self.name, self._settings.heartbeat)
        while not self._stop.is_set():
            lister = await self._wait_for_lead(leadership, store)
            if lister is None:
                return
            try:
                await self._run_shards(around, store, lister, resources, until_idle)
            except BaseExceptionGroup as errors:
                error = first_error(errors)
                if not isinstance(error, LeaseLost):
                    raise
                log.info("worker.lost", reason=str(error))
            else:
                return

    async def _wait_for_lead(self, leadership: Leadership, store: CursorStore) -> Cursor | None:
        """Wait for the lister's lease and a generation to run in; None means stopped."""
        # One of its own: leadership forgets an owner when it finds it dead.
        watch = Watch(store, self._clock, self._settings.lease)
        while not self._stop.is_set():
            found: Cursor | None = None
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_on, self._stop, group.cancel_scope)
                found = await leadership.free_or_abandoned()
                group.cancel_scope.cancel()
            if found is None:
                return None
            generation = await self._join(store, watch)
            if generation is None:
                with anyio.move_on_after(self._settings.heartbeat):
                    await self._stop.wait()
                continue
            taken = await leadership.take(found, generation.number)
            if taken is not None:
                return taken
        return None

    async def _join(self, store: CursorStore, watch: Watch) -> Generation | None:
        """Join or start a generation; None means: stand by.

        A worker of an older roll-out leaves the shards to those of the newest, and takes over
        only when none of them is left: a roll-back, or they all died.
        """
        fingerprint, handlers = self.app.fingerprint(), self.app.handlers
        generation = await join_generation(store, fingerprint, handlers, take_over=False)
        if generation is None:
            newest = await newest_generation(store)
            if newest and await runs_somewhere(store, watch, newest.fingerprint, self.name):
                log.info("worker.stands_by", worker=self.name, newest=newest.number)
                return None
            generation = await join_generation(store, fingerprint, handlers, take_over=True)
        if generation is None:
            raise InvariantError("an older roll-out was refused although it takes over")
        log.info(
            "generation.joined",
            generation=generation.number,
            needs_rebuild=sorted(generation.rebuild),
        )
        return generation

    async def _run_shards(
        self,
        around: Surroundings,
        store: CursorStore,
        lead: Cursor,
        resources: tuple[Any, ...],
        until_idle: bool,
    ) -> None:
        committer = Committer(
            self._aws.dynamodb, store.space, lead, {around.control.name: around.control}, self._rng
        )
        pacing = Pacing(self._settings.pace, self._rng)
        arn = around.table.stream_arn or ""
        lister = Lister(self._aws, arn, store, committer, self._clock, pacing)
        async with anyio.create_task_group() as group:
            self._shards = shards = ShardSet(
                self._aws,
                around,
                store,
                self._make_dispatcher(around, resources),
                ByteBudget(self._settings.prefetch_bytes),
                self._settings.pace,
                self._clock,
                self._rng,
                self.name,
                lead.generation,
                group,
            )
            shards.start((await store.read_all()).values())
            async with anyio.create_task_group() as listing:
                listing.start_soon(self._list_for_ever, lister, shards)
                await self._until_done(shards, until_idle)
                listing.cancel_scope.cancel()
            shards.stop()
        self._shards = None
        await store.release(committer.cursor)

    async def _list_for_ever(self, lister: Lister, shards: ShardSet) -> None:
        """List now and then, and often while a finished shard's children are not listed yet."""
        watch = Watch(lister.store, self._clock, max(_SWEEP_LEASES * self._settings.lease, 60.0))
        while True:
            await lister.require_lease()
            await sweep_members(lister.store, watch, self.name)
            created, swept = await lister.once(shards.cursors)
            shards.forget(swept)
            shards.start(created)
            shards.listed = True
            interval = self._settings.list_interval
            seconds = min(interval, _LATE_SECONDS) if shards.awaits_children() else interval
            shards.childless = anyio.Event()
            with anyio.move_on_after(seconds):
                await shards.childless.wait()

    async def _until_done(self, shards: ShardSet, until_idle: bool) -> None:
        if not until_idle:
            await self._stop.wait()
            return
        while not (self._stop.is_set() or shards.idle(_IDLE_PAGES)):
            with anyio.move_on_after(self._settings.poll_floor):
                await self._stop.wait()

    def _make_dispatcher(self, around: Surroundings, resources: tuple[Any, ...]) -> Dispatcher:
        schema = around.table
        self.dispatcher = Dispatcher(
            self.app.handlers,
            self.app.router(schema),
            schema,
            injector(self._aws.dynamodb, schema, resources),
            self._rng,
            self._settings.concurrency,
        )
        return self.dispatcher


async def _cancel_on(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a task group: a lost lease only if there is nothing worse."""
    flat: list[BaseException] = []
    todo: list[BaseException] = [errors]
    while todo:
        error = todo.pop()
        if isinstance(error, BaseExceptionGroup):
            todo += error.exceptions
        else:
            flat.append(error)
    return min(flat, key=lambda error: isinstance(error, LeaseLost))

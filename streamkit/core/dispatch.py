"""Dispatch: run the handlers that listen to a page's records, and return pending changes.

In: a page. Out: pending changes in the page's order, each with the
outcome of every handler concerned. Keys route a record; an image becomes its entity only for a
handler that wants it. `def` handlers are pure and run at once; the runs of `async def` handlers are
returned, for `HandlerRuns`.

On failure: an outcome carries the failure; nothing raises. A change that only has to be tried again
still waits, and runs again before its commit.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from streamkit.core.attempts import PATIENT, Attempts, Patience
from streamkit.core.by_item import Run
from streamkit.core.failures import DispatchCounts, Failures
from streamkit.core.handler import AsRun, Handler, as_registered
from streamkit.core.listeners import Listeners
from streamkit.core.outcome import Aim, Outcome, PendingChange, resolve
from streamkit.core.parking import Failure
from streamkit.core.routes import Channels, Routes
from streamkit.core.runs import HandlerRuns, Tools
from streamkit.core.sending import Sending
from streamkit.core.shadow import Shadows
from streamkit.core.totals import Adders, Block
from streamkit.core.tracing import UNTRACED
from streamkit.core.typed import TypedChanges
from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, RetryableError
from streamkit.model.origin import APPLICATION, WriteOrigin, read_origin, writer_of
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.pacing import GIVE_WAY_SECONDS, Turn
from streamkit.stream.decode import CONTROL, Page, Record

log = get_logger("streamkit.handler")


@dataclass
class Dispatcher:
    """Runs the handlers of one app, for all shards. With `marks`, items have high-water marks."""

    handlers: Sequence[Handler]
    routes: Routes
    tools: Tools
    clock: Clock
    rng: random.Random
    channels: Channels = field(default_factory=Channels)
    patience: Patience = PATIENT
    concurrency: int = 64
    marks: bool = False

    def __post_init__(self) -> None:
        """Index the handlers by what they listen to."""
        routes = self.routes
        self.router, self.schema = routes.router, routes.tables.own
        self.meters, self.tracing = self.channels.meters, self.channels.tracing
        self.counts = DispatchCounts()
        self.failures = Failures(self.counts, self.clock)
        self.shadows = Shadows(self.clock, self.counts.shadow)
        self._aim = Aim(routes.tables, routes.cascades)
        self._fed = routes.cascades.fed()
        self.raw = any(handler.raw for handler in self.handlers)
        self._typed = TypedChanges(self.handlers, self.schema)
        self.change_of = self._typed.change_of
        self._traced = self.tracing.is_on
        self.attempts = Attempts(self.failures, self.rng, self.patience)
        self.sending = Sending(self.channels.outlets, self.attempts)
        self._heard = Listeners(self.handlers, self.router, self._pending)
        self._listeners, self.wants = self._heard.places, self._heard.wants
        self.unrun = self._heard.unrun
        heard = {} if self._traced else self._listeners
        self._adders = Adders.of(heard, self._typed, self._aim, self.failures, self.meters)
        self._turn = Turn(self.clock)
        self.runs = HandlerRuns(
            routes.tables,
            self.channels,
            self._typed,
            self.tools,
            self.attempts,
            self.shadows,
            self._turn,
            self.concurrency,
        )

    async def dispatch(
        self, page: Page, shard_id: str, as_run: AsRun = as_registered, *, blocks: bool = False
    ) -> tuple[list[PendingChange], list[Run], int]:
        """Route a page and run its pure handlers, as this shard runs them.

        Other tasks get their turn between changes, so that a slow handler does not cost a lease.
        With `blocks`, changes in a row that only add up, or write items plainly, become one pending
        change.

        Returns:
            The pending changes, runs left for `run_chains`, and how many records are the app's own.
        """
        pending: list[PendingChange] = []
        later: list[Run] = []
        traffic = 0
        block = self._block(pending, shard_id, as_run) if blocks and not page.marked else None
        marked = page.marked and not self.raw
        for record in page.records:
            await self._turn.give_way()
            entity = self.router.route(record)
            if entity is CONTROL:
                self.counts.control += 1
                continue
            traffic += 1
            if not isinstance(entity, type):
                self.counts.unknown += entity is None
                found = entity and self._heard.retyped(record, marked, shard_id, as_run)
                for change in found or ():
                    later += self._take(change, pending, block, shard_id)
                continue
            if block is not None and block.takes(record, entity):
                self.counts.changes += 1
                continue
            written = record.counting() if marked else record
            listeners = written and self._listeners.get((entity, written.kind))
            if written is None or not listeners:
                continue
            origin = APPLICATION
            if marked or entity in self._fed:
                read = read_origin(record.old_image, record.new_image)
                if read is None:  # nothing but the origin has changed
                    continue
                origin = read
            record = written  # noqa: PLW2901 - as handlers see it
            running = [ran for h in listeners if (ran := as_run(h, record)) is not None]
            change = self._pending(record, entity, running, shard_id, origin)
            later += self._take(change, pending, block, shard_id)
        if block is not None:
            block.close()
        return pending, later, traffic

    def _take(
        self,
        change: PendingChange,
        pending: list[PendingChange],
        block: Block | None,
        shard_id: str,
    ) -> list[Run]:
        """Run the pure handlers of a change, if there are any, and let it wait, or join a block."""
        if not change.outcomes:
            return []
        self.counts.changes += 1
        if block is not None and self._joins(block, change, shard_id):
            return []
        pending.append(change)
        return self._run_pure(change, shard_id)

    def _joins(self, block: Block, change: PendingChange, shard_id: str) -> bool:
        """Run the handlers of a change that do not add up; return whether the block takes it.

        The block ends before a change that goes its own way.
        """
        beside = None if change.sides else block.beside(change)
        for outcome in beside or ():
            self._run_sync(change, outcome, shard_id)
        joins = beside is not None and block.joins(change, beside)
        if not joins:
            block.close()
        return joins

    def _block(self, pending: list[PendingChange], shard_id: str, as_run: AsRun) -> Block | None:
        """Return what makes blocks of the changes of a page; None if no handler is suitable."""
        if not (self._adders.handlers or self._adders.mixed):
            return None
        apart = partial(self.apart, shard_id=shard_id)
        return Block(self._adders, pending, as_run, apart, self.marks)

    def apart(self, pending: Iterable[PendingChange], shard_id: str) -> list[PendingChange]:
        """Return pending changes, with each block replaced by pending changes for its changes."""
        found = []
        for change in pending:
            found += [] if change.block else [change]
            for record, entity in change.block:
                handlers = self._listeners[entity, record.kind]
                found.append(self._pending(record, entity, handlers, shard_id, APPLICATION))
                self._run_pure(found[-1], shard_id)
        return found

    def committed(self, change: PendingChange) -> None:
        """Record that a change is finished: its effects are in the table, or it is parked."""
        self.shadows.committed(change)
        for outcome in change.outcomes:
            self.meters.done(outcome.handler.name, outcome.times, len(outcome.actions))

    def _pending(
        self,
        record: Record,
        entity: type[Entity],
        listeners: Iterable[Handler],
        shard_id: str,
        origin: WriteOrigin,
    ) -> PendingChange:
        dated = record.created_at
        change = PendingChange(
            record.position, dated, record, entity, record.item_key, origin=origin
        )
        if self._traced:
            change.trace = self.tracing.read(record, origin)
        aim = replace(self._aim, hops=origin.hops) if origin.hops else self._aim
        for handler in listeners:
            if origin.writer == "migration" and not handler.hears_migrations:
                continue
            outcome = Outcome(handler, waiting=True, aim=aim)
            try:
                if handler.when is not None and not self._typed.wanted(record, entity, handler):
                    continue
            except USER_ERRORS as error:  # two values may not be comparable
                if handler.shadow:
                    self.shadows.failed(outcome, error)
                    continue
                outcome.run += 1  # so that it does not run before its `when` is evaluated again
                self.failures.give_up(outcome, Failure.of(error, 1), shard_id)
            if origin.hops >= handler.policy.hops_max and outcome.failure is None:
                writer = record.new_image and writer_of(record.new_image)
                names = self.routes.cascades.loop_of(handler) or [writer or "", handler.name]
                self.failures.end_loop(outcome, origin.hops, names, shard_id)
            change.outcomes.append(outcome)
        return change

    def _run_pure(self, change: PendingChange, shard_id: str) -> list[Run]:
        later = []
        for outcome in change.outcomes:
            if not outcome.waiting:
                continue
            if outcome.handler.is_async:
                if change.key is not None:
                    ties = self.runs.ties(change, change.key, outcome.handler, shard_id)
                    later.append(Run(change, outcome, change.key, ties))
            elif not outcome.run:
                self._run_sync(change, outcome, shard_id)
        return later

    def _run_sync(self, change: PendingChange, outcome: Outcome, shard_id: str) -> None:
        outcome.run += 1
        began = self.clock.monotonic()
        try:
            with self.tracing.run(change, outcome) if change.trace else UNTRACED:
                effects = self.runs.effects(change, outcome.handler, shard_id)
                resolve(outcome, effects, (), change.position, self.schema)
        except RetryableError:
            return  # the outcome still waits, and runs again before its commit
        except USER_ERRORS as error:  # what user code raises is its failure
            self.failures.raised(outcome.handler, error)
            if outcome.handler.shadow:
                self.shadows.failed(outcome, error)
            else:
                self.failures.give_up(outcome, Failure.of(error, 1), shard_id)
        else:
            if outcome.handler.shadow:
                self.shadows.ran(outcome)
            else:
                self.failures.worked(outcome.handler, began)
        finally:
            seconds = self.clock.monotonic() - began
            if seconds > GIVE_WAY_SECONDS:
                self.failures.name_slow(outcome.handler, seconds)

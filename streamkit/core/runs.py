"""Runs: one handler runs for one change, and the async runs of a page run beside each other.

In: pending changes, and outcomes that wait. Out: the outcomes, filled in. `async def` handlers run
concurrently, in order for each item key; the number of runs is bounded. Each run is attempted as
often as the handler's policy says.

On failure: an outcome carries the failure after the handler's retries; nothing raises. With the
policy `block`, and with `park` while the handler's breaker is open, the run is repeated until it
succeeds.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import anyio

from streamkit.changes import ItemKey
from streamkit.core.attempts import Attempts
from streamkit.core.by_item import Run, into_chains
from streamkit.core.handler import DEFER, Defer, Handler
from streamkit.core.outcome import Outcome, PendingChange, resolve
from streamkit.core.reading import Pending, ReadTracker, Uncommitted
from streamkit.core.routes import Channels
from streamkit.core.sending import allowed
from streamkit.core.shadow import Shadows
from streamkit.core.tables import Tables
from streamkit.core.typed import TypedChanges, source_of
from streamkit.effects import Effect, Result, as_effects
from streamkit.errors import USER_ERRORS
from streamkit.progress.pacing import Turn

Tools = Callable[[Handler, ReadTracker], dict[str, Any]]
"""A function that makes the keyword arguments that a handler's signature asks for."""


@dataclass
class HandlerRuns:
    """Runs the handlers of one app; `tools` makes what their signatures ask for.

    `have_read` says whether any run has read an item: until then, no result depends on others.
    """

    tables: Tables
    channels: Channels
    typed: TypedChanges
    tools: Tools
    attempts: Attempts
    shadows: Shadows
    turn: Turn
    concurrency: int
    have_read: bool = False

    def __post_init__(self) -> None:
        """Create the limit of runs at a time."""
        self._limiter = anyio.Semaphore(self.concurrency)

    async def run_chains(
        self,
        runs: Sequence[Run],
        pending: Sequence[PendingChange],
        shard_id: str,
        *,
        queued: Callable[..., bool],
        until: anyio.Event | None = None,
    ) -> None:
        """Run the async handlers of a page: item keys concurrently, the runs of one key in order.

        Args:
            runs: what to run, in order.
            pending: all pending changes of the page; handlers read what earlier ones will write.
            shard_id: the shard.
            queued: returns whether a handler's key is queued, so that the change will only queue.
            until: is set when changes that cannot run now must be left to another worker.
        """
        uncommitted = Uncommitted(pending)
        async with anyio.create_task_group() as group:
            for chain in into_chains(runs):
                group.start_soon(self._run_chain, chain, uncommitted, shard_id, queued, until)

    async def _run_chain(
        self,
        chain: Sequence[Run],
        uncommitted: Uncommitted,
        shard_id: str,
        queued: Callable[..., bool],
        until: anyio.Event | None,
    ) -> None:
        stopped: set[tuple[str, ItemKey]] = set()
        for run in chain:
            handler = run.outcome.handler
            if (handler.name, run.key) in stopped or queued(handler, run.key):
                stopped.add((handler.name, run.key))
                continue  # the change will queue behind the one that failed
            await self.run(run.change, run.outcome, uncommitted, shard_id, until=until)
            if run.outcome.waiting:
                return
            if run.outcome.parks and not handler.commutes:
                stopped.add((handler.name, run.key))

    async def run(
        self,
        change: PendingChange,
        outcome: Outcome,
        uncommitted: Uncommitted,
        shard_id: str,
        *,
        until: anyio.Event | None = None,
    ) -> None:
        """Run one handler for one change, with its retries, and fill in the outcome.

        The outcome still waits afterwards if the handler cannot run now and `until` was set. The
        handler's reads see the effects of earlier changes that are `uncommitted`; its own effects
        are added there.
        """
        outcome.failure, outcome.omitted = None, frozenset()

        async def attempt() -> None:
            if not outcome.handler.is_async:
                await self.turn.give_way()
            outcome.run += 1
            pending = Pending(uncommitted, change.position)
            await self.tables.learning(lambda: self._attempt(change, outcome, pending, shard_id))

        if outcome.handler.shadow:
            await self.shadows.attempt(attempt, outcome)
        else:
            await self.attempts.persist(attempt, change, outcome, shard_id, until)
            uncommitted.note(change, outcome)

    async def _attempt(
        self, change: PendingChange, outcome: Outcome, pending: Pending, shard_id: str
    ) -> None:
        handler = outcome.handler
        if handler.when is not None and not self.typed.wanted(*source_of(change, handler), handler):
            outcome.drop()
            return
        if outcome.refusals and handler.contested is not None:
            handler = handler.contested
        with self.channels.tracing.run(change, outcome):
            if handler.is_async:
                await self._attempt_async(change, handler, outcome, pending, shard_id)
            else:
                effects = self.effects(change, handler, shard_id)
                resolve(outcome, effects, (), change.position, self.tables.own)

    def effects(self, change: PendingChange, handler: Handler, shard_id: str) -> tuple[Effect, ...]:
        """Run a pure handler, and record how long it took."""
        typed = self.typed.change_of(change, handler, shard_id)
        tools = self.tools(handler, ReadTracker()) if handler.needs else {}
        began = perf_counter()
        try:
            result: Any = handler.run(typed, **tools)
            typed.require_read()
            return allowed(as_effects(result), change, handler)
        finally:
            self.channels.meters.handler(handler.name).seconds.record(perf_counter() - began)

    async def _attempt_async(
        self,
        change: PendingChange,
        handler: Handler,
        outcome: Outcome,
        pending: Pending,
        shard_id: str,
    ) -> None:
        now = self.attempts.failures.clock.monotonic
        seconds = self.channels.meters.handler(handler.name).seconds
        tracker = ReadTracker(pending)
        typed = self.typed.change_of(change, handler, shard_id)
        # Not held between attempts: a handler that waits for its downstream stops no other one.
        async with self._limiter:
            # After the limiter: before it, many runs would pass at once, then run one by one.
            await self.turn.give_way()
            began = now()
            try:
                with anyio.fail_after(handler.policy.timeout_seconds):
                    running: Any = handler.run(typed, **self.tools(handler, tracker))
                    result: Result | Defer = await running
                typed.require_read()
            finally:
                seconds.record(now() - began)
        if result is DEFER:
            outcome.defer()
            return
        self.have_read = self.have_read or bool(tracker.reads)
        try:
            effects = allowed(as_effects(result), change, handler)
            resolve(outcome, effects, tracker.reads, change.position, self.tables.own)
        except ValueError:
            if handler.broadcast is None:
                raise
            outcome.defer()  # the effects for all recipients do not fit into one transaction

    def ties(
        self, change: PendingChange, key: ItemKey, handler: Handler, shard_id: str
    ) -> frozenset[Hashable]:
        """Return what a handler's run shares with other runs; errors come up in the run."""
        if handler.together is None:
            return frozenset()
        try:
            shared = handler.together(self.typed.change_of(change, handler, shard_id))
            return frozenset((handler.name, name) for name in (key, *shared))
        except USER_ERRORS:  # the run itself will fail, with its retries
            return frozenset({(handler.name, key)})

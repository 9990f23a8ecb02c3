"""Aggregates as migrations: `mode="aggregate"` counts one anew over what its table holds already.

In: an app, and a migration that was begun. Out: its state, `done` when everything is counted. The
work is that of `rebuilding`, which keeps its own place in the table, so that any process goes on
with it; this follows what people want of the migration, and writes down that it is done.

On failure: as a rebuild; the migration stays where it was.
"""

import random
from dataclasses import dataclass, replace
from functools import partial

import anyio
import anyio.abc

from streamkit.activity import first_error
from streamkit.aggregates.rebuilding import Rebuilt, rebuild_aggregate
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.kinds.migration import Migration
from streamkit.migrate.commands import open_book, operator, require_begun, require_same
from streamkit.migrate.state import RESTING, State, StateBook

_FOLLOW_SECONDS = 2.0


async def run_aggregate(
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    at_once: int = 4,
    stopping: anyio.Event | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> State:
    """Count an aggregate anew, or go on with that, until it is done or stopped.

    One that is paused is left alone; one that is paused meanwhile is waited for.

    Args:
        app: whose migration; its workers have to run.
        aws: open clients.
        migration: the one.
        at_once: segments that this process scans at a time.
        stopping: ends it early, in an orderly way.
        clock: tells when.
        rng: for simulations.

    Returns:
        The state then.

    Raises:
        NotBegun: there is nothing to work on.
        ConfigurationError: its definition was changed, or the aggregate cannot be rebuilt.
    """
    book = await open_book(app, aws)
    state = require_begun(await book.read(migration.id))
    require_same(migration, state, accept_change=False)
    if state.waits:
        return state
    counting = _Counting(
        app,
        aws,
        migration,
        book,
        stopping or anyio.Event(),
        clock or SystemClock(),
        rng or random.Random(),
    )
    return await counting.run(at_once)


@dataclass
class _Counting:
    app: App
    aws: Aws
    migration: Migration
    book: StateBook
    stopping: anyio.Event
    clock: Clock
    rng: random.Random

    async def run(self, at_once: int) -> State:
        while True:
            state = await self.book.read(self.migration.id)
            if state.phase in RESTING or self.stopping.is_set():
                return state
            if state.desired == "pause":
                with anyio.move_on_after(_FOLLOW_SECONDS):
                    await self.stopping.wait()
                continue
            state = await self.book.change(self.migration.id, self._scanning)
            rebuilt = await self._rebuild(state, at_once)
            if rebuilt.done:
                return await self.book.change(self.migration.id, partial(self._done, rebuilt))

    def _scanning(self, state: State) -> State:
        if state.phase != "capturing":
            return state
        return replace(state, phase="scanning").noted(self.clock.time(), operator(), "scanning")

    def _done(self, rebuilt: Rebuilt, state: State) -> State:
        if state.phase == "done":
            return state
        verified = {"scanned": rebuilt.items, "errors": rebuilt.left_out}
        done = replace(state, phase="done", note="", verified=verified)
        return done.noted(self.clock.time(), operator(), "done")

    async def _rebuild(self, state: State, at_once: int) -> Rebuilt:
        """Go on with the rebuild until it is done, or nobody wants it at the moment."""
        ending = anyio.Event()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow, ending)
                rebuilt = await rebuild_aggregate(
                    self.app,
                    self.aws,
                    self.migration.entity.__name__,
                    segments=state.segments,
                    at_once=at_once,
                    stopping=ending,
                    clock=self.clock,
                    rng=self.rng,
                )
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        return rebuilt

    async def _follow(self, ending: anyio.Event) -> None:
        while not ending.is_set():
            with anyio.move_on_after(_FOLLOW_SECONDS):
                await self.stopping.wait()
            state = await self.book.read(self.migration.id)
            if self.stopping.is_set() or state.desired == "pause" or state.phase in RESTING:
                ending.set()

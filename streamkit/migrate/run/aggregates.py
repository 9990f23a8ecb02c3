"""Run aggregates as migrations: `mode="aggregate"` counts one over what its table holds already.

In: an app, and a migration that was begun. Out: its state, `done` when everything is counted. A
rebuild counts, and keeps its own state in the table, so that any process continues it. This module
follows what operators want of the migration, and records that it is done. On failure: as a rebuild;
the migration stays where it was.
"""

import random
from dataclasses import replace
from functools import partial

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.kinds.aggregate.rebuild import Rebuilt, rebuild_aggregate
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.refusals import require_begun, require_same
from streamkit.migrate.book.state import RESTING, State
from streamkit.migrate.book.state_book import open_book
from streamkit.progress.activity import task_group
from streamkit.progress.clock import Clock
from streamkit.progress.operation import said_of
from streamkit.worker.joined_app import app_as_run


async def run_aggregate(
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    at_once: int = 4,
    stopping: anyio.Event | None = None,
    clock: Clock,
    rng: random.Random | None = None,
) -> State:
    """Count an aggregate again, or continue with it, until it is done or stopped; return the state.

    A migration that is paused already is left alone; one that is paused meanwhile is waited for.

    The app's workers have to run. This process scans `at_once` segments at a time; `stopping` ends
    it early, in order.

    Raises:
        NotBegun: there is nothing to work on.
        ConfigurationError: its definition was changed, or the aggregate cannot be rebuilt.
    """
    book = await open_book(app, aws)
    stopping = stopping or anyio.Event()
    state = require_begun(await book.read(migration.id))
    require_same(migration, state, accept_change=False)
    if state.waits:
        return state
    operation = book.operation(migration.id, held=lambda state: state.waits)

    async def act(state: State) -> bool:
        if state.phase in RESTING or stopping.is_set():
            return False
        state = await book.change(migration.id, partial(_scanning, clock))
        ending = anyio.Event()
        async with task_group() as group:
            group.start_soon(operation.watch, ending, _goes_on, stopping)
            rebuilt = await rebuild_aggregate(
                await app_as_run(app, aws),
                aws,
                migration.entity.__name__,
                segments=state.segments,
                at_once=at_once,
                stopping=ending,
                clock=clock,
                rng=rng or random.Random(),
            )
            group.cancel_scope.cancel()
        if rebuilt.done:
            await book.change(migration.id, partial(_done, clock, rebuilt))
        return True

    return await operation.run(act, stopping)


def _scanning(clock: Clock, state: State) -> State:
    if state.phase != "capturing":
        return state
    return replace(state, phase="scanning").noted(said_of(clock, "scanning"))


def _done(clock: Clock, rebuilt: Rebuilt, state: State) -> State:
    if state.phase == "done":
        return state
    verified = {"scanned": rebuilt.items, "errors": rebuilt.left_out}
    done = replace(state, phase="done", note="", verified=verified)
    return done.noted(said_of(clock, "done"))


def _goes_on(state: State) -> bool:
    return state.phase not in RESTING

"""Change a migration that was begun: the commands of operators, from any terminal.

In: an app, clients, and a migration's number. Out: its state then. Each command is one conditional
change of the state, with a line in its audit; the processes that run the migration follow it. On
failure: `ConfigurationError` says what prevents it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.course import after_resume
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.limits import Limit, limited
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.book.order import migration_of, order_of
from streamkit.migrate.book.overlap import new_code_objection, objection
from streamkit.migrate.book.refusals import (
    require_begun,
    require_decided,
    require_records,
    require_same,
)
from streamkit.migrate.book.releases import require_this_release
from streamkit.migrate.book.state import SWITCHED, Phase, State
from streamkit.migrate.book.state_book import StateBook, open_book
from streamkit.migrate.plan.indexes import require_indexes
from streamkit.migrate.run.opening import survey_for
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.operation import AuditEntry


async def pause(app: App, aws: Aws, number: str, *, clock: Clock | None = None) -> State:
    """Stop all passes over the table; changes are still captured.

    Raises:
        ConfigurationError: there is no such migration, or it was never begun.
    """

    def paused(state: State) -> State:
        return replace(require_begun(state), paused=True)

    return await _command(app, aws, number, paused, "pause", clock)


async def resume(
    app: App, aws: Aws, number: str, *, accept_change: bool = False, clock: Clock | None = None
) -> State:
    """Let a paused migration continue, and verify a blocked one, or scan for its first items.

    Raises:
        ConfigurationError: there is no such migration, it was never begun, or changed since, which
            `accept_change` allows.
    """
    migration = migration_of(app, number)

    def resumed(state: State) -> State:
        require_same(migration, require_begun(state), accept_change=accept_change)
        return after_resume(state, migration.digest)

    what = f"resume{' --accept-change' * accept_change}"
    return await _command(app, aws, number, resumed, what, clock)


async def set_limit(
    app: App, aws: Aws, number: str, limit: Limit, *, clock: Clock | None = None
) -> State:
    """Change how much a migration may use, while it runs."""

    def changed(state: State) -> State:
        return limited(require_begun(state), limit)

    return await _command(app, aws, number, changed, f"limit{limit.said}", clock)


async def _command(
    app: App,
    aws: Aws,
    number: str,
    change: Callable[[State], State],
    what: str,
    clock: Clock | None,
) -> State:
    book = await open_book(app, aws)
    said = await book.said(clock, what)
    named = migration_of(app, number).id
    return await book.command(named, (), lambda state, _: change(state), said)


async def switch(
    app: App, aws: Aws, number: str, *, anyway: str | None = None, clock: Clock | None = None
) -> State:
    """Make the new items the truth, pair by pair.

    With a reason to do it `anyway`, workers and functions of another release do not prevent it, nor
    indexes of its entities that are still being created.

    Raises:
        ConfigurationError: it is not `ready`, it moves nothing, people have to decide, another
            release runs, or an index cannot be read yet.
    """
    migration = migration_of(app, number)
    if not migration.moves:
        raise ConfigurationError(f"migration {number} moves nothing, so there is nothing to switch")
    book = await open_book(app, aws)
    entry = await book.said(clock, _anyway("switch", anyway))
    if (await book.read(migration.id)).phase == "ready":
        if anyway is None:
            _, schemas = await survey_for(app, aws, migration)
            require_indexes(migration, (schemas.source, schemas.target))
        await require_decided(book, migration)
        await require_this_release(app, aws, anyway)
    return await _go(book, migration, "ready", "switching", {"switched": entry.at}, entry)


async def contract(
    app: App,
    aws: Aws,
    number: str,
    *,
    old_code: bool = True,
    anyway: str | None = None,
    clock: Clock | None = None,
) -> State:
    """Leave stubs of the old items, and remove them; no rollback is possible afterwards.

    First all items are compared; if old code has written one meanwhile, it goes back to `soaking`.
    Stubs are watched until old code has written none for 24 hours.
    With a reason to do it `anyway`, workers and functions of another release do not prevent it.

    Without `old_code` a person says that no code writes at old keys any more: then old items go
    with their records, each IF it is exactly as agreed, and no stub is left or watched. A write
    that is seen there nevertheless stops the migration.

    Raises:
        ConfigurationError: it is not `soaking`, items are not right, old code wrote at an old key
            within 24 hours, or another release runs; it names them, and what to do.
    """
    if not old_code and anyway is not None:
        raise ConfigurationError(
            "--old-code none says that no other release runs, and --anyway that one may: say one"
        )
    migration, clock = migration_of(app, number), clock or SystemClock()
    if not migration.moves:
        raise ConfigurationError(f"migration {number} leaves nothing behind that could be deleted")
    book = await open_book(app, aws)
    what = "contract" if old_code else "contract --old-code none"
    entry = await book.said(clock, _anyway(what, anyway))
    state = await book.read(migration.id)
    declared = 0.0 if old_code else await book.store.time(clock)
    if state.phase == "soaking":
        seen = ErrorBook(book.store, migration.id), OldWrites(book.store, migration.id)
        found = await objection(*seen, clock, replace(state, declared=declared))
        if found is not None:
            raise ConfigurationError(f"migration {number}: {found}")
        await require_this_release(app, aws, anyway)
    facts: dict[str, Any] = {"stage": "comparing", "note": "", "declared": declared}
    gone = await _go(book, migration, "soaking", "contracting", facts, entry)
    if not old_code and not gone.declared:
        raise ConfigurationError(
            f"migration {number} is contracting already, and leaves stubs: --old-code none is late"
        )
    return gone


async def rollback(
    app: App,
    aws: Aws,
    number: str,
    *,
    accept_change: bool = False,
    new_code: bool = True,
    clock: Clock | None = None,
) -> State:
    """Ask for a rollback of a migration; a process that runs it then does the work.

    New items stay until new code has written none for 24 hours. Without `new_code` a person says
    that none runs any more, and they go at once.

    Raises:
        ConfigurationError: it has no `reverse`, its old items are deleted, a later one builds on
            it, it was never begun, or changed since, which `accept_change` allows; or there is no
            `reverse`, and new code wrote within 24 hours.
    """
    what = f"rollback{' --accept-change' * accept_change}{'' if new_code else ' --new-code none'}"
    migration, clock = migration_of(app, number), clock or SystemClock()
    book = await open_book(app, aws)
    entry = await book.said(clock, what)
    if not migration.is_pairs and migration.reverse is None:
        raise ConfigurationError(f"{migration.declared}: it has no reverse= to roll back with")

    def rolled(state: State, others: Sequence[State]) -> State:
        state = require_begun(state)
        require_same(migration, state, accept_change=accept_change, command="rollback")
        require_records(migration, state)
        if state.phase == "rolled back" or state.direction == "back":
            said = state if new_code else replace(state, declared=declared, paused=False, note="")
            return replace(said, digest=migration.digest)
        order.require_last(migration, others)
        if not state.can_return or (state.phase == "done" and migration.moves):
            raise ConfigurationError(f"migration {number}: the old items are deleted; no way back")
        if state.phase in SWITCHED and migration.reverse is None:
            raise ConfigurationError(
                f"{migration.declared}: after the switch it takes reverse=, so that what was"
                " written since is kept"
            )
        back = replace(state, direction="back", paused=False, attempt=0, note="", stage="")
        back = replace(back, digest=migration.digest, first=0, declared=declared)
        if not migration.is_pairs:
            back = replace(back, phase="capturing", run=state.run + 1, began=entry.at)
        elif state.phase in SWITCHED or migration.reverse is not None:
            back = replace(back, phase="returning")  # new code may write from `ready` on
        else:
            back = replace(back, phase="dropping")
        return back

    now, order = await book.store.time(clock), order_of(app)
    declared = 0.0 if new_code else now
    if new_code and migration.reverse is None:
        state, counted = await book.read(migration.id), OldWrites(book.store, migration.id)
        found = await new_code_objection(counted, now, state)
        if found is not None and state.direction == "forward":
            raise ConfigurationError(f"migration {number}: {found}")
    return await book.command(migration.id, order.beside(migration), rolled, entry)


# -- the parts of it -------------------------------------------------------------------------------


def _anyway(what: str, reason: str | None) -> str:
    return what if reason is None else f"{what} anyway: {reason}"


async def _go(
    book: StateBook,
    migration: Migration,
    allowed: Phase,
    phase: Phase,
    facts: dict[str, Any],
    entry: AuditEntry,
) -> State:
    def gone(state: State) -> State:
        require_same(migration, state, accept_change=False)
        require_records(migration, state)
        if state.phase == phase:
            return state
        if state.phase != allowed:
            what = phase.removesuffix("ing")
            raise ConfigurationError(
                f"migration {migration.id} is {state.phase!r}; {what} is for {allowed}"
            )
        if state.paused:
            raise ConfigurationError(
                f"migration {migration.id} is paused; `streamkit migrate resume` ends that first"
            )
        gone = replace(state, phase=phase, attempt=0, **facts)
        return gone.noted(entry)

    return await book.change(migration.id, gone)

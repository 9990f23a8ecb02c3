"""Open what a process needs of one migration, to run it or to repair single items.

In: an app, a migration, clients, and a rate. Out: `Opened`: its tables, its records, clients whose
calls are charged to the rate; and `Present`: its state as it was read last, and the work in it. On
failure: `ConfigurationError` names the table that is missing or may not be described.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables, describe, survey
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.book.overlap import last_write
from streamkit.migrate.book.refusals import require_begun, require_records
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.run.exports import require_followed
from streamkit.migrate.run.work import MigrationWork, Schemas
from streamkit.migrate.sending.calls import Calls, Charged
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.sharing import Shares
from streamkit.migrate.sending.view import MigrationView, Permit, Place
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock

_INDEX_SECONDS = 10.0
"""Seconds between two looks at an index that is being created."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One migration, opened by one process.

    Calls of `aws` are charged to `rate`; callers of `dynamodb` charge it themselves.
    """

    app: App
    migration: Migration
    tables: AppTables
    schemas: Schemas
    dynamodb: Any
    aws: Aws
    rate: Rate
    clock: Clock
    book: StateBook
    errors: ErrorBook
    owner: str
    shares: Shares
    old_writes: OldWrites

    async def must_watch(self, state: State) -> bool:
        """Return whether stubs stay and are watched, because old code wrote within 24 hours."""
        if state.phase != "closing" or state.at_once:
            return False
        return await last_write(self.errors, self.old_writes, self.clock, state.run) is not None


class Present(MigrationView):
    """The state of a migration as a process knows it, and the work on single items in it.

    `adopting` is called with each state before it is taken over, and may refuse it.
    """

    def __init__(self, opened: Opened, adopting: Callable[[State], None] = lambda _: None) -> None:
        super().__init__(State(opened.migration.id), self.read, self._look_again, opened.clock)
        self._opened, self._adopting = opened, adopting
        self._work: MigrationWork | None = None

    @property
    def work(self) -> MigrationWork:
        """The work in the last state; it writes nothing once that state is over."""
        assert self._work is not None  # noqa: S101 - `begin` comes first
        return self._work

    async def begin(self) -> MigrationWork:
        """Read the state for the first time; it was begun, and not by an earlier release."""
        require_records(self._opened.migration, require_begun(await self.read()))
        return self.work

    async def read(self) -> State:
        """Read the state, and take it over."""
        asked = self._opened.clock.monotonic()
        return self.take(await self._opened.book.read(self._opened.migration.id), asked)

    def take(self, state: State, asked: float) -> State:
        """Take over a state and its limits; `asked` is when the read of it was sent."""
        self._adopting(state)
        opened, before = self._opened, self.state if self._work else None
        self.adopt(state, asked)
        opened.rate.limit(Limit(state.max_reads, state.max_writes))
        if before is None or (before.course, before.attempt) != (state.course, state.attempt):
            tables = opened.schemas.source, opened.schemas.target, opened.tables.control
            calls = Calls(opened.dynamodb, opened.rate, tables, Permit(self, state))
            parts = opened.schemas, calls, opened.errors, opened.clock
            self._work = MigrationWork(opened.app.name, opened.migration, state, *parts)
        return state

    async def _look_again(self, places: Sequence[Place]) -> None:
        for table, item in places:
            await self.work.look_again(table, item)


async def survey_for(app: App, aws: Aws, migration: Migration) -> tuple[AppTables, Schemas]:
    """Read the schemas of the tables that a migration reads and writes.

    Raises:
        ConfigurationError: a table is missing, or may not be described.
    """
    tables = await survey(app, aws)
    target = tables.table
    if migration.to is not None:
        target = await describe(aws, migration.to, type_attribute=app.type_attribute)
    return tables, Schemas(tables.table, target, app.known)


async def source_is_there(opened: Opened, state: State, interrupt: anyio.Event) -> bool:
    """Wait until the index that the first scan reads has been created; `status` says so.

    Returns False if it was interrupted before.

    Raises:
        ConfigurationError: it is to read an export, and not all changes since are followed.
    """
    if state.follows < state.began:
        require_followed(opened.schemas.source, state.since, opened.clock.time())
    index = opened.migration.index
    while index is not None and not interrupt.is_set():
        table = await describe(opened.aws, opened.app.table, type_attribute=None)
        if index.name not in table.indexes_created:
            break
        with opened.rate.held_by("index"), anyio.move_on_after(_INDEX_SECONDS):
            await interrupt.wait()
    return not interrupt.is_set()


async def open_migration(
    app: App, aws: Aws, migration: Migration, rate: Rate, clock: Clock, owner: str
) -> Opened:
    """Open a migration for the process with the name `owner`.

    Raises:
        ConfigurationError: a table is missing, or may not be described.
    """
    tables, schemas = await survey_for(app, aws, migration)
    client, beats = (Charged(one, rate) for one in (aws.dynamodb, aws.beats))
    charged = replace(aws, dynamodb=client, beats=beats)
    book = StateBook(client, tables.control, app.name)
    return Opened(
        app=app,
        migration=migration,
        tables=tables,
        schemas=schemas,
        dynamodb=aws.dynamodb,
        aws=charged,
        rate=rate,
        clock=clock,
        book=book,
        errors=ErrorBook(book.store, migration.id),
        owner=owner,
        old_writes=OldWrites(book.store, migration.id),
        shares=Shares(book.store, migration.id, owner, clock),
    )


def trouble_of_target(target: TableSchema, migration: Migration) -> str | None:
    """Return why old items could not follow the table that they are moved to; None if they can."""
    if not migration.follows_target or target.view_type == "NEW_AND_OLD_IMAGES":
        return None
    return (
        f"{target.name} has no stream with NEW_AND_OLD_IMAGES: old items could not follow what is"
        " written there; enable one, or leave reverse= out"
    )

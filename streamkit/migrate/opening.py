"""Open what a process needs of one migration, to run it or to repair single items.

In: an app, a migration, clients, and a rate. Out: `Opened`: its tables, its records, clients whose
calls are charged to the rate, and the work of a phase. On failure: `ConfigurationError` names the
table that is missing or may not be described.
"""

from dataclasses import dataclass, replace
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables, describe, survey
from streamkit.kinds.migration import Migration
from streamkit.migrate.calls import Calls
from streamkit.migrate.charged import Charged
from streamkit.migrate.errors import ErrorBook
from streamkit.migrate.exports import require_followed
from streamkit.migrate.indexes import indexes_created
from streamkit.migrate.limits import UnitLimits
from streamkit.migrate.old_writes import OldWrites
from streamkit.migrate.overlap import last_write
from streamkit.migrate.rate import Rate
from streamkit.migrate.sharing import Shares
from streamkit.migrate.state import State
from streamkit.migrate.state_book import StateBook
from streamkit.migrate.view import MigrationView
from streamkit.migrate.work import MigrationWork, Schemas
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
    shares: Shares
    old_writes: OldWrites

    def adopt(self, view: MigrationView, state: State, asked: float) -> None:
        """Take over a state and its limits; `asked` is when the read of it was sent."""
        view.adopt(state, asked)
        self.rate.limit(UnitLimits(state.max_reads, state.max_writes))

    def work_under(self, view: MigrationView, state: State) -> MigrationWork:
        """Return the work on single items in a state; it writes nothing once that state is over."""
        tables = self.schemas.source, self.schemas.target, self.tables.control
        calls = Calls(self.dynamodb, self.rate, tables, view.permit(state))
        parts = self.schemas, calls, self.errors, self.clock
        return MigrationWork(self.app.name, self.migration, state, *parts)

    async def must_watch(self, state: State) -> bool:
        """Return whether stubs stay and are watched, because old code wrote within 24 hours."""
        if state.phase != "closing" or state.at_once:
            return False
        return await last_write(self.errors, self.old_writes, self.clock, state.run) is not None


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
        if index.name not in indexes_created(table):
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
        old_writes=OldWrites(book.store, migration.id),
        shares=Shares(book.store, migration.id, owner, clock),
    )

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
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.book.overlap import last_write
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.run.exports import require_followed
from streamkit.migrate.run.work import MigrationWork, Schemas
from streamkit.migrate.sending.calls import Calls, Charged
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.sharing import Shares
from streamkit.migrate.sending.view import MigrationView, Permit
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

    def adopt(self, view: MigrationView, state: State, asked: float) -> None:
        """Take over a state and its limits; `asked` is when the read of it was sent."""
        view.adopt(state, asked)
        self.rate.limit(Limit(state.max_reads, state.max_writes))

    def work_under(self, view: MigrationView, state: State) -> MigrationWork:
        """Return the work on single items in a state; it writes nothing once that state is over."""
        tables = self.schemas.source, self.schemas.target, self.tables.control
        calls = Calls(self.dynamodb, self.rate, tables, Permit(view, state))
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

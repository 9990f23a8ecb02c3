"""List migrations and begin one: the commands of operators, from any terminal.

`steps` has the commands for one that was begun. In: an app whose migrations are declared, and
clients. Out: states, as they are then. Each command is one conditional change of a migration's
state, with an entry in its audit; the processes that run the migration follow it. On failure:
`ConfigurationError` says what prevents it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamkit.app import App
from streamkit.archive.answers import require_answer
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.limits import NO_LIMIT, Limit, limited
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.refusals import require_free, require_segments
from streamkit.migrate.book.state import Phase, State
from streamkit.migrate.book.state_book import (
    SQUASHED,
    StateBook,
    absent_migrations,
    known_to,
    open_book,
)
from streamkit.migrate.run.chosen import open_chosen
from streamkit.migrate.sending.calls import Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.model.json_fields import JsonFields
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.operation import said_of

SEGMENT_BYTES = 64 * 1024 * 1024
"""Bytes of a table for each segment: half a minute at 1,000 units a second."""
SEGMENTS_MIN, SEGMENTS_MAX = 16, 4096

MigrationStatus = Literal["pending", "running", "applied", "changed", "rolled back", "no file"]
"""The state of a migration for `check`; `changed`: its number was applied with other code.

`no file`: it is under way, and this release does not know it."""


@dataclass(frozen=True, slots=True)
class Listed(JsonFields):
    """One migration of an app, with its state."""

    id: str
    name: str
    mode: str
    entity: str
    standing: MigrationStatus
    phase: Phase
    declared: str


async def list_migrations(app: App, aws: Aws) -> list[Listed]:
    """Return the app's migrations in order, each with its state.

    First come those that were squashed, if they are not done in this table, and those under way of
    which this release has no file.
    """
    book = await open_book(app, aws)
    said = f"{app.declared}: squashed"
    found = [
        Listed(state.id, "squashed", "-", "-", "pending", state.phase, said)
        for state in await squashed(app, book)
    ]
    found += [
        Listed(state.id, "-", state.mode, "-", "no file", state.phase, "-")
        for state in await absent_migrations(book, known_to(app))
    ]
    for number in order_of(app).ids:
        migration, state = app.migrations[number], await book.read(number)
        name = migration.function.__name__ if migration.function else migration.entity.__name__
        about = (name, migration.mode, migration.entity.__name__)
        standing, said = status_of(migration, state), str(migration.declared)
        found.append(Listed(number, *about, standing, state.phase, said))
    return found


def status_of(migration: Migration, state: State) -> MigrationStatus:
    """Return the state of a migration as `check` shows it."""
    if state.phase == "new" or is_due_again(migration, state):
        return "pending"
    if state.phase == "rolled back":
        return "rolled back"
    if state.digest != migration.digest:
        return "changed"
    return "applied" if state.phase == "done" else "running"


def is_due_again(migration: Migration, state: State) -> bool:
    """Return whether a migration that may be repeated was done with another definition."""
    return migration.repeat and state.phase == "done" and state.digest != migration.digest


async def begin(
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    limit: Limit = NO_LIMIT,
    segments: int | None = None,
    keys_from: str = "",
    again: bool = False,
    clock: Clock | None = None,
) -> State:
    """Begin a migration, once more if it may be repeated; processes that join do the work.

    The table is cut into `segments`, a power of two, by default one for 64 MB; their number never
    changes later. `keys_from` is the source of the items that it is about, in place of a scan; see
    `chosen`. With `again` it begins although it was rolled back.

    Raises:
        AlreadyBegun: it was begun before, and nothing was changed.
        ConfigurationError: another one comes first, it was rolled back, or its source is wrong.
    """
    require_segments(segments)
    book, order = await open_book(app, aws), order_of(app)
    clock = await book.store.clock(clock or SystemClock())  # changes are followed from now on
    if migration.mode == "aggregate" and (limit.first or limit.max_errors):
        raise ConfigurationError("an aggregate is counted as a whole: no --first, no --max-errors")
    if undone := await squashed(app, book):
        names = ", ".join(f"{one.id} ({one.phase})" for one in undone)
        raise ConfigurationError(f"table {app.table} has not had migration {names}, {SQUASHED}")
    given: dict[str, Any] = {"keys_from": keys_from, "keys_tag": "", "since": 0.0}
    if keys_from:  # a long list is not read for nothing
        require_free(await book.read(migration.id), again=again, repeat=migration.repeat)
        table = (await survey(app, aws)).table
        calls = Calls(aws.dynamodb, Rate(clock), (table,))
        await require_answer(keys_from)
        async with open_chosen(keys_from, migration, table, calls) as chosen:
            await chosen.pages.check(clock.time())
            given |= {"keys_tag": chosen.tag, "since": chosen.since}
            segments = segments or _rounded(chosen.segments)
    total = segments or await segments_of(app, aws)

    def begun(state: State, others: Sequence[State]) -> State:
        require_free(state, again=again, repeat=migration.repeat)
        order.require_turn(migration, others)
        fresh = State(
            *(state.id, migration.digest, migration.mode, "capturing"),
            run=state.run + 1,
            audit=state.audit,
            version=state.version,
            records=migration.moves,
            listed=state.listed,
            segments=total,
            began=clock.time(),
            **given,
        )
        source = f" --keys-from {keys_from}" if keys_from else ""
        said = said_of(clock, f"begin{source}{limit.said}")
        return limited(fresh, limit).noted(said)

    return await book.change_beside(migration.id, order.beside(migration), begun)


async def squashed(app: App, book: StateBook) -> list[State]:
    """Return the states of squashed migrations that are not done in this table."""
    states = await book.read_all(app.done_everywhere)
    return [state for state in states if state.phase != "done"]


async def segments_of(app: App, aws: Aws) -> int:
    """Return into how many segments the table is cut."""
    described = await aws.dynamodb.describe_table(TableName=app.table)
    return _rounded(int(described["Table"].get("TableSizeBytes", 0)) // SEGMENT_BYTES)


def _rounded(wanted: int) -> int:
    wanted = max(SEGMENTS_MIN, min(SEGMENTS_MAX, wanted))
    return 1 << (wanted - 1).bit_length()

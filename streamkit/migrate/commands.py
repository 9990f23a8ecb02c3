"""List migrations and begin one: the commands of operators, from any terminal.

`steps` has the commands for one that was begun. In: an app whose migrations are declared, and
clients. Out: states, as they are then. Each command is one conditional change of a migration's
state, with an entry in its audit; the processes that run the migration follow it. On failure:
`ConfigurationError` says what prevents it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError, NotBegun
from streamkit.kinds.migration import Migration, rank
from streamkit.migrate.absent import absent_migrations, known_to
from streamkit.migrate.calls import Calls
from streamkit.migrate.chosen import open_chosen
from streamkit.migrate.limits import Limit, limited
from streamkit.migrate.order import order_of
from streamkit.migrate.rate import Rate
from streamkit.migrate.refusals import require_segments
from streamkit.migrate.state import Phase, State
from streamkit.migrate.state_book import StateBook
from streamkit.model.json_fields import JsonFields
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.operation import AuditEntry, operator

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


class AlreadyBegun(ConfigurationError):
    """A migration was begun before; `state` is its present state."""

    def __init__(self, state: State) -> None:
        next_ = "`streamkit migrate join` works on it, `streamkit migrate resume` ends a pause"
        if state.phase == "done":
            next_ = "nothing is left to do"
        super().__init__(f"migration {state.id} was begun before, and is {state.phase!r}; {next_}")
        self.state = state


def migration_of(app: App, number: str) -> Migration:
    """Return an app's migration by its number.

    Raises:
        ConfigurationError: there is none.
    """
    found = app.migrations.get(number)
    if found is None:
        known = ", ".join(sorted(app.migrations, key=rank)) or "none"
        raise ConfigurationError(f"{app.name} has no migration {number!r}; it has {known}")
    return found


async def open_book(app: App, aws: Aws) -> StateBook:
    """Return the states of an app's migrations.

    Raises:
        ConfigurationError: the table is missing, or may not be described.
    """
    tables = await survey(app, aws)
    return StateBook(aws.dynamodb, tables.control, app.name)


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


async def begin(  # noqa: PLR0913 - each says one thing of the run
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    limit: Limit | None = None,
    segments: int | None = None,
    keys_from: str = "",
    again: bool = False,
    by: str | None = None,
    clock: Clock | None = None,
) -> State:
    """Begin a migration, once more if it may be repeated; processes that join do the work.

    Args:
        app: the app that declares the migration.
        aws: open clients.
        migration: the migration to begin.
        limit: units a second, how many items may fail, and how many come first.
        segments: of the table, a power of two; by default one for 64 MB. It never changes later.
        keys_from: the source of the items it is about, in place of a scan; see `chosen`.
        again: begin a migration once more that was rolled back.
        by: the operator's name, for the audit.
        clock: time, for simulations.

    Raises:
        AlreadyBegun: it was begun before, and nothing was changed.
        ConfigurationError: another one comes first, it was rolled back, or its source is wrong.
    """
    clock, who = clock or SystemClock(), by or operator()
    require_segments(segments)
    book = await open_book(app, aws)
    order = order_of(app)
    if migration.mode == "aggregate" and limit and (limit.first or limit.max_errors):
        raise ConfigurationError("an aggregate is counted as a whole: no --first, no --max-errors")
    _require_squashed(app, await squashed(app, book))
    given: dict[str, Any] = {"keys_from": keys_from, "keys_tag": "", "since": 0.0}
    if keys_from:  # a long list is not read for nothing
        require_free(await book.read(migration.id), again=again, repeat=migration.repeat)
        table = (await survey(app, aws)).table
        calls = Calls(aws.dynamodb, Rate(clock), (table,))
        async with open_chosen(keys_from, migration, table, calls) as chosen:
            await chosen.pages.check(clock.time())
            given |= {"keys_tag": chosen.tag, "since": chosen.since}
            segments = segments or _rounded(chosen.segments)
    total = segments or await segments_of(app, aws)

    def begun(state: State, others: Sequence[State]) -> State:
        require_free(state, again=again, repeat=migration.repeat)
        order.require_turn(migration, others)
        now = clock.time()
        fresh = _anew(state, migration, {"segments": total, "began": now, **given})
        said = f" --keys-from {keys_from}" if keys_from else ""
        said += limit.said if limit is not None else ""
        return limited(fresh, limit).noted(AuditEntry(now, who, f"begin{said}"))

    return await book.change_beside(migration.id, order.beside(migration), begun)


def _anew(state: State, migration: Migration, facts: Mapping[str, Any]) -> State:
    """Return a state in which a migration begins, the first time or once more."""
    return State(
        state.id,
        migration.digest,
        migration.mode,
        "capturing",
        run=state.run + 1,
        audit=state.audit,
        version=state.version,
        records=migration.moves,
        listed=state.listed,
        **facts,
    )


# -- the parts of it -------------------------------------------------------------------------------


async def squashed(app: App, book: StateBook) -> list[State]:
    """Return the states of squashed migrations that are not done in this table."""
    states = await book.read_all(app.done_everywhere)
    return [state for state in states.values() if state.phase != "done"]


def _require_squashed(app: App, undone: Sequence[State]) -> None:
    """Refuse to go on where a migration is missing that has no code any more.

    Raises:
        ConfigurationError: some that were squashed are not done in this table.
    """
    if undone:
        names = ", ".join(f"{one.id} ({one.phase})" for one in undone)
        raise ConfigurationError(
            f"table {app.table} has not had migration {names}, whose code was squashed: apply it"
            " with an earlier release, or say `streamkit migrate stamp` where it was never needed"
        )


def require_free(state: State, *, again: bool, repeat: bool = False) -> None:
    """Refuse to begin a migration twice, unless it was rolled back and is to be begun again.

    One that may be repeated is free once it is done.

    Raises:
        AlreadyBegun: it is under way, or done.
        ConfigurationError: it was rolled back, and the operator did not ask to begin it again.
    """
    if state.phase not in ("new", "rolled back") and not (repeat and state.phase == "done"):
        raise AlreadyBegun(state)
    if state.phase == "rolled back" and not again:
        raise ConfigurationError(
            f"migration {state.id} was rolled back; `streamkit migrate begin --again` begins it"
            " once more"
        )


def require_begun(state: State) -> State:
    """Return the state of a migration, if it was begun.

    Raises:
        NotBegun: it was never begun.
    """
    if state.phase == "new":
        raise NotBegun(f"migration {state.id} was never begun; `streamkit migrate begin` begins it")
    return state


def require_same(migration: Migration, state: State, *, accept_change: bool) -> None:
    """Refuse a migration whose definition is not the one that was begun.

    Raises:
        ConfigurationError: its definition was changed since.
    """
    if state.phase in ("new", "rolled back") or state.digest == migration.digest or accept_change:
        return
    raise ConfigurationError(
        f"{migration.declared}: migration {migration.id} was begun with another definition; write a"
        " new migration, or say `streamkit migrate resume --accept-change` if both do the same"
    )


def require_records(migration: Migration, state: State) -> None:
    """Refuse pairs without records, which a release before this one has made.

    Raises:
        ConfigurationError: an earlier release began the migration, and it is not done.
    """
    moved = state.phase not in ("new", "done", "rolled back") and migration.moves
    if moved and not state.records:
        raise ConfigurationError(
            f"migration {migration.id} is {state.phase!r} and was begun by an earlier release of"
            " streamkit, which kept no pair records: end it with that release, by `streamkit"
            " migrate contract` or `rollback`, and deploy this one then"
        )


async def segments_of(app: App, aws: Aws) -> int:
    """Return into how many segments the table is cut."""
    described = await aws.dynamodb.describe_table(TableName=app.table)
    return _rounded(int(described["Table"].get("TableSizeBytes", 0)) // SEGMENT_BYTES)


def _rounded(wanted: int) -> int:
    wanted = max(SEGMENTS_MIN, min(SEGMENTS_MAX, wanted))
    return 1 << (wanted - 1).bit_length()

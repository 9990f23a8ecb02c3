"""Refuse commands that would undo what others did, or leave a migration in the middle of a phase.

In: a migration, and the states and errors in the table. Out: nothing. On failure:
`ConfigurationError` names the migrations or the items, and what to do first.
"""

from typing import Any

from streamkit.app import App
from streamkit.errors import ConfigurationError, NotBegun
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import DECIDED, ErrorBook
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook

SEGMENTS_MOST = 1_000_000
"""Segments into which DynamoDB cuts a scan at most."""


class AlreadyBegun(ConfigurationError):
    """A migration was begun before; `state` is its present state."""

    def __init__(self, state: State) -> None:
        next_ = "`streamkit migrate join` works on it, `streamkit migrate resume` ends a pause"
        if state.phase == "done":
            next_ = "nothing is left to do"
        super().__init__(f"migration {state.id} was begun before, and is {state.phase!r}; {next_}")
        self.state = state


async def require_latest(app: App, book: StateBook, migration: Migration) -> None:
    """Refuse to repair items for a migration on which another one builds: it would be undone.

    Raises:
        ConfigurationError: such a migration was begun.
    """
    order = order_of(app)
    others = await book.read_all(order.beside(migration))
    try:
        order.require_last(migration, others)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"a repair for {migration.id} would undo what came later: {error}, or repair for the"
            " later one"
        ) from None


async def beside(app: App, book: StateBook, migration: Migration) -> dict[str, Any]:
    """Return what a verification says beside the items: later migrations, and open errors.

    Once old items are deleted, nothing is left to which new ones could be `compared`.
    """
    order = order_of(app)
    begun = order.begun_on(migration, await book.read_all(order.beside(migration)))
    failed = len(await ErrorBook(book.store, migration.id).open())
    compared = not migration.moves or (await book.read(migration.id)).phase != "done"
    return {"later": begun[-1].id if begun else "", "failed": failed, "compared": compared}


async def require_decided(book: StateBook, migration: Migration) -> None:
    """Refuse to switch while people have to decide about items: it would stop in its middle.

    Other errors may go when the items are looked at again, which the switch does.

    Raises:
        ConfigurationError: there are such items.
    """
    said = await ErrorBook(book.store, migration.id).not_right(DECIDED)
    if said is not None:
        raise ConfigurationError(f"migration {migration.id}: {said}; then `switch`")


def require_segments(segments: int | None) -> None:
    """Refuse to cut a table into more segments than DynamoDB reads.

    Raises:
        ConfigurationError: there are too many.
    """
    if segments is not None and segments > SEGMENTS_MOST:
        raise ConfigurationError(
            f"{segments:,} segments are too many: DynamoDB reads a table in {SEGMENTS_MOST:,} at"
            " most, and one for 64 MB is enough"
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


def require_same(
    migration: Migration, state: State, *, accept_change: bool, command: str = "resume"
) -> None:
    """Refuse a migration whose definition is not the one that was begun.

    With `accept_change` a person has told the `command` that the change is right.

    Raises:
        ConfigurationError: its definition was changed since.
    """
    if state.phase in ("new", "rolled back") or state.digest == migration.digest or accept_change:
        return
    raise ConfigurationError(f"{migration.declared}: {changed(migration.id, command)}")


def changed(number: str, command: str = "resume") -> str:
    """Return what to do about a migration whose definition is not the one that was begun."""
    return (
        f"migration {number} was begun with another definition; undo that change and write a new"
        f" migration, or say `streamkit migrate {command} --accept-change` if both do the same"
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

"""Refuse commands that would undo what others did, or leave a migration in the middle of a phase.

In: a migration, and the states and errors in the table. Out: nothing. On failure:
`ConfigurationError` names the migrations or the items, and what to do first.
"""

from typing import Any

from streamkit.app import App
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.errors import DECIDED, ErrorBook
from streamkit.migrate.order import order_of
from streamkit.migrate.state_book import StateBook

SEGMENTS_MOST = 1_000_000
"""Segments into which DynamoDB cuts a scan at most."""


async def require_latest(app: App, book: StateBook, migration: Migration) -> None:
    """Refuse to repair items for a migration on which another one builds: it would be undone.

    Raises:
        ConfigurationError: such a migration was begun.
    """
    order = order_of(app)
    states = await book.read_all(order.beside(migration))
    try:
        order.require_last(migration, [*states.values()])
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
    states = await book.read_all(order.beside(migration))
    begun = order.begun_on(migration, [*states.values()])
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

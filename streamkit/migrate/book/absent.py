"""Find migrations that are under way in a table, and of which this release has no file.

A release that was rolled back behind a migration would say that there is none. The first write of a
migration's state puts its name into a set, in one transaction, and nothing takes it out; a
migration that an earlier release of streamkit began is there from its next step on.

In: the states of an app's migrations, and the numbers that its release knows. Out: those under way
that it does not know, in order.
"""

from collections.abc import Collection
from typing import Final

from streamkit.app import App
from streamkit.kinds.migration import rank
from streamkit.migrate.book.state import ENDED, State
from streamkit.migrate.book.state_book import StateBook

TO_DO: Final = (
    "this release does not have its file: deploy the release that has it, or roll the migration"
    " back with that one"
)
"""What people do about such a migration."""


def known_to(app: App) -> frozenset[str]:
    """Return the migrations that an app declares, or that were squashed."""
    return frozenset((*app.migrations, *app.done_everywhere))


async def absent_migrations(book: StateBook, known: Collection[str]) -> list[State]:
    """Return the states of migrations that are under way and not `known`."""
    states = await book.read_all(sorted(await book.begun() - {*known}, key=rank))
    return [state for state in states.values() if state.phase not in ("new", *ENDED)]

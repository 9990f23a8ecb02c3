"""Check at the start of a worker or a function that the migrations are done that its code needs.

In: an app that says `require_migrations=`, and clients. Out: what is missing, and the command that
comes next. Code that reads new items may start as soon as they are there: where items move, that is
when the migration is `ready`, long before it is `done`. On failure: `ConfigurationError` names what
is missing.
"""

import msgspec

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import rank
from streamkit.migrate.book.discovery import discover
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import SQUASHED, known_to, open_book

_USABLE = frozenset({"ready", "switching", "soaking", "contracting", "closing", "done"})
"""The phases in which new code may read what a migration makes."""


class MissingMigrations(msgspec.Struct, frozen=True):
    """What an app needs that its table has not had: in words, and the command that comes next.

    `command` is the command's words, and then what follows the app.
    """

    text: str
    command: tuple[str, ...]


async def missing_migrations(app: App, aws: Aws) -> MissingMigrations | None:
    """Return which migrations an app needs that its table has not had; None if none.

    Raises:
        DiscoveryError: a file of a migration is wrong.
        ConfigurationError: migrations have no order, a required one has no name, or the table may
            not be described.
    """
    head = app.head
    if not head.required:
        return None
    if "" in head.required:
        raise ConfigurationError(
            f"{head.declared}: require_migrations= has a name that is empty, perhaps from a"
            " variable that is not set; name a migration, or leave require_migrations= out"
        )
    discover(head)
    order, wanted = order_of(head), set[str]()
    for last in head.required:
        wanted |= {*order.until(last)} if last in head.migrations else {last}
    states = await (await open_book(head, aws)).read_all(sorted(wanted, key=rank))
    missing = [one for one in states if not _is_usable(head, one)]
    if not missing:
        return None
    names = ", ".join(f"{one.id} ({one.phase})" for one in missing)
    unknown = [one.id for one in missing if one.id not in known_to(head)]
    squashed = [one.id for one in missing if one.id in head.done_everywhere]
    back = [one.id for one in missing if one.direction == "back"]
    todo = "`streamkit migrate apply` brings what is pending"
    if back:
        todo += f", `streamkit migrate begin --again` what was rolled back ({', '.join(back)})"
    if squashed:
        todo = f"first {', '.join(squashed)}, {SQUASHED}"
    if unknown:
        todo = f"this release has no file of {', '.join(unknown)}: check require_migrations="
    return MissingMigrations(
        f"{head.declared}: require_migrations= names {', '.join(head.required)}, and table"
        f" {head.table} has not had {names}; {todo}",
        ("check",) if unknown or squashed else _command(missing[0]),
    )


def _command(state: State) -> tuple[str, ...]:
    """Return the command that brings on the first migration that is missing."""
    if state.phase == "blocked":
        return ("migrate errors list", state.id)
    if state.phase == "rolled back":
        return ("migrate begin", state.id, "--again")
    if state.paused:
        return ("migrate resume", state.id)
    return ("migrate join", state.id) if state.direction == "back" else ("migrate apply",)


async def command_to_start(app: App, aws: Aws) -> tuple[str, ...]:
    """Return the command without which workers and functions of an app refuse to start; or none."""
    try:
        missing = await missing_migrations(app, aws)
    except ConfigurationError:
        return ("check",)  # it says what is wrong, in a file of a migration or in what is required
    return () if missing is None else missing.command


async def require_migrations(app: App, aws: Aws) -> None:
    """Refuse to start where a migration is missing that the code needs.

    Raises:
        ConfigurationError: some are missing; it names them. Or as `missing_migrations`.
    """
    missing = await missing_migrations(app, aws)
    if missing is not None:
        raise ConfigurationError(missing.text)


def _is_usable(app: App, state: State) -> bool:
    """Return whether new code may read what a migration makes.

    One that may be repeated stays so while it runs again.
    """
    declared = app.migrations.get(state.id)
    if state.direction == "forward" and declared is not None and declared.repeat:
        finished = any(one.what == "done" or one.what.startswith("stamp:") for one in state.audit)
        return finished or state.phase == "done"
    return state.direction == "forward" and state.phase in _USABLE

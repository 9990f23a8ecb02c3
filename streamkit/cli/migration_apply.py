"""`streamkit migrate apply`: begin one migration, or all that are pending, and join.

At a terminal, or in a release: what was begun before is joined; what waits for people is named and
left to them.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_options import (
    FIRST,
    JOIN,
    LIMITS,
    MAX_ERRORS,
    KeysOption,
    SegmentsOption,
    ToOption,
    app_with_migrations,
    limit_of,
    taking,
)
from streamkit.cli.migration_steps import change_and_join
from streamkit.cli.options import RequiredApp
from streamkit.cli.printing import say, tell
from streamkit.cli.running import exit_with, with_aws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.book.order import MigrationOrder
    from streamkit.migrate.book.state_book import StateBook


@taking(LIMITS | MAX_ERRORS | FIRST | JOIN)
def apply(
    app: RequiredApp,
    number: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Its number or name; without it, all that are pending."),
    ] = None,
    *,
    to: ToOption = None,
    segments: SegmentsOption = None,
    keys_from: KeysOption = "",
    **given: Any,
) -> None:
    """Begin a migration if it was never begun, and join it.

    It is `begin` and `join` in one. Without ID it does that with all that are not done, in order.
    Exits as `join` does, and with 7 if one has to wait for a decision about another. What was begun
    before keeps its limits and segments; what was rolled back is left alone, and named; with --to
    the command exits with 7 then.
    """
    from streamkit.migrate.book.order import order_of

    if number is not None and to is not None:
        raise typer.BadParameter("name one migration, or say --to")
    if number is None and keys_from:
        raise typer.BadParameter("--keys-from is for one migration: name it")
    manner = {name: given.pop(name) for name in JOIN}
    first = {"segments": segments, "keys_from": keys_from}
    begin_once = partial(_begin_once, named=app, first=first, limits=given)
    if number is not None:
        change_and_join(app, number, begin_once, asked="apply", **manner)
        return
    loaded = app_with_migrations(app)
    order = order_of(loaded)
    ids = order.ids if to is None else order.until(to)

    async def work(aws: "Aws") -> ExitCode:
        return await _apply_all(loaded, aws, order, ids, begin_once, manner, named=to is not None)

    exit_with(with_aws(work))


async def _begin_once(
    app: "App",
    aws: "Aws",
    number: str,
    *,
    named: str,
    first: dict[str, Any],
    limits: dict[str, Any],
) -> None:
    """Begin a migration, if it was not begun before; the app is `named` so by the command.

    Raises:
        ConfigurationError: it was begun with another source than the one that is given.
    """
    from streamkit.cli.migration_views import limits_of
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.book.refusals import AlreadyBegun
    from streamkit.migrate.operate.commands import begin as begin_it
    from streamkit.migrate.run.chosen import require_source

    limit = await limit_of(app, aws, limits)
    try:
        await begin_it(app, aws, migration_of(app, number), limit=limit, **first)
    except AlreadyBegun as known:
        require_source(known.state, first["keys_from"])
        if any(first.values()) or any(value is not None for value in limits.values()):
            tell(
                f"migration {number} was begun before and keeps {limits_of(known.state)};"
                f" `streamkit migrate limit {named} {number}` changes that for all processes"
            )


async def _apply_all(
    loaded: "App",
    aws: "Aws",
    order: "MigrationOrder",
    ids: "Sequence[str]",
    begin_once: Any,
    manner: dict[str, Any],
    *,
    named: bool,
) -> ExitCode:
    """Apply what is pending, in order; name what has to wait for people, and leave it out.

    What was rolled back is left out, too; if the last one was `named`, all of them are wanted.
    """
    from streamkit.cli.migration_run import join_to_rest
    from streamkit.migrate.book.refusals import changed
    from streamkit.migrate.book.state_book import open_book
    from streamkit.migrate.operate.commands import is_due_again, status_of
    from streamkit.migrate.operate.status import phase_of

    book, brought = await open_book(loaded, aws), 0
    absent = await _name_absent(loaded, book)
    waiting = (0 if named else absent) + await _name_squashed(loaded, book)
    for number in ids:
        migration, state = loaded.migrations[number], await book.read(number)
        if state.phase == "rolled back":
            tell(
                f"migration {number} was rolled back, and is left out; `streamkit migrate begin"
                " --again` begins it once more"
            )
            waiting += named
            continue
        if state.phase == "done" and not is_due_again(migration, state):
            if status_of(migration, state) == "changed":
                tell(changed(number))
            continue
        others = await book.read_all(order.beside(migration))
        first = order.waits_for(migration, others)
        if first:
            names = ", ".join(f"{one.id}, which is {phase_of(one)}" for one in first)
            tell(f"migration {number} waits for {names}")
            waiting += 1
            continue
        await begin_once(loaded, aws, number)
        code = await join_to_rest(loaded, aws, number, manner, asked="apply")
        if code is not ExitCode.OK:
            return code
        brought += 1
    if not waiting and not absent and not brought:
        say("no migration is pending")
    return ExitCode.WAITS_FOR_PEOPLE if waiting else ExitCode.OK


async def _name_squashed(loaded: "App", book: "StateBook") -> int:
    """Name squashed migrations that the table has not had; return how many there are."""
    from streamkit.migrate.book.state_book import SQUASHED
    from streamkit.migrate.operate.commands import squashed

    found = await squashed(loaded, book)
    for state in found:
        tell(f"migration {state.id} ({state.phase}) is left out, {SQUASHED}")
    return len(found)


async def _name_absent(loaded: "App", book: "StateBook") -> int:
    """Name migrations under way of which this release has no file; return how many there are."""
    from streamkit.migrate.book.state_book import TO_DO, absent_migrations, known_to

    found = await absent_migrations(book, known_to(loaded))
    for state in found:
        tell(f"migration {state.id} is {state.phase!r}, and {TO_DO}")
    return len(found)

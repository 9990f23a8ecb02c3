"""`streamkit migrate` begin, join, pause, resume, limit, switch, contract, rollback: its steps.

Each command but `join` makes one change of a migration's state, once, for an operator. `join` does
the work and decides nothing, so a supervisor may start it, and start it again. `apply`, `switch`,
`contract` and `rollback` join after their change, for people at a terminal.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_options import (
    FIRST,
    JOIN,
    LIMITS,
    MAX_ERRORS,
    AcceptOption,
    AnywayOption,
    DetachOption,
    KeysOption,
    NewCodeOption,
    NumberArgument,
    OldCodeOption,
    SegmentsOption,
    app_with_migrations,
    limit_of,
    taking,
)
from streamkit.cli.options import RequiredApp
from streamkit.cli.printing import say, tell
from streamkit.cli.running import exit_with, with_aws

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.book.state import State

    Change = Callable[[App, Aws, str], Awaitable[State | None]]
    """A command on a migration, by its number; None says that the table has the state."""


@taking(LIMITS | MAX_ERRORS | FIRST)
def begin(
    app: RequiredApp,
    number: NumberArgument,
    *,
    segments: SegmentsOption = None,
    keys_from: KeysOption = "",
    again: Annotated[
        bool, typer.Option("--again", help="Begin once more, after a rollback.")
    ] = False,
    **limits: Any,
) -> None:
    """Begin a migration; the processes that `join` it do the work.

    Refuses a migration that was begun before. After a rollback, --again begins it once more.
    """
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.operate.commands import begin as begin_it

    async def change(loaded: "App", aws: "Aws", number: str) -> "State":
        migration = migration_of(loaded, number)
        limit = await limit_of(loaded, aws, limits)
        given: dict[str, Any] = {"segments": segments, "keys_from": keys_from, "again": again}
        return await begin_it(loaded, aws, migration, limit=limit, **given)

    _told(app, number, change)


@taking(JOIN)
def join(app: RequiredApp, number: NumberArgument, **manner: Any) -> None:
    """Work on a migration that was begun.

    The work ends when the migration is done, or waits for a decision. Any number of processes may
    join. A supervisor may run and restart this command: it begins nothing, ends no pause, and
    repeats no blocked scan. Exits with 0 when the migration is done, ready, soaking, closing or
    rolled back, 7 if items failed or a contract was given up meanwhile, 8 if it is paused, 9 if it
    was never begun, and 130 if it was stopped before the end.
    """
    change_and_join(app, number, None, **manner)


def pause(app: RequiredApp, number: NumberArgument) -> None:
    """Stop the scan of the table in every process.

    Running processes still follow changes.
    """
    from streamkit.migrate.operate.steps import pause as pause_it

    _told(app, number, pause_it)


def resume(
    app: RequiredApp, number: NumberArgument, *, accept_change: AcceptOption = False
) -> None:
    """Continue a paused migration, or verify a blocked one once more.

    The processes that still run it go on; `join` adds one.
    """
    from streamkit.migrate.operate.steps import resume as resume_it

    _told(app, number, partial(resume_it, accept_change=accept_change))


@taking(LIMITS | MAX_ERRORS)
def limit(app: RequiredApp, number: NumberArgument, **limits: Any) -> None:
    """Change the limits of a migration while it runs; 0 means no limit."""
    from streamkit.migrate.operate.steps import set_limit

    async def change(loaded: "App", aws: "Aws", number: str) -> "State":
        return await set_limit(loaded, aws, number, await limit_of(loaded, aws, limits))

    if not any(value is not None for value in limits.values()):
        raise typer.BadParameter(
            "no limit is given; give --max-wcu, --max-rcu, --share or --max-errors"
        )
    _told(app, number, change)


@taking(JOIN)
def switch(
    app: RequiredApp,
    number: NumberArgument,
    *,
    detach: DetachOption = False,
    anyway: AnywayOption = None,
    **manner: Any,
) -> None:
    """Switch a migration that is ready to its new items.

    They count from then on.
    """
    from streamkit.cli.migration_status import tell_old_writes
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.operate.steps import switch as switch_it

    async def told(loaded: "App", aws: "Aws", number: str) -> "State":
        migration = migration_of(loaded, number)
        if migration.moves and migration.reverse is None:
            tell("after this there is no way back, because the migration has no reverse=")
        await tell_old_writes(loaded, aws, number)
        return await switch_it(loaded, aws, number, anyway=anyway)

    change_and_join(app, number, told, asked="switch", detach=detach, **manner)


@taking(JOIN)
def rollback(
    app: RequiredApp,
    number: NumberArgument,
    *,
    accept_change: AcceptOption = False,
    detach: DetachOption = False,
    new_code: NewCodeOption = None,
    **manner: Any,
) -> None:
    """Roll a migration back.

    Its copies are deleted, or what it did is undone with its reverse=. If new code wrote at new
    keys within 24 hours, it pauses before new items go: roll that code back, then give the command
    with --new-code none.
    """
    from streamkit.migrate.operate.steps import rollback as take_back

    roll_back = partial(take_back, accept_change=accept_change, new_code=new_code is None)
    change_and_join(app, number, roll_back, asked="rollback", detach=detach, **manner)


@taking(JOIN)
def contract(
    app: RequiredApp,
    number: NumberArgument,
    *,
    detach: DetachOption = False,
    old_code: OldCodeOption = None,
    anyway: AnywayOption = None,
    **manner: Any,
) -> None:
    """Delete the old items of a migration that is soaking.

    After this there is no way back. It is refused for 24 hours after the last write of old code
    at an old key, before the switch or since; after it, such a write is still carried for 24
    hours. With --old-code none it does not wait, and such a write stops the migration.
    """
    from streamkit.cli.migration_status import tell_old_writes
    from streamkit.migrate.operate.steps import contract as contract_it

    async def told(loaded: "App", aws: "Aws", number: str) -> "State":
        await tell_old_writes(loaded, aws, number)
        return await contract_it(loaded, aws, number, old_code=old_code is None, anyway=anyway)

    change_and_join(app, number, told, asked="contract", detach=detach, **manner)


# -- parts of the commands -------------------------------------------------------------------------


def _told(app: str, number: str, change: "Callable[[App, Aws, str], Awaitable[State]]") -> None:
    """Change a state and print the new one."""
    from streamkit.cli.migration_views import limits_of
    from streamkit.migrate.book.state import RESTING
    from streamkit.migrate.operate.status import phase_of

    loaded = app_with_migrations(app)
    state = with_aws(lambda aws: change(loaded, aws, number))
    rests = state.paused or state.phase in RESTING
    next_ = "" if rests else "; `streamkit migrate join` works on it"
    say(f"migration {number} is {phase_of(state)}, with {limits_of(state)}{next_}")


def change_and_join(
    app: str,
    number: str,
    change: "Change | None",
    *,
    asked: str = "",
    detach: bool = False,
    **manner: Any,
) -> None:
    """Change a migration's state, work on it until it rests, and exit with the code for that.

    `asked` is the name of the command, if it is one that decides.
    """
    from streamkit.cli.migration_run import join_to_rest
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.operate.status import phase_of

    loaded = app_with_migrations(app)
    migration_of(loaded, number)

    async def work(aws: "Aws") -> ExitCode:
        state = await change(loaded, aws, number) if change else None
        if detach and state is not None:
            say(f"migration {number} is {phase_of(state)}; the processes that run it go on")
            return ExitCode.OK
        return await join_to_rest(loaded, aws, number, manner, state, asked)

    exit_with(with_aws(work))

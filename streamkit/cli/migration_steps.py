"""`streamkit migrate` pause, resume, limit, switch, rollback and contract: a migration's steps.

Each is one change of its state. Those that lead to work do it, too, as `apply` does.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

from streamkit.cli.migration_options import (
    AcceptOption,
    AtOnceOption,
    DetachOption,
    NumberArgument,
    PageOption,
    RequiredApp,
    StayOption,
    with_limits,
)
from streamkit.cli.options import JsonOption

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.state import State


def pause(app: RequiredApp, number: NumberArgument) -> None:
    """Let every process stop passing over the table; changes are still captured."""
    from streamkit.migrate.steps import pause as pause_it

    _told(app, number, lambda loaded, aws: pause_it(loaded, aws, number))


def resume(app: RequiredApp, number: NumberArgument) -> None:
    """Let the processes of a paused migration go on; `apply` adds one."""
    from streamkit.migrate.steps import resume as resume_it

    _told(app, number, lambda loaded, aws: resume_it(loaded, aws, number))


@with_limits
def limit(app: RequiredApp, number: NumberArgument, **limits: Any) -> None:
    """Change how much a migration may take, while it runs; 0 lifts a limit."""
    from streamkit.cli.migration_options import limit_of
    from streamkit.migrate.steps import set_limit

    async def change(loaded: "App", aws: "Aws") -> "State":
        return await set_limit(loaded, aws, number, await limit_of(loaded, aws, limits))

    if not any(value is not None for value in limits.values()):
        raise typer.BadParameter("say --max-wcu, --max-rcu or --share")
    _told(app, number, change)


def switch(
    app: RequiredApp,
    number: NumberArgument,
    *,
    at_once: AtOnceOption = 4,
    page: PageOption = 200,
    stay: StayOption = False,
    detach: DetachOption = False,
    json: JsonOption = False,
) -> None:
    """Make the new items the truth, pair by pair; for a migration that is ready."""
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.migrate.commands import migration_of
    from streamkit.migrate.steps import switch as switch_it

    loaded = app_with_migrations(app)
    if migration_of(loaded, number).reverse is None:
        typer.echo("from here on there is no way back: it has no reverse=", err=True)

    def change(aws: "Aws") -> "Awaitable[State]":
        return switch_it(loaded, aws, number)

    run_change(
        loaded, number, change, at_once=at_once, page=page, stay=stay, detach=detach, json=json
    )


def rollback(
    app: RequiredApp,
    number: NumberArgument,
    *,
    at_once: AtOnceOption = 4,
    page: PageOption = 200,
    stay: StayOption = False,
    accept_change: AcceptOption = False,
    detach: DetachOption = False,
    json: JsonOption = False,
) -> None:
    """Take a migration back, with its reverse= where there is nothing to delete instead."""
    from functools import partial

    from streamkit.migrate.steps import rollback as take_back

    roll_back = partial(take_back, accept_change=accept_change)
    _step(app, number, roll_back, at_once=at_once, page=page, stay=stay, detach=detach, json=json)


def contract(
    app: RequiredApp,
    number: NumberArgument,
    *,
    at_once: AtOnceOption = 4,
    page: PageOption = 200,
    stay: StayOption = False,
    detach: DetachOption = False,
    json: JsonOption = False,
) -> None:
    """Delete the old items of a migration that soaks; there is no way back afterwards."""
    from streamkit.migrate.steps import contract as contract_it

    _step(app, number, contract_it, at_once=at_once, page=page, stay=stay, detach=detach, json=json)


# -- the parts of it -------------------------------------------------------------------------------


def _told(name: str, number: str, change: "Callable[[App, Aws], Awaitable[State]]") -> None:
    """Change a state, and say what it is then."""
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.migration_views import phase_of
    from streamkit.cli.printing import say
    from streamkit.cli.running import with_aws

    loaded = app_with_migrations(name)
    state = with_aws(lambda aws: change(loaded, aws))
    limits = [
        f"{units} {limit:g} a second"
        for units, limit in (("WCU", state.max_writes), ("RCU", state.max_reads))
        if limit is not None
    ]
    say(", ".join([f"migration {number} is {phase_of(state)}", *limits]))


def _step(name: str, number: str, change: Any, **manner: Any) -> None:
    from streamkit.cli.migration_options import app_with_migrations

    loaded = app_with_migrations(name)
    run_change(loaded, number, lambda aws: change(loaded, aws, number), **manner)


def run_change(
    loaded: "App",
    number: str,
    change: "Callable[[Aws], Awaitable[State]]",
    *,
    at_once: int,
    page: int,
    stay: bool,
    detach: bool,
    json: bool,
) -> None:
    """Change a migration's state, and run it to its rest; exit as that ends."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migrating import Manner, exit_code_of, run_to_rest
    from streamkit.cli.migration_views import phase_of
    from streamkit.cli.printing import say
    from streamkit.cli.running import exit_with, settings, with_aws
    from streamkit.migrate.commands import migration_of

    migration, chosen = migration_of(loaded, number), settings()

    async def work(aws: "Aws") -> ExitCode:
        state = await change(aws)
        if detach:
            say(f"migration {number} is {phase_of(state)}; whoever runs it goes on")
            return ExitCode.OK
        manner = Manner(at_once=at_once, page=page, stay=stay, as_json=json)
        return exit_code_of(await run_to_rest(loaded, aws, migration, chosen, manner))

    exit_with(with_aws(work))

"""`streamkit migrate`: write, plan, run, watch, repair, verify and roll back migrations."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.app_command import AppCommand
from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_apply import apply
from streamkit.cli.migration_errors import errors
from streamkit.cli.migration_new import new
from streamkit.cli.migration_options import (
    LIMITS,
    KeysOption,
    NumberArgument,
    SampleOption,
    ToOption,
    VerifyOption,
    app_with_migrations,
    limit_of,
    taking,
)
from streamkit.cli.migration_steps import (
    begin,
    contract,
    join,
    limit,
    pause,
    resume,
    rollback,
    switch,
)
from streamkit.cli.options import (
    AppArgument,
    EveryOption,
    JsonOption,
    LooksOption,
    RequiredApp,
    WatchOption,
    command_group,
)
from streamkit.cli.printing import print_json, print_report, say
from streamkit.cli.running import exit_with, with_aws

if TYPE_CHECKING:
    from streamkit.aws import Aws
    from streamkit.migrate.book.state import State

migrate = command_group("Bring items into a new shape while the table is in use.")
migrate.add_typer(errors, name="errors")


@migrate.command()
def check(
    app: AppArgument = None,
    *,
    to: ToOption = None,
    strict: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 5 if one is not done, or rolled back.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List migrations; exit with 5 if one is pending, or was changed.

    With --exit-code it exits with 0 only if all are done: for CI, before a release that needs them.
    """
    from streamkit.cli.migration_status import describe_list
    from streamkit.migrate.book.order import order_of
    from streamkit.migrate.operate.commands import list_migrations

    loaded = app_with_migrations(app)
    found = with_aws(lambda aws: list_migrations(loaded, aws))
    if to is not None:
        wanted = {*order_of(loaded).until(to), *loaded.done_everywhere}
        found = [one for one in found if one.id in wanted]
    if json:
        print_json([one.to_dict() for one in found])
    elif found:
        describe_list(found)
    else:  # what was squashed is done
        some = loaded.done_everywhere
        say("no migration is pending" if some else f"{loaded.name} has no migration")
    wrong = {"pending", "changed"} | ({"running", "rolled back", "no file"} if strict else set())
    if any(one.standing in wrong for one in found):
        exit_with(ExitCode.PROBLEMS)


@migrate.command(cls=AppCommand)
@taking(LIMITS)
def plan(
    app: RequiredApp,
    number: NumberArgument,
    *,
    sample: SampleOption = "1000",
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the changes of some items, which prints item data.")
    ] = False,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Show the keys of those items.")
    ] = False,
    keys_from: KeysOption = "",
    json: JsonOption = False,
    **limits: Any,
) -> None:
    """Print from a sample what a migration does, costs and breaks.

    Nothing is written. Exits with 5 if it finds a problem.
    """
    from streamkit.cli.migration_views import describe_plan
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.plan.planning import plan_migration
    from streamkit.migrate.plan.sample_look import MigrationPlan

    loaded = app_with_migrations(app)
    migration = migration_of(loaded, number)

    async def read(aws: "Aws") -> MigrationPlan:
        return await plan_migration(
            *(loaded, aws, migration),
            sample=sample,
            budget=await limit_of(loaded, aws, limits),
            diffs=10 if diff else 0,
            show_keys=show_keys,
            keys_from=keys_from,
        )

    found = with_aws(read)
    print_report(found, describe_plan, as_json=json)
    if not found.ok:
        exit_with(ExitCode.PROBLEMS)


@migrate.command(cls=AppCommand)
def status(
    app: AppArgument = None,
    number: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The number or name of the migration; without it, all."),
    ] = None,
    *,
    watch: WatchOption = False,
    every: EveryOption = 5.0,
    looks: LooksOption = None,
    json: JsonOption = False,
) -> None:
    """Show the progress of migrations.

    That is the phase, the speed, what slows them, and when the scan ends.
    """
    from streamkit.cli.migration_status import show_all, show_one, watch_one
    from streamkit.migrate.book.order import migration_of

    loaded = app_with_migrations(app)
    if number is None:
        with_aws(lambda aws: show_all(loaded, aws, as_json=json))
        return
    if watch:
        one = migration_of(loaded, number).id
        with_aws(lambda aws: watch_one(loaded, aws, one, every, looks, as_json=json))
    else:
        with_aws(lambda aws: show_one(loaded, aws, number, as_json=json))


@migrate.command(cls=AppCommand)
def verify(
    app: RequiredApp,
    number: NumberArgument,
    *,
    sample: VerifyOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Bring items that differ into the new shape.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Begin at the first page, although a verification is under way."
        ),
    ] = False,
    max_rcu: Annotated[
        float | None,
        typer.Option("--max-rcu", min=0.1, help="Use at most this many read units a second."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Verify the table item by item; exit with 5 if an item is wrong.

    It reads the table with strong consistency, a read unit for each 4 KB, and also the targets of
    items that move or from which items are derived. The application may write meanwhile. Processes
    that run the same command share the work; if all are stopped, the same command continues there.
    """
    from streamkit.cli.migration_found import describe_verified
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.verify.verifying import verify_migration

    loaded = app_with_migrations(app)
    migration = migration_of(loaded, number)
    if migration.mode == "aggregate":
        raise typer.BadParameter(
            "an aggregate is verified by"
            f" `streamkit aggregate verify {app} {migration.entity.__name__}`"
        )
    found = with_aws(
        lambda aws: verify_migration(
            loaded, aws, migration, sample=sample, repair=repair, again=again, max_reads=max_rcu
        )
    )
    print_report(found, describe_verified, as_json=json)
    if not found.ok:
        exit_with(ExitCode.PROBLEMS)


@migrate.command(cls=AppCommand)
def history(app: RequiredApp, number: NumberArgument, *, json: JsonOption = False) -> None:
    """Show what was done with a migration, when, and by whom."""
    from streamkit.cli.migration_views import describe_history
    from streamkit.migrate.book.order import migration_of
    from streamkit.migrate.book.state_book import open_book

    loaded = app_with_migrations(app)
    migration = migration_of(loaded, number)

    async def read(aws: "Aws") -> "State":
        return await (await open_book(loaded, aws)).read(migration.id)

    state = with_aws(read)
    print_json(state.to_dict()["audit"]) if json else describe_history(state)


@migrate.command(cls=AppCommand)
def stamp(
    app: RequiredApp,
    numbers: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The migrations' numbers or names.")
    ],
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Say how it was done; the reason is stored.")
    ],
) -> None:
    """Note that migrations are done already, by other means.

    No item is read or written.
    """
    from streamkit.migrate.operate.squashing import stamp as stamp_it

    loaded = app_with_migrations(app)

    async def work(aws: "Aws") -> None:
        for number in numbers:
            state = await stamp_it(loaded, aws, number, reason)
            say(
                f"migration {number} is {state.phase};"
                " `streamkit migrate verify` looks at its items"
            )

    with_aws(work)


@migrate.command(cls=AppCommand)
def squash(
    app: RequiredApp,
    *,
    to: Annotated[str, typer.Option("--to", metavar="ID", help="The number of the last one.")],
) -> None:
    """Replace the files of migrations that are done by one file.

    It has their numbers. The command refuses while one of them is not done in this table; look at
    your other tables first, with `migrate check --exit-code --to`.
    """
    from streamkit.migrate.operate.squashing import squash as squash_them

    loaded = app_with_migrations(app)
    path, gone = with_aws(lambda aws: squash_them(loaded, aws, app, to))
    say(f"wrote {path}")
    for one in gone:
        say(f"deleted {one}")


for step in (new, begin, join, apply, pause, resume, limit, switch, contract, rollback):
    migrate.command(cls=AppCommand)(step)

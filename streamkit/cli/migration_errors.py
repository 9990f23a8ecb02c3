"""`streamkit migrate errors`: the items that a migration could not transform."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.migration_options import NumberArgument
from streamkit.cli.options import JsonOption, RequiredApp

if TYPE_CHECKING:
    from streamkit.aws import Aws

errors = typer.Typer(
    help="List, show, retry or waive items that could not be migrated.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ItemArgument = Annotated[
    str, typer.Argument(metavar="ITEM", help="The item, as `errors list` names it.")
]


@errors.command("list")
def list_(app: RequiredApp, number: NumberArgument, *, json: JsonOption = False) -> None:
    """List the items that failed, with the reason of each; keys are hashed."""
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.migration_views import describe_errors
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import with_aws
    from streamkit.migrate.mending import list_errors

    loaded = app_with_migrations(app)
    found = with_aws(lambda aws: list_errors(loaded, aws, number))
    if json:
        print_json([one.to_dict() for one in found])
    else:
        describe_errors(found)


@errors.command()
def show(app: RequiredApp, number: NumberArgument, item: ItemArgument) -> None:
    """Print one failed item as JSON, with its key."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import exit_with, with_aws
    from streamkit.migrate.mending import list_errors

    loaded = app_with_migrations(app)
    found = with_aws(lambda aws: list_errors(loaded, aws, number))
    for one in found:
        if one.id == item:
            print_json({**one.to_dict(), "key": one.key})
            return
    typer.echo("there is no such item (any more); `errors list` shows all", err=True)
    exit_with(ExitCode.PROBLEMS)


@errors.command()
def retry(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM...",
            help="The items, as `errors list` names them; without any, all items.",
        ),
    ] = None,
) -> None:
    """Try items again once the code or the data is mended; exit with 7 if one fails."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.printing import say
    from streamkit.cli.running import exit_with, with_aws
    from streamkit.migrate.mending import retry_errors

    loaded = app_with_migrations(app)
    names = set(items) if items else None
    right, wrong = with_aws(lambda aws: retry_errors(loaded, aws, number, names))
    say(f"{right} items are right now, {wrong} are not")
    if right and not wrong:
        say(f"now run `streamkit migrate resume {app} {number}`, then `join`")
    if wrong:
        exit_with(ExitCode.WAITS_FOR_PEOPLE)


@errors.command()
def waive(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM...", help="The items, as `errors list` names them; or say --all."
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Waive all items that have failed so far.")
    ] = False,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", help="Say why the items may stay as they are; the reason is stored."
        ),
    ],
) -> None:
    """Let items stay as they are; your name and the reason are stored."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.printing import say
    from streamkit.cli.running import exit_with, with_aws
    from streamkit.migrate.mending import waive_errors

    if every == bool(items):
        raise typer.BadParameter("name items as `errors list` does, or say --all")
    loaded, names = app_with_migrations(app), set(items or ())

    async def work(aws: "Aws") -> int:
        return await waive_errors(loaded, aws, number, None if every else names, reason)

    count = with_aws(work)
    say(f"{count} items were waived")
    if count < len(names):
        typer.echo("some of these items have not failed, or are right again", err=True)
        exit_with(ExitCode.PROBLEMS)

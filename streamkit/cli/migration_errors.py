"""`streamkit migrate errors`: the items that a migration could not transform."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.migration_options import NumberArgument, RequiredApp
from streamkit.cli.options import JsonOption

if TYPE_CHECKING:
    from streamkit.aws import Aws

errors = typer.Typer(
    help="List, show, retry or waive items that could not be migrated.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="as `errors list` names it")]


@errors.command("list")
def list_(app: RequiredApp, number: NumberArgument, *, json: JsonOption = False) -> None:
    """List them, with the reason of each; keys are hashed."""
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
    """Print one as JSON, with the key of its item."""
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
    typer.echo("there is no such item (any more)", err=True)
    exit_with(ExitCode.PROBLEMS)


@errors.command()
def retry(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="ITEM...", help="these; all without any")
    ] = None,
) -> None:
    """Try items again, as when the code or the data is mended; exits with 7 if one fails."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.printing import say
    from streamkit.cli.running import exit_with, with_aws
    from streamkit.migrate.mending import retry_errors

    loaded = app_with_migrations(app)
    names = set(items) if items else None
    right, wrong = with_aws(lambda aws: retry_errors(loaded, aws, number, names))
    say(f"{right} are right now, {wrong} are not")
    if right and not wrong:
        say(f"`streamkit migrate resume {app} {number}` lets it go on, `join` works on it then")
    if wrong:
        exit_with(ExitCode.WAITS_FOR_PEOPLE)


@errors.command()
def waive(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="ITEM...", help="which; or --all")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="all that have failed so far")] = False,
    reason: Annotated[str, typer.Option("--reason", help="why they may stay as they are")],
) -> None:
    """Let items stay as they are; the record keeps who said so, and why."""
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.migration_options import app_with_migrations
    from streamkit.cli.printing import say
    from streamkit.cli.running import exit_with, with_aws
    from streamkit.migrate.mending import waive_errors

    if every == bool(items):
        raise typer.BadParameter("name items, as `errors list` does, or say --all")
    loaded, names = app_with_migrations(app), set(items or ())

    async def work(aws: "Aws") -> int:
        return await waive_errors(loaded, aws, number, None if every else names, reason)

    count = with_aws(work)
    say(f"{count} items were waived")
    if count < len(names):
        typer.echo("some of them have not failed (any more)", err=True)
        exit_with(ExitCode.PROBLEMS)

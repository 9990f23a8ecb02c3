"""`streamkit lambda`: settings of an event source mapping that follow from an app."""

from typing import Annotated

import typer

from streamkit.cli.options import AppArgument, ListenerOption

lambdas = typer.Typer(help="For the Lambda host.", no_args_is_help=True)


@lambdas.callback()
def group() -> None:
    pass


@lambdas.command("filter")
def print_filter(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    filters: Annotated[
        int,
        typer.Option("--filters", min=1, max=10, help="patterns of a mapping; AWS gives 5, or 10"),
    ] = 5,
) -> None:
    """Print the filter criteria of the app's event source mapping, as JSON.

    They let every record through that a handler listens to, and leave out streamkit's own and as
    many others as they can; what they cannot is said on stderr.
    """
    from streamkit.aws_lambda.filters import criteria
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named, with_aws
    from streamkit.core.tables import survey

    loaded = app_named(app, listener)
    around = with_aws(lambda aws: survey(loaded, aws))
    found = criteria(loaded, around.table, filters=filters)
    for note in found.notes:
        typer.echo(f"coarser than it could be: {note}", err=True)
    print_json(found.to_dict())

"""`streamkit lambda`: settings of an event source mapping that follow from an app."""

from typing import Annotated

import typer

from streamkit.cli.options import AppArgument, ListenerOption
from streamkit.cli.printing import print_json, tell
from streamkit.cli.running import app_named, with_aws

lambdas = typer.Typer(help="Print settings for the Lambda host.", no_args_is_help=True)


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
        typer.Option(
            "--filters",
            min=1,
            max=10,
            help="Use at most this many patterns; AWS allows a mapping 5, or 10 on request.",
        ),
    ] = 5,
) -> None:
    """Print the filters of the app's event source mapping, as JSON.

    They let through every record that a handler listens to. They leave out streamkit's own records
    and as many others as possible; what they cannot leave out is printed on stderr.
    """
    from streamkit.aws_lambda.filters import criteria
    from streamkit.core.tables import survey

    loaded = app_named(app, listener)
    tables = with_aws(lambda aws: survey(loaded, aws))
    found = criteria(loaded, tables.table, filters=filters)
    for note in found.notes:
        tell(f"the filter lets more through than handlers need: {note}")
    print_json(found.to_dict())

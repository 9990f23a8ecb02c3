"""`streamkit archive`: check that an archive is whole."""

from typing import Annotated

import typer

from streamkit.cli.consumers import time_of
from streamkit.cli.exits import ExitCode
from streamkit.cli.options import AppArgument, JsonOption
from streamkit.cli.printing import print_json
from streamkit.cli.running import app_named, exit_with, with_aws

archive = typer.Typer(
    help="Check the archive of an app.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@archive.callback()
def _group() -> None:
    """Check the archive of an app."""


@archive.command()
def verify(
    app: AppArgument = None,
    *,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Check from this time on, such as 2026-01-31T12:00:00Z."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read an archive, check every object's hash, and name each gap.

    Exits with 5 if records are missing: a hole that its writer recorded, an object that was
    removed, or one whose content is not what was stored.
    """
    from streamkit.cli.describing import describe_archive
    from streamkit.operate.archives import verify_archive

    loaded = app_named(app)
    moment = 0.0 if since is None else time_of(since, "--since").timestamp()
    found = with_aws(lambda aws: verify_archive(loaded, aws, moment))
    if json:
        print_json(found.to_dict())
    else:
        describe_archive(found)
    if not found.whole:
        exit_with(ExitCode.PROBLEMS)

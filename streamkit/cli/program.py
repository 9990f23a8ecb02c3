"""The program: its commands and their options, and how it exits."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit import __version__
from streamkit.cli.aggregates import aggregates
from streamkit.cli.app_command import AppCommand
from streamkit.cli.archives import archive
from streamkit.cli.consumers import consumers, rewind
from streamkit.cli.costs import cost
from streamkit.cli.exits import ExitCode
from streamkit.cli.explaining import explain
from streamkit.cli.fan_outs import fan_outs
from streamkit.cli.lambdas import lambdas
from streamkit.cli.local_commands import demo, dev, local, new
from streamkit.cli.migrations import migrate
from streamkit.cli.moving import import_kcl, join, to_lambda, to_workers
from streamkit.cli.options import (
    AppArgument,
    AppsArgument,
    EveryOption,
    JsonOption,
    ListenerOption,
    LooksOption,
    WatchOption,
    with_preset,
    with_settings,
)
from streamkit.cli.parked import parked
from streamkit.cli.permissions import iam
from streamkit.cli.printing import print_json, say, say_next
from streamkit.cli.replaying import replay
from streamkit.cli.running import app_named, apps_named, exit_with, set_up_logs, settings, with_aws
from streamkit.cli.running import run as run_async

if TYPE_CHECKING:
    from streamkit.aws import Aws
    from streamkit.migrate.operate.status import Line
    from streamkit.operate.status import Status

_EPILOG = """\b
Exit codes:
    0  ok
    1  unexpected: a defect of streamkit, or an error in the app's code
    2  wrong usage
    3  the app could not be imported
    4  AWS or the table: missing, wrong, not allowed, or not reached; or an unknown name
    5  check found problems; changes are still parked; no worker is alive (status --exit-code);
       a rewind or a move was refused; an aggregate is wrong; no such change is parked
    6  records may have been lost because the stream no longer had them
    7  a migration is blocked: items failed, and a person must decide
    8  a migration, or the consumer, is paused
    9  a migration was never begun
   70  the event loop stood still, as in a handler that never returns
  130  interrupted, or stopped before the workers had drained
  141  nothing reads the output any more, as behind `| head`
\b
AWS is configured as for any AWS SDK: AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_DYNAMODB, ...
"""

program = typer.Typer(
    name="streamkit",
    help="React to changes in a DynamoDB table, exactly once.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
program.add_typer(archive, name="archive")
program.add_typer(parked, name="parked")
program.add_typer(consumers, name="consumers")
program.add_typer(aggregates, name="aggregate")
program.add_typer(fan_outs, name="fan-outs")
program.add_typer(lambdas, name="lambda")
program.add_typer(migrate, name="migrate")
for move in (import_kcl, to_workers, to_lambda):
    consumers.command()(move)
consumers.command(cls=AppCommand)(join)


def run() -> None:
    """Run the command line and exit."""
    try:
        program()
    except Exception as error:  # noqa: BLE001 - the last place to report an error
        from streamkit.cli.failures import report

        sys.exit(int(report(error)))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"streamkit {__version__}")
        raise typer.Exit


@program.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


for command in (new, dev, local, demo):
    program.command()(command)


@program.command()
@with_settings
def worker(
    apps: AppsArgument = None,
    *,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left to read.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Go on although records may be lost, as with on_loss='resume'."
        ),
    ] = False,
    latency: Annotated[
        bool,
        typer.Option("--latency", help="Poll often, as with --preset latency."),
    ] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Poll seldom, as with --preset cost."),
    ] = False,
    **given: Any,
) -> None:
    """Run apps: read their streams and commit what handlers return.

    The listeners of an app run with it. Apps and listeners of one table share what they read, each
    at its own pace. The first SIGTERM or SIGINT drains and releases within the grace period; the
    second stops at once. With --until-idle it exits with 5 if changes are parked then, 8 if a
    consumer is paused, and 130 if it was stopped before.
    """
    from streamkit.app import consumers_of
    from streamkit.cli.workers import run_workers

    chosen = settings(**with_preset(given, latency=latency, cost=cost))
    set_up_logs(chosen, chosen.log_level)
    loaded = apps_named(apps)
    if accept_loss:
        for app in consumers_of(loaded):
            app.accept_losses()
    exit_with(run_async(lambda: run_workers(loaded, chosen, until_idle=until_idle)))


@program.command()
def status(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    json: JsonOption = False,
    no_stream: Annotated[
        bool,
        typer.Option("--no-stream", help="Do not read the stream; lags are then upper bounds."),
    ] = False,
    watch: WatchOption = False,
    every: EveryOption = 2.0,
    looks: LooksOption = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 5, 6 or 8 if something is wrong.")
    ] = False,
) -> None:
    """Show workers, shards, lag and parked changes.

    Shards are shown as the tree of their splits, with owner, position and lag in seconds. --watch
    redraws the status in place on a terminal, and lists what has changed; elsewhere, and with
    --json, it prints a line for each look. Colours are for terminals, and NO_COLOR switches them
    off. If something has to be done, the last line names the command.

    --exit-code watches for at most a lease whether a worker is alive. It exits with 6 if records
    may have been lost, 8 if the consumer is paused, and 5 if no worker is alive, changes are parked
    or wait behind others, the lag is not known, an aggregate needs a rebuild, or a migration is
    missing that the code requires; the reasons are on stderr.
    """
    from streamkit.cli.describing import describe_status
    from streamkit.cli.following import after_status
    from streamkit.cli.migration_views import describe_lines
    from streamkit.cli.verdicts import exit_by
    from streamkit.cli.watching import watch_app
    from streamkit.migrate.operate.required import command_to_start
    from streamkit.migrate.operate.status import list_migrations
    from streamkit.operate.status import read_status

    if watch and exit_code:
        raise typer.BadParameter(
            "--exit-code judges one look, and --watch takes many; give only one of them"
        )
    loaded = app_named(app, listener)
    if watch:
        seen = partial(watch_app, loaded, every=every, looks=looks, as_json=json)
        with_aws(lambda aws: seen(aws, look_into_stream=not no_stream))
        return

    async def look_once(aws: "Aws") -> "tuple[Status, list[Line], tuple[str, ...]]":
        found = await read_status(loaded, aws, look_into_stream=not no_stream)
        return found, await list_migrations(loaded, aws), await command_to_start(loaded, aws)

    found, migrations, needed = with_aws(look_once)
    if json:
        print_json({**found.to_dict(), "migrations": [one.to_dict() for one in migrations]})
    else:
        describe_status(found)
        describe_lines(migrations)
        say_next(app, after_status(found, needed), listener)
    if exit_code:
        exit_by(loaded, found, may_start=not needed)


@program.command()
def check(
    app: AppArgument = None, *, listener: ListenerOption = None, json: JsonOption = False
) -> None:
    """Check whether an app fits its table and the credentials.

    Checks stream, keys, indexes, TTL, permissions and handlers, and changes nothing; a bucket that
    is an archive keeps an empty object, `writable`. Exits with 5 if a worker could not run.
    """
    from streamkit.cli.describing import describe_inspection
    from streamkit.cli.following import after_check
    from streamkit.operate.inspection import inspect_app

    loaded = app_named(app, listener)
    found = with_aws(lambda aws: inspect_app(loaded, aws))
    if json:
        print_json(found.to_dict())
    else:
        describe_inspection(found)
        say_next(app, after_check(found))
    if not found.ok:
        exit_with(ExitCode.PROBLEMS)


@program.command()
def describe(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    json: JsonOption = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a picture in Mermaid's language.")
    ] = False,
) -> None:
    """Show what an app declares, without a look at any table.

    Lists its entities with keys and indexes, and its handlers with what they read, write and send,
    as far as their declarations and code say.
    """
    from streamkit.cli.describe_app import describe_outline, mermaid_of
    from streamkit.operate.outline import outline_of

    found = outline_of(app_named(app, listener))
    if mermaid:
        say(mermaid_of(found))
    elif json:
        print_json(found.to_dict())
    else:
        describe_outline(found)


program.command(cls=AppCommand)(explain)
for later in (cost, iam, rewind, replay):
    program.command()(later)

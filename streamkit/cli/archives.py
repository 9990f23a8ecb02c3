"""`streamkit archive`: check that an archive is whole, and restore a table from it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.consumers import time_of
from streamkit.cli.exits import ExitCode
from streamkit.cli.options import AppArgument, JsonOption, command_group
from streamkit.cli.printing import moment, print_report, say, tell
from streamkit.cli.running import app_named, exit_with, with_aws
from streamkit.progress.clock import SystemClock

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.archive.completeness import ArchiveCheck
    from streamkit.aws import Aws
    from streamkit.operate.restore.restore import Restored
    from streamkit.operate.restore.target import RestoreWish

archive = command_group("Check the archive of an app, and restore its table from it.")


@archive.command()
def verify(
    app: AppArgument = None,
    *,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Check from this time on, such as 2026-01-31T12:00:00Z."),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Compare so many items with the table.")
    ] = 0,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Name items that differ by their keys, not hashes.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Read an archive, check every object's hash, and name each gap.

    --sample also compares the latest archived images of some items with the table: another pass
    over all objects, and the items are read. Exits with 5 if records are missing (a hole that its
    writer recorded, an object that was removed, or one whose content is not what was stored), or
    items differ.
    """
    from streamkit.cli.describing import describe_archive
    from streamkit.core.tables import open_store
    from streamkit.operate.past.archives import verify_archive

    loaded = app_named(app)
    moment = 0.0 if since is None else time_of(since, "--since").timestamp()

    async def verified(aws: "Aws") -> "ArchiveCheck":
        # By the table's clock.
        if moment and moment > await (await open_store(loaded, aws)).time(SystemClock()):
            raise typer.BadParameter(f"--since {since} is in the future")
        return await verify_archive(loaded, aws, moment, sample=sample, show_keys=show_keys)

    found = with_aws(verified)
    print_report(found, describe_archive, as_json=json)
    if not found.whole:
        exit_with(ExitCode.PROBLEMS)


@archive.command()
def restore(  # noqa: PLR0913 - each is an option
    app: AppArgument = None,
    *,
    at: Annotated[
        str, typer.Option("--at", help="The moment to restore, such as 2026-01-31T12:00:00Z.")
    ],
    to_local: Annotated[
        bool, typer.Option("--to-local", help="Restore into the engine of `streamkit dev`.")
    ] = False,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where --to-local keeps its tables.")
    ] = Path(".streamkit"),
    to_table: Annotated[
        str | None,
        typer.Option("--to-table", metavar="NAME", help="Restore into this empty table."),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            metavar="table|DIR",
            help="Where the items are that never changed: the table as it is now, or the folder of"
            " an export to S3 in DynamoDB JSON, as it was downloaded.",
        ),
    ] = "",
    max_wcu: Annotated[
        float | None,
        typer.Option(
            "--max-wcu", min=1, help="With --to-table, use at most this many write units a second."
        ),
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Go on where the archive lacks changes.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Restore an app's table as it was at a moment.

    It is restored into another table, or into the local engine; the target must be empty. Without
    --base the result has only items that have changed since the archive began. If a restore into
    a table was stopped, the same command begins it again. Exits with 5 if it is refused, and with 6
    if the archive lacks changes.
    """
    from streamkit.operate.restore.target import RestoreWish

    if to_local is (to_table is not None):
        raise typer.BadParameter("give either --to-local or --to-table NAME")
    if to_local and max_wcu is not None:
        raise typer.BadParameter("--max-wcu is for --to-table: the engine has no limit")
    loaded = app_named(app)
    wanted = RestoreWish(time_of(at, "--at").timestamp(), base, allow_loss, tell, max_wcu)
    done = with_aws(lambda aws: _restored(loaded, aws, wanted, to_table, data))
    describe = partial(_describe, data=data if to_local else None)
    print_report(done, describe, as_json=json)


async def _restored(
    app: "App", aws: "Aws", wanted: "RestoreWish", table: str | None, data: Path
) -> "Restored":
    from streamkit.aws import connect
    from streamkit.local.engine import Engine
    from streamkit.local.kept import Kept, WrongData
    from streamkit.local.transport import session_class
    from streamkit.operate.restore.restore import restore_into_engine, restore_table

    if table is not None:
        return await restore_table(app, aws, table, wanted)
    try:
        kept = Kept.open(data, Engine)
    except WrongData as error:
        raise typer.BadParameter(str(error)) from None
    async with connect(http_session=session_class(kept.engine)) as local:
        done = await restore_into_engine(app, aws, local, wanted)
    kept.store()  # only whole: what was stopped before leaves the folder as it was
    return done


def _describe(done: "Restored", data: Path | None) -> None:
    """Print what was restored: into a table, or into the engine that is kept in `data`."""
    into = f"table {done.into}" if data is None else f"the engine in {data}"
    say(f"{done.table} as of {moment(done.at)} UTC is in {into}")
    say(f"{done.read} changes read, {done.written} writes, {done.deleted} deletions")
    if done.unreadable:
        say(f"{done.unreadable} changes could not be read")
    if done.unknown:
        say(f"not known: {done.unknown}; --base gives them")
    for text in done.losses:
        say(f"lost: {text}")

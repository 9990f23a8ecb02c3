"""`streamkit parked`: list, show, redrive and discard parked changes."""

from typing import Annotated

import typer

from streamkit.cli.options import AppArgument, JsonOption

parked = typer.Typer(
    help="List, show, redrive or discard parked changes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

HandlerOption = Annotated[
    str | None, typer.Option("--handler", help="only what is parked for this handler")
]
LaneOption = Annotated[
    list[str] | None, typer.Option("--lane", help="only this lane (may be given several times)")
]
AllOption = Annotated[bool, typer.Option("--all", help="every lane")]


@parked.command("list")
def list_(
    app: AppArgument = None,
    *,
    handler: HandlerOption = None,
    lane: LaneOption = None,
    json: JsonOption = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="exit with 5 if anything is parked")
    ] = False,
) -> None:
    """List parked changes, lane by lane, first to last."""
    from streamkit.aws import Aws
    from streamkit.cli.describing import describe_parked, parked_fields
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named, exit_with, with_aws
    from streamkit.parked import held_lanes, list_parked, open_store
    from streamkit.parking import Parked
    from streamkit.redrive import choose

    loaded = app_named(app)

    async def read(aws: Aws) -> list[Parked]:
        store = await open_store(loaded, aws)
        chosen = choose(await held_lanes(store), lanes=lane or None, handler=handler)
        return await list_parked(store, chosen)

    found = with_aws(read)
    if json:
        print_json([parked_fields(change) for change in found])
    else:
        describe_parked(found)
    if found and exit_code:
        exit_with(ExitCode.PROBLEMS)


@parked.command()
def show(
    app: AppArgument = None,
    *,
    lane: Annotated[str, typer.Option("--lane", help="which lane")],
    position: Annotated[
        str | None, typer.Option("--position", help="which of its changes; the first without it")
    ] = None,
) -> None:
    """Print a parked change as JSON, with its item data."""
    from streamkit.aws import Aws
    from streamkit.cli.describing import parked_fields
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named, exit_with, with_aws
    from streamkit.decode.envelope import POSITION_DIGITS
    from streamkit.parked import open_store
    from streamkit.parked import show as read_one
    from streamkit.parking import Parked

    loaded = app_named(app)
    padded = None if position is None else position.zfill(POSITION_DIGITS)

    async def read(aws: Aws) -> Parked | None:
        return await read_one(await open_store(loaded, aws), lane, padded)

    found = with_aws(read)
    if found is None:
        typer.echo("there is no such parked change (any more)", err=True)
        exit_with(ExitCode.UNEXPECTED)
    print_json(parked_fields(found))


@parked.command()
def redrive(
    app: AppArgument = None,
    *,
    handler: HandlerOption = None,
    lane: LaneOption = None,
    every: AllOption = False,
    json: JsonOption = False,
) -> None:
    """Run the handlers of parked changes again.

    A lane is redriven in order until it is empty or a change fails again, which then stays
    first. Exits with 5 if one did.
    """
    from streamkit.cli.describing import describe_reports
    from streamkit.cli.exits import ExitCode
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named, exit_with, with_aws
    from streamkit.redrive import redrive as redrive_lanes

    _require_choice(handler, lane, every=every)
    loaded = app_named(app)
    reports = with_aws(lambda aws: redrive_lanes(loaded, aws, lanes=lane or None, handler=handler))
    if json:
        print_json([report.to_dict() for report in reports])
    else:
        describe_reports(reports, "redriven")
    if any(report.stuck for report in reports):
        exit_with(ExitCode.PROBLEMS)


@parked.command()
def discard(
    app: AppArgument = None,
    *,
    handler: HandlerOption = None,
    lane: LaneOption = None,
    every: AllOption = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="also the changes that wait behind the first one")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Drop the first parked change of lanes.

    It is not processed; what waits behind it is next then.
    """
    from streamkit.cli.describing import describe_reports
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named, with_aws
    from streamkit.redrive import discard as discard_lanes

    _require_choice(handler, lane, every=every)
    loaded = app_named(app)
    reports = with_aws(
        lambda aws: discard_lanes(loaded, aws, lanes=lane or None, handler=handler, whole=whole)
    )
    if json:
        print_json([report.to_dict() for report in reports])
    else:
        describe_reports(reports, "discarded")


def _require_choice(handler: str | None, lane: list[str] | None, *, every: bool) -> None:
    if not (handler or lane or every):
        raise typer.BadParameter("say which: --lane LANE, --handler NAME or --all")

"""`streamkit fan-outs`: list the fan-outs that are under way, and cancel one."""

from typing import Annotated

import typer

from streamkit.cli.exits import ExitCode
from streamkit.cli.options import AppArgument, JsonOption, command_group
from streamkit.cli.printing import print_json, say, say_next, tell
from streamkit.cli.running import app_named, exit_with, with_aws

fan_outs = command_group("List or cancel fan-outs that are under way.")


@fan_outs.command("list")
def list_(app: AppArgument = None, *, json: JsonOption = False) -> None:
    """List fan-outs: how far each is, and what waits behind it."""
    from streamkit.cli.describing import describe_fan_outs
    from streamkit.operate.fan_outs import list_fan_outs

    loaded = app_named(app)
    found = with_aws(lambda aws: list_fan_outs(loaded, aws))
    if json:
        print_json([fan_out.to_dict() for fan_out in found])
    elif found:
        describe_fan_outs(found)
        stuck = [one.queue for one in found if one.state == "stuck"]
        say_next(app, ("parked show", "--queue", stuck[0]) if stuck else ())
    else:
        say("no fan-out is under way")


@fan_outs.command()
def cancel(
    app: AppArgument = None,
    *,
    queue: Annotated[str, typer.Option("--queue", help="The fan-out, as `list` names it.")],
) -> None:
    """Stop a fan-out.

    Recipients that were served stay served. A later change of the same item is fanned out next.
    """
    from streamkit.operate.fan_outs import cancel_fan_out

    loaded = app_named(app)
    if not with_aws(lambda aws: cancel_fan_out(loaded, aws, queue)):
        tell("there is no such fan-out (any more); `streamkit fan-outs list` shows all")
        exit_with(ExitCode.PROBLEMS)
    say("cancelled")

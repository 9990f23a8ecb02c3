"""`streamkit aggregate`: list, verify and rebuild."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.app_command import AppCommand
from streamkit.cli.consumers import pause_named
from streamkit.cli.exits import ExitCode
from streamkit.cli.options import (
    AppArgument,
    InFlightOption,
    JsonOption,
    RequiredApp,
    command_group,
)
from streamkit.cli.printing import print_json, print_report, say, say_next, table
from streamkit.cli.running import app_named, exit_with, with_aws

if TYPE_CHECKING:
    from streamkit.aws import Aws
    from streamkit.kinds.aggregate.backfill import BackfillCounts
    from streamkit.kinds.aggregate.comparison import GroupDifference, Verification
    from streamkit.kinds.aggregate.rebuild import Rebuilt
    from streamkit.model.builds import BuildState

aggregates = command_group("List an app's aggregates; verify, rebuild or pause one.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The aggregate's class name.")]

_REASONS = 5
"""This many reasons why items are left out are shown, the most frequent ones."""
_SHOWN = 50
"""This many differences are printed as text; JSON has them all."""


@aggregates.command("list")
def list_(app: AppArgument = None, *, json: JsonOption = False) -> None:
    """List an app's aggregates with their measures and states.

    The state is one of: live; building, while a rebuild is under way; approximate; needs rebuild,
    when it has missed changes; left out some, when its last rebuild found items that do not fit;
    not started.
    """
    from streamkit.kinds.aggregate.facts import list_aggregates

    loaded = app_named(app)
    found = with_aws(lambda aws: list_aggregates(loaded, aws))
    if json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        say(f"{loaded.name} has no aggregate")
        return
    rows = [
        (
            one.name,
            f"{one.state} ({one.left_out} items)" if one.left_out else one.state,
            one.source,
            ", ".join(f"{name}: {measure}" for name, measure in one.measures.items()),
            str(one.spread),
            one.onto or "-",
        )
        for one in found
    ]
    table(("aggregate", "state", "counts", "measures", "spread", "onto"), rows)
    missing = [one.name for one in found if one.state == "needs rebuild"]
    say_next(app, ("aggregate rebuild", missing[0]) if missing else ())


@aggregates.command(cls=AppCommand)
def verify(
    app: RequiredApp,
    name: NameArgument,
    *,
    looks: Annotated[
        int, typer.Option(min=1, help="Look again at groups that differ at most this often.")
    ] = 5,
    patience: Annotated[
        float,
        typer.Option(min=0, help="Wait this many seconds each time for the workers to catch up."),
    ] = 60.0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild the aggregate if a group is wrong.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Recompute every group of an aggregate from its source, and compare.

    The application and the workers may go on: groups that differ are read again once the workers
    have caught up. It exits with 5 if a group is wrong, or if an item does not fit and is in no
    group. Groups that keep changing, or wait for workers or for a parked change, are reported as
    unsettled and are no error. With --repair it rebuilds an aggregate that has a wrong group, at
    the cost of `rebuild`, and verifies it once more.

    Costs: it reads the whole table twice with strong consistency: a read unit for each 2 KB of all
    its items. For groups that differ it reads their items twice for each look, or the table again
    if the aggregate has no members(), or more than 50 groups differ. It holds all groups in memory.
    While it waits, it reads each shard a few times a second.
    """
    from streamkit.kinds.aggregate.verification import verify_aggregate

    loaded = app_named(app)
    found = with_aws(
        lambda aws: verify_aggregate(
            loaded, aws, name, looks=looks, patience=patience, repair=repair
        )
    )
    if json:
        print_json(found.to_dict())
    else:
        _describe(found)
        say_next(app, ("aggregate rebuild", name) if found.different else ())
    if not found.ok:
        exit_with(ExitCode.PROBLEMS)


@aggregates.command(cls=AppCommand)
def rebuild(
    app: RequiredApp,
    name: NameArgument,
    *,
    segments: Annotated[
        int, typer.Option(min=1, max=4096, help="Cut the scan into this many segments.")
    ] = 16,
    at_once: Annotated[
        int, typer.Option(min=1, max=64, help="Scan this many segments at a time in this process.")
    ] = 4,
    in_flight: InFlightOption = 900.0,
    json: JsonOption = False,
) -> None:
    """Count an aggregate again, exactly, while its items are written.

    It reads all items of the table. Workers must run meanwhile. If Lambda functions run the app, it
    first waits until all invocations that began before have ended. Until it ends, the aggregate
    holds less than it will. If it is killed, the same command continues where it stopped, on any
    machine; several processes share the scan. Changes that were parked for the aggregate are
    dropped, because the scan counts their items. Items that do not fit are left out: it says how
    many, and exits with 5; `list` shows the aggregate as `left out some` until a rebuild leaves out
    none.

    Costs: it reads the whole table twice with strong consistency: a read unit for each 2 KB. Each
    item that is counted costs two write units and a read unit, and a deletion days later; its group
    is written once for up to 98 items. Until an hour after the end, on Lambda a day, each change
    costs one more read, and the first change of an item two write units.
    """
    from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
    from streamkit.worker.joined_app import app_as_run

    loaded = app_named(app)
    progress = None if json else _progress(name)

    async def work(aws: "Aws") -> "Rebuilt":
        return await rebuild_aggregate(
            await app_as_run(loaded, aws),
            aws,
            name,
            segments=segments,
            at_once=at_once,
            in_flight=in_flight,
            progress=progress,
        )

    done = with_aws(work)
    print_report(done, _describe_rebuilt, as_json=json)
    if done.left_out:
        exit_with(ExitCode.PROBLEMS)


@aggregates.command(cls=AppCommand)
def pause(app: RequiredApp, name: NameArgument) -> None:
    """Let a rebuild wait until it is resumed.

    Its processes take no step and stop reading. They wait, and so does a `rebuild` that begins
    meanwhile. Workers go on, and count changes for the rebuild; until it ends, the aggregate holds
    less than it will.
    """
    pause_named(app, f"rebuild {name}", paused=True)


@aggregates.command(cls=AppCommand)
def resume(app: RequiredApp, name: NameArgument) -> None:
    """Continue a paused rebuild.

    The processes that wait go on. If none does any more, run the same `rebuild` again.
    """
    pause_named(app, f"rebuild {name}", paused=False)


def _progress(name: str) -> "Callable[[BuildState, BackfillCounts], None]":
    """Return a function that prints a line whenever something has changed."""
    printed: list[str] = []

    def progress(state: "BuildState", counts: "BackfillCounts") -> None:
        scanned = f", {counts.items} items read here" if counts.items else ""
        line = f"{name}: {state}{scanned}"
        if line not in printed[-1:]:
            printed.append(line)
            say(line)

    return progress


def _describe_rebuilt(done: "Rebuilt") -> None:
    if done.missing:
        say(f"{done.missing} items that the aggregate adds to do not exist")
    if not done.done:
        say(f"{done.aggregate}: {done.state}; run the same command again to continue")
        return
    what = "everything else" if done.left_out else "everything"
    say(f"{done.aggregate}: {what} is counted; {done.counted} of {done.items} items here")
    if done.left_out:
        say(f"{done.left_out} items are left out: {done.aggregate} is wrong for their groups")
        for reason, times in sorted(done.reasons.items(), key=lambda one: -one[1])[:_REASONS]:
            say(f"  {times} times: {reason}")
        say("mend these items, or the code that refuses them, and rebuild it once more")


def _describe(found: "Verification") -> None:
    say(f"{found.aggregate}: {found.groups} groups, {found.items} items")
    if found.unreadable:
        say(f"{found.unreadable} items do not fit it and could not be compared")
    if found.repaired:
        say(
            f"{found.repaired} groups were wrong; the aggregate was rebuilt, and they are right now"
        )
    if found.parked:
        say(f"it lacks the parked changes of {found.parked} queues")
    if found.behind:
        say("the workers have not caught up in time; that may be the only reason for differences")
    _describe_differences("different", found.different)
    _describe_differences("unsettled", found.unsettled)
    if not (found.different or found.unsettled):
        rest = "other " if found.unreadable else ""
        say(f"every group is what its {rest}items say")


def _describe_differences(title: str, differences: "Sequence[GroupDifference]") -> None:
    if not differences:
        return
    groups = len({(one.pk, one.sk) for one in differences})
    say(f"{title}: {groups} groups")
    rows = [
        (one.pk, one.sk, one.attribute, str(one.stored), str(one.expected)) for one in differences
    ]
    table(("partition key", "sort key", "attribute", "stored", "should be"), rows, most=_SHOWN)

"""`streamkit replay`: run handlers again for the changes of some time."""

import inspect
import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.consumers import time_of
from streamkit.cli.exits import ExitCode
from streamkit.cli.options import AppArgument, JsonOption, ListenerOption, with_options
from streamkit.cli.printing import WARN, moment, print_report, say, seconds, table, tell
from streamkit.cli.running import app_named, exit_with, with_aws

if TYPE_CHECKING:
    from streamkit.operate.replay.progress import ReplayProgress
    from streamkit.operate.replay.report import HandlerReplay, Replayed


_CHOICES: dict[str, Any] = {
    "handlers": Annotated[
        list[str],
        typer.Option("--handlers", help="Run this handler (may be given several times)."),
    ],
    "keys": Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            metavar="PK",
            help="Only items with this partition key (may be given several times).",
        ),
    ],
    "revision": Annotated[
        str,
        typer.Option(
            "--revision",
            metavar="ATTRIBUTE",
            help="An attribute that never has the same value twice, such as a version:"
            " handlers may then look at the old image.",
        ),
    ],
    "allow": Annotated[
        list[str] | None,
        typer.Option("--allow", help="Let this handler run although it reads, sends or does I/O."),
    ],
    "to_end": Annotated[
        bool,
        typer.Option("--to-end", help="Replay all changes since then, in order, to their end."),
    ],
    "allow_loss": Annotated[
        bool, typer.Option("--allow-loss", help="Go on where the archive lacks changes.")
    ],
    "units": Annotated[
        float | None,
        typer.Option("--max-wcu", min=1, help="Use about so many write units a second at most."),
    ],
    "show_keys": Annotated[
        bool, typer.Option("--show-keys", help="List keys as they are, not their hashes.")
    ],
}
_DEFAULTS = {
    "handlers": inspect.Parameter.empty,
    "revision": "",
    "to_end": False,
    "allow_loss": False,
    "show_keys": False,
}
_LIST = typer.Option("--list", help="List changes that did not run, or that differ.")


@with_options(_CHOICES, _DEFAULTS, place=1)
def replay(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    since: Annotated[
        str, typer.Option("--from", help="Replay changes from this time on, with its zone.")
    ],
    until: Annotated[
        str | None, typer.Option("--until", help="Replay changes up to this time.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; count what would be written.")
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Write nothing; compare what each item's latest change makes with the table.",
        ),
    ] = False,
    show_list: Annotated[bool, _LIST] = False,
    json: JsonOption = False,
    **choices: Any,
) -> None:
    """Run handlers again for old changes, from the app's archive.

    A change runs only if its item is still as the change left it, which each transaction checks;
    the others are passed over and counted. With --to-end all changes run, in order, until nothing
    is behind the app: targets go back meanwhile, so give the command again until it gets there.
    Handlers that add up are refused: rebuild aggregates instead. It may be stopped and begun again.
    Look first with --dry-run or --shadow. Exits with 5 if it is refused, a change failed or a
    key has no change, and with 6 if the archive lacks changes of that time.
    """
    from streamkit.operate.replay.replay import replay as replay_changes
    from streamkit.operate.replay.report import ReplayWish

    if dry_run and shadow:
        raise typer.BadParameter("give either --dry-run or --shadow")
    if (until is None) != choices["to_end"]:
        raise typer.BadParameter("give either --until or --to-end")
    loaded = app_named(app, listener)
    wish = ReplayWish(
        since=time_of(since, "--from").timestamp(),
        until=math.inf if until is None else time_of(until, "--until").timestamp(),
        mode="dry-run" if dry_run else "shadow" if shadow else "write",
        tell=_tell,
        **{name: value for name, value in choices.items() if value is not None},
    )
    done = with_aws(lambda aws: replay_changes(loaded, aws, wish))
    print_report(done, partial(_describe, show_list=show_list), as_json=json)
    if done.missing or any(one.failed for one in done.handlers.values()):
        exit_with(ExitCode.PROBLEMS)


def _tell(progress: "ReplayProgress") -> None:
    text = f"shards: {progress.done} done, {progress.running} being read"
    if progress.running and progress.share is not None:
        text += f": up to {moment(progress.upto)} UTC, {progress.share:.0%} done"
    tell(text if progress.left is None else f"{text}, about {seconds(progress.left)} left")


_RAN = {"write": "ran", "dry-run": "would run", "shadow": "would run"}


def _describe(done: "Replayed", *, show_list: bool) -> None:
    say(f"{done.read} changes read; {done.mode}")
    heads = ["handler", _RAN[done.mode], "items", "no effect", "passed over", "failed"]
    heads += ["same", "different"] if done.mode == "shadow" else []
    table(tuple(heads), [_row(name, one, done.mode) for name, one in done.handlers.items()])
    for name, one in done.handlers.items():
        for reason, count in (one.passed + one.failed).most_common():
            say(f"{name}: {count} changes: {reason}")
    if done.under_way:
        say("It is not at its end: mend what fails, then give the same command again.")
    for text in done.losses:
        say(f"lost: {text}")
    for text in done.missing:
        say(f"no change of {text!r} in this time: check --keys, --from and --until", **WARN)
    if show_list and done.listed:
        heads = sorted({head for row in done.listed for head in row}, key=list(_HEADS).index)
        table(tuple(heads), [tuple(row.get(head, "-") for head in heads) for row in done.listed])


_HEADS = ("handler", "item", "key", "position", "reason", "target", "attributes")


def _row(name: str, one: "HandlerReplay", mode: str) -> tuple[str, ...]:
    compared = (str(one.same), str(one.different)) if mode == "shadow" else ()
    counts = (one.ran, one.items, one.nothing, one.passed.total(), one.failed.total())
    return (name, *map(str, counts), *compared)

"""Running a migration from the command line: its process, its signals, and its output.

The first SIGTERM or SIGINT releases the segments at the next page and ends; the second ends at
once. In both cases nothing is lost: the same command continues the migration.
"""

import json
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import anyio

from streamkit.app import App
from streamkit.aws import Aws, AwsError
from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_views import progress_line, progress_parts
from streamkit.cli.printing import clock_text, is_rich, say, tell
from streamkit.cli.running import settings
from streamkit.cli.signals import graceful
from streamkit.cli.watchdog import blocked_seconds, watch_loop
from streamkit.errors import StreamkitError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.book.state import RESTING, State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate.progress import Progress, ProgressReader
from streamkit.migrate.operate.slices import run_reported
from streamkit.migrate.operate.status import phase_of
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.progress.activity import task_group
from streamkit.progress.garbage import collect_seldom

_SHOW_SECONDS = 2.0
_LINE_SECONDS = 10.0
_FORWARD = frozenset({"ready", "soaking", "closing", "done"})
_GOALS: Final = {
    "apply": _FORWARD,
    "switch": _FORWARD - {"ready"},
    "contract": frozenset({"closing", "done"}),
    "rollback": frozenset({"rolled back"}),
}
"""The phases to which each command that decides leads; `join` does what the table says."""
_OVERRULE = ("rollback", "begin")


@dataclass(frozen=True, slots=True)
class Manner:
    """How a process runs a migration: segments at once, items a page, how long, what it shows."""

    at_once: int
    page: int
    stay: bool
    json: bool


async def join_to_rest(
    app: App,
    aws: Aws,
    number: str,
    manner: Mapping[str, Any],
    before: State | None = None,
    asked: str = "",
) -> ExitCode:
    """Run a migration until it waits for people or is done, or until a signal; return the code.

    `manner` are the options `JOIN`. `before` is its state after the command that was `asked`;
    without it, the table says what it is.

    Raises:
        ConfigurationError: the table, the permissions or the definition are wrong.
    """
    before = before or await (await open_book(app, aws)).read(number)
    state = await _run_to_rest(app, aws, migration_of(app, number), Manner(**manner))
    code = exit_code_of(state, before, asked)
    if code is not ExitCode.OK and asked and (said := overruled(state, before)):
        tell(said)
    if code in (ExitCode.PAUSED, ExitCode.WAITS_FOR_PEOPLE):
        tell(next_step(state))
    return code


async def _run_to_rest(app: App, aws: Aws, migration: Migration, manner: Manner) -> State:
    collect_seldom()
    chosen, reader = settings(), ProgressReader(app, aws)
    async with task_group() as group:
        group.start_soon(_show, reader, migration.id, manner)
        pace = PassPace(segments=manner.at_once, page=manner.page)
        runner = Runner(app, aws, migration, chosen, pace=pace)
        with watch_loop(blocked_seconds(chosen)), graceful(runner.stop):
            state = await run_reported(runner, stay=manner.stay)
        group.cancel_scope.cancel()
    final = await reader.read(migration.id)
    say(json.dumps(final.to_dict()) if manner.json else progress_line(final))
    return state


def exit_code_of(state: State, before: State | None = None, asked: str = "") -> ExitCode:
    """Return the exit code of a command that ran a migration.

    Args:
        state: its state at the end.
        before: its state at the start. A `contract` that is given up meanwhile is a failure; to a
            process that joins later the migration soaks, as it did before.
        asked: the command, if it is one that decides; if another command led elsewhere before it
            came to what it was asked for, that is a failure, too.
    """
    refused = before is not None and before.phase == "contracting" and state.phase == "soaking"
    if state.phase == "blocked" or refused:
        return ExitCode.WAITS_FOR_PEOPLE
    if state.phase in RESTING:
        came = asked not in _GOALS or _came_to(_GOALS[asked], state, before)
        return ExitCode.OK if came else ExitCode.WAITS_FOR_PEOPLE
    if state.paused:
        return ExitCode.PAUSED
    # In `closing` stubs are watched for 24 hours: until then a supervisor need not join again.
    return ExitCode.OK if state.phase == "closing" else ExitCode.INTERRUPTED


def _came_to(goal: AbstractSet[str], state: State, before: State | None) -> bool:
    """Return whether a migration has come to a goal; it may have left it again since."""
    since = state.updated if before is None else before.updated
    seen = {entry.what for entry in state.audit if entry.at >= since}
    return bool(goal & {state.phase, "" if before is None else before.phase, *seen})


def overruled(state: State, before: State) -> str | None:
    """Return what another command has made of a migration since `before`, if one has."""
    new = [entry for entry in state.commands if entry not in before.audit]
    last = next((one for one in reversed(new) if one.what.startswith(_OVERRULE)), None)
    if last is None:
        return None
    return (
        f"migration {state.id} is {phase_of(state)}, because {last.by} gave the command"
        f" `{last.what}` meanwhile; `streamkit migrate history` shows all of them"
    )


def next_step(state: State) -> str:
    """Return what people do next with a migration that waits for them."""
    if state.phase == "soaking":
        return "mend what `streamkit migrate errors list` shows; then run `contract` once more"
    if state.phase == "blocked":
        return (
            "mend or waive what `streamkit migrate errors list` shows; then run `streamkit migrate"
            " resume`, and `join`"
        )
    if state.phase == "following" and state.note:
        return (
            "roll the new code back; then run `streamkit migrate rollback` with --new-code none, or"
            " `resume` and `join` a day after its last write"
        )
    if state.phase == "rolled back":
        return "it was rolled back; `streamkit migrate begin --again` begins it once more"
    if state.phase in RESTING:
        return f"it is {state.phase}; give the command again if you still want it"
    return "to continue, run `streamkit migrate resume`, then `join`"


async def _show(reader: ProgressReader, migration: str, manner: Manner) -> None:
    """Show the progress until cancelled."""
    every = _LINE_SECONDS if manner.json or not is_rich() else _SHOW_SECONDS
    await show(_looks(reader, migration, every), as_json=manner.json)


async def _looks(reader: ProgressReader, migration: str, every: float) -> AsyncIterator[Progress]:
    """Read the progress every `every` seconds; the stream less often, as it allows few readers."""
    lag: float | None = None
    rounds = max(1, round(_LINE_SECONDS / every))
    for number in count():
        await anyio.sleep(every)
        asked = number % rounds == 0
        try:
            now = await reader.read(migration, lag=asked)
        except (*AwsError, StreamkitError):
            continue  # the work goes on; only this look failed
        lag = now.lag if asked else lag
        yield replace(now, lag=lag)


async def show(looks: AsyncIterator[Progress], *, as_json: bool) -> None:
    """Show each progress: in one place on a terminal, else as a line."""
    if not as_json and is_rich():
        await _show_live(looks)
        return
    async for now in looks:
        if as_json:
            say(json.dumps(now.to_dict()))
        else:
            say(f"{clock_text()} {progress_line(now)}")


async def _show_live(looks: AsyncIterator[Progress]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        async for now in looks:
            lines = Text("\n".join(progress_parts(now)))
            bar = ProgressBar(total=1.0, completed=now.share or 0.0, width=60)
            live.update(Group(lines, bar), refresh=True)

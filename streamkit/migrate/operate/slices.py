"""Run a migration for some seconds at a time, where a process may not live longer.

In: an app, a migration that was begun, and seconds. Out: a `Slice`: its state then, and whether
there is more to do. Unfinished work continues in the next slice, on any machine; any number may run
at once. On failure: as a `Runner`; the next slice tries again.
"""

from dataclasses import dataclass

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.state import RESTING, State
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.run.aggregates import run_aggregate
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.model.json_fields import JsonFields
from streamkit.progress.activity import task_group
from streamkit.progress.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Slice(JsonFields):
    """The state of a migration after a slice.

    `done`: nothing happens by itself any more; `phase` says what is reached, `blocked` that people
    must decide. One that is `paused` waits. `segments_left` are those of the pass. It `waits` while
    stubs are watched, for 24 hours after the last write of old code: look again in a quarter of an
    hour.
    """

    migration: str
    phase: str
    done: bool
    paused: bool
    blocked: bool
    segments_left: int
    errors: int
    waits: bool = False


async def run_slice(
    app: App, aws: Aws, migration: Migration, seconds: float, *, clock: Clock | None = None
) -> Slice:
    """Run a migration until nothing happens by itself; return within `seconds`.

    It does what the table says: a migration that is paused, or rests, is left alone.

    Raises:
        NotBegun: there is nothing to work on.
        ConfigurationError: the table, the permissions or the definition are wrong.
    """
    clock = clock or SystemClock()
    runner = Runner(app, aws, migration, clock=clock)
    late, ended = anyio.Event(), False
    with anyio.move_on_after(seconds):  # in case the orderly end takes too long
        async with task_group() as group:
            group.start_soon(_stop_after, 0.85 * seconds, runner, late)
            await run_reported(runner)
            ended = not late.is_set()
            group.cancel_scope.cancel()
    found = await ProgressReader(app, aws, clock).read(migration.id)
    return Slice(
        migration.id,
        found.phase,
        found.phase in RESTING,
        found.desired == "pause",
        found.phase == "blocked",
        found.segments - found.finished,
        found.open_errors,
        ended and found.phase == "closing" and found.desired == "run",
    )


async def _stop_after(seconds: float, runner: Runner, late: anyio.Event) -> None:
    await anyio.sleep(seconds)
    late.set()
    runner.stop()


async def run_reported(runner: Runner, *, stay: bool = False) -> State:
    """Run a migration of any mode, and report meanwhile; `runner.stop` ends it.

    Raises:
        ConfigurationError: the table, the permissions or the definition are wrong.
    """
    if runner.migration.mode == "aggregate":
        return await run_aggregate(
            runner.app,
            runner.aws,
            runner.migration,
            at_once=runner.pace.segments,
            stopping=runner.stopping,
            clock=runner.clock,
        )
    async with task_group() as group:
        group.start_soon(Reporter(runner).run)
        state = await runner.run(stay=stay)
        group.cancel_scope.cancel()
    return state

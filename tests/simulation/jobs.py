"""The third host: a migration job works beside the host of an app's handlers, on all their items.

In: an app whose migrations are declared, and what makes the host of its handlers. Out: a host for
`trial` in which every migration is run by invocations of `process_slice`, which are killed, too.
Those that are said to be last begin when the traffic is over, so that what they leave can be told.
"""

from functools import partial

import anyio

from streamkit.aws_lambda.migration import process_slice
from streamkit.migrate.operate import commands
from streamkit.progress.activity import task_group
from streamkit.testing.crew import Mortal
from streamkit.testing.world import CrashPoint

PAUSE_SECONDS = 5.0
INVOCATIONS_MAX = 400


class Jobs:
    """Runs migrations one after the other, each slice in a process of its own."""

    def __init__(self, base, seconds, last, app, world, met, faults):
        self._base = base(app, world, met, faults)
        self._app, self._world, self._met, self._faults = app, world, met, faults
        self._begin, self._slice = commands.begin, process_slice
        self._seconds, self._last = seconds, last
        self._traffic_is_over, self._done = anyio.Event(), anyio.Event()
        self._process, self._closed = Mortal("job"), False

    def start(self, group, workers):
        self._base.start(group, workers)
        group.start_soon(self._migrate)

    def crash(self, rng):
        """Kill an invocation of the job at one of its next calls; what runs handlers, likewise."""
        moment = rng.choice(("before", "after"))
        self._process.crash = CrashPoint(self._process.calls + rng.randrange(1, 40), moment)
        self._base.crash(rng)

    async def settle(self):
        self._traffic_is_over.set()
        await self._done.wait()
        await self._base.settle()

    def close(self):
        self._closed = True
        self._process.kill()
        self._base.close()

    async def _migrate(self):
        for number in sorted(self._app.migrations):
            if number in self._last:
                await self._traffic_is_over.wait()
            self._choose(number)
            async with self._world.clients() as aws:
                migration, clock = self._app.migrations[number], self._world.clock
                await self._begin(self._app, aws, migration, segments=2, clock=clock)
            for _ in range(INVOCATIONS_MAX):
                found = await self._invoke(number)
                if found is not None and found.done:
                    assert found.phase in ("done", "ready"), found
                    break
                await anyio.sleep(PAUSE_SECONDS)
            else:
                raise AssertionError(f"migration {number} does not come to its end: {found}")
            self._met["migrated"] += 1
        self._done.set()

    def _choose(self, number):
        """Choose what begins a migration, and runs its next slice."""

    async def _invoke(self, number):
        """Run a slice; return where the migration is then, None if the process was killed."""
        self._choose(number)
        self._process = process = Mortal("job", faults=self._faults)
        found = []

        async def one():
            async with self._world.clients(process) as aws:
                clock, event = self._world.clock_of(process), {"migration": number}
                found.append(await self._slice(self._app, aws, event, self._seconds, clock=clock))

        async with task_group() as group:
            group.start_soon(_cancel_at, process.dead, group.cancel_scope)
            await one()
            group.cancel_scope.cancel()
        self._met["killed job"] += process.dead.is_set() and not self._closed
        return found[0] if found else None


async def _cancel_at(event, scope):
    await event.wait()
    scope.cancel()


def jobs(base, seconds, last=()):
    """Return what makes the host of a trial.

    Args:
        base: makes the host of the app's handlers.
        seconds: that an invocation may take.
        last: the numbers of migrations that begin when the traffic is over.
    """
    return partial(Jobs, base, seconds, last)

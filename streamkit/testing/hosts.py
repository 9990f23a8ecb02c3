"""Hosts: in a trial, Lambda functions run an app in place of workers.

    trial(app, traffic, host=Functions)

Functions have an event source mapping, which repeats, halves and abandons batches; several
execution environments, which may be killed at any call; and a schedule for parked queues.
Another host is a class with the methods of `crew.Host`.

In: an app and a world. Out: functions that live, die, and come to rest. On failure: `settle` ends
with an error that a function raises again and again, or when a function never rests.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.aws_lambda.environment import Environment, open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.parked.queues import parked_queues
from streamkit.testing.crew import Mortal
from streamkit.testing.faults import Faults
from streamkit.testing.mapping import Event, EventSourceMapping, Habits
from streamkit.testing.world import World

T = TypeVar("T")

_POLL_SECONDS = 1.0
_SCHEDULE_SECONDS = 60.0
_LASTS_SECONDS = 60.0
"""An invocation may take this long."""
_QUIET_ROUNDS = 2
_FAILURES_MAX = 50
"""After this many failed invocations in a row, none of them killed, the error counts as lasting."""
_SETTLE_SECONDS = 6 * 3600.0
_SOON_SECONDS = 3600.0
"""The longest pause between two tries, and the largest difference between the clocks of two
processes.
"""


class Functions:
    """Lambda functions: for each consumer one function, with its mapping and its schedule."""

    def __init__(
        self,
        app: App,
        world: World,
        met: Counter[str],
        faults: Faults,
        habits: Habits | None = None,
    ) -> None:
        self._functions = [
            Function(one, world, met, faults, habits or Habits(parallel=3))
            for one in (app, *app.listeners.values())
        ]

    def start(self, group: anyio.abc.TaskGroup, workers: int) -> None:  # noqa: ARG002
        """Enable the mappings; Lambda itself decides how many environments there are."""
        for function in self._functions:
            group.start_soon(function.live)

    def crash(self, rng: random.Random) -> None:
        """Kill an environment at one of its next calls, or in its next commit."""
        rng.choice(self._functions).crash(rng)

    async def settle(self) -> None:
        """Wait until everything is delivered, and no parked queue is tried again soon."""
        for function in self._functions:
            function.quiet = 0
        with anyio.fail_after(_SETTLE_SECONDS):
            while True:
                await anyio.sleep(_POLL_SECONDS)
                if all([await function.rests() for function in self._functions]):
                    return

    def close(self) -> None:
        """Disable the mappings and kill what still runs."""
        for function in self._functions:
            function.close()


@dataclass
class Function:
    """One function with its mapping; `quiet` counts the last rounds without any record."""

    app: App
    world: World
    met: Counter[str]
    faults: Faults
    habits: Habits
    quiet: int = 0
    closed: bool = False
    _failures: int = 0
    _failure: Exception | None = None
    _free: list["Instance"] = field(default_factory=list)
    _busy: list["Instance"] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the mapping; it starts at the oldest record."""
        self._rng = random.Random(self.world.rng.random())
        self.mapping = EventSourceMapping(
            self.world, self.app.table, self.invoke, self._rng, self.habits
        )

    async def live(self) -> None:
        """Deliver new records until `close`."""
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._go_on_with_queues)
            while not self.closed:
                before = self.mapping.invocations
                await self.mapping.run()
                self.quiet = self.quiet + 1 if self.mapping.invocations == before else 0
                await anyio.sleep(_POLL_SECONDS)

    async def invoke(self, event: Event) -> dict[str, Any]:
        """Invoke the function, as the mapping does."""
        try:
            response = await self._within(lambda e: process_batch(e, event, _LASTS_SECONDS))
        except Exception as error:
            if not isinstance(error, Killed):
                self._failures, self._failure = self._failures + 1, error
                await anyio.sleep(_POLL_SECONDS)
            raise
        self._failures = 0
        return response

    async def maintain(self) -> dict[str, int]:
        """Invoke the maintenance function, as its schedule does."""
        return await self._within(lambda environment: maintain(environment, _LASTS_SECONDS))

    def crash(self, rng: random.Random) -> None:
        """Kill an environment at one of its next calls, or in its next commit."""
        instances = [*self._busy, *self._free]
        if not instances:
            return
        rng.choice(instances).process.doom(rng, 20)

    async def rests(self) -> bool:
        """Return whether everything is delivered, and no parked queue is tried again soon.

        Raises:
            Exception: the error that the function raises again and again.
        """
        if self._failure is not None and self._failures > _FAILURES_MAX:
            raise self._failure
        try:
            return self.quiet >= _QUIET_ROUNDS and not await self._within(self._waits_for_a_try)
        except Killed:  # the environment that was asked has died; the next round asks another one
            return False

    def close(self) -> None:
        """Kill all processes of the function, so that no call is made any more."""
        self.closed = True
        for instance in (*self._free, *self._busy):
            instance.process.kill()

    async def _go_on_with_queues(self) -> None:
        while not self.closed:
            await anyio.sleep(_SCHEDULE_SECONDS)
            try:
                counts = await self.maintain()
            except Killed:
                continue
            self.quiet = 0 if counts["done"] else self.quiet

    async def _waits_for_a_try(self, environment: Environment) -> bool:
        """Return whether a parked queue is tried again soon, by the clock of any process."""
        soon = self.world.clock.time() + _SOON_SECONDS
        queues = await parked_queues(environment.store)
        return any(not queue.stuck and queue.due <= soon for queue in queues)

    async def _within(self, work: Callable[[Environment], Awaitable[T]]) -> T:
        """Run work in an environment that is free, or in a new one."""
        instance = self._free.pop() if self._free else await self._start()
        self._busy.append(instance)
        try:
            result = await instance.run(work)
        finally:
            self._busy.remove(instance)
            if instance.process.dead.is_set():
                self.met["crash"] += not self.closed
            else:
                self._free.append(instance)
        return result

    async def _start(self) -> "Instance":
        instance = Instance(self, Mortal("function", faults=self.faults))
        self._group.start_soon(instance.live)
        await instance.opened.wait()
        return instance


class Killed(RuntimeError):
    """The function was killed and has reported nothing."""


@dataclass
class Instance:
    """One execution environment, which lasts until its process dies."""

    function: Function
    process: Mortal
    opened: anyio.Event = field(default_factory=anyio.Event)
    _environment: Environment | None = None

    async def live(self) -> None:
        """Hold the environment open. Once the process is dead, its clean-up has no effect."""
        world = self.function.world
        try:
            await self._unless_dead(self._hold(world))
        finally:
            self.process.kill()
            self.opened.set()

    async def run(self, work: Callable[[Environment], Awaitable[T]]) -> T:
        """Run work in the environment.

        Raises:
            Killed: the process died during the work.
        """
        results: list[T] = []

        async def one() -> None:
            if self._environment is not None:
                results.append(await work(self._environment))

        await self._unless_dead(one())
        if not results:
            raise Killed("the function was killed")
        return results[0]

    async def _hold(self, world: World) -> None:
        async with open_environment(
            self.function.app,
            connect_with=lambda: world.clients(self.process),
            clock=world.clock_of(self.process),
            rng=random.Random(world.rng.random()),
        ) as self._environment:
            self.opened.set()
            await self.process.dead.wait()

    async def _unless_dead(self, work: Awaitable[None]) -> None:
        failure: Exception | None = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_at, self.process.dead, scope)
                try:
                    await work
                except Exception as error:  # noqa: BLE001 - raised below, without the group
                    failure = error
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def _cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


__all__ = ["Function", "Functions", "Instance", "Killed"]

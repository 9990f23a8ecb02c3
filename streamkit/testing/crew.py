"""Crews: the workers of a run in virtual time. A worker that dies is replaced.

In: an app and a world. Out: workers that live, die at a call or in a commit, and come to rest. On
failure: `settle` raises `TimeoutError` if they do not rest; a worker's own error ends the run.
"""

import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.local.transport import Call, Response
from streamkit.settings import Settings
from streamkit.testing.faults import Faults
from streamkit.testing.world import CrashPoint, Process, World

Moment = Literal["before", "after"]
"""Whether the call that a worker dies in reaches the table."""

_SETTINGS = Settings(
    poll_ceiling=5.0, heartbeat=10.0, lease=30.0, list_interval=20.0, look_interval=20.0
)
_PAGES = 3
_SETTLE_SECONDS = 6 * 3600.0


@dataclass
class Mortal(Process):
    """A process that may be told to die during its next commit."""

    in_commit: Moment | None = None

    def doom(self, rng: random.Random, calls: int) -> None:
        """Tell it to die at one of its next calls, or in its next commit."""
        moment: Moment = rng.choice(("before", "after"))
        if rng.random() < 0.5:
            self.in_commit = moment
        else:
            self.crash = CrashPoint(self.calls + rng.randrange(1, calls), moment)

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Stand between this process's clients and the engine."""
        if self.in_commit is not None and call.operation == "TransactWriteItems":
            self.crash = CrashPoint(self.calls, self.in_commit)
        return await super().intercept(call, apply)


class Host(Protocol):
    """A host runs the consumers of an app in a trial."""

    def start(self, group: anyio.abc.TaskGroup, workers: int) -> None:
        """Start, with this number of workers if the host has workers; the group ends them."""

    def crash(self, rng: random.Random) -> None:
        """Kill a process at one of its calls, which is applied or not."""

    async def settle(self) -> None:
        """Wait until there is nothing to do.

        Raises:
            TimeoutError: after hours of virtual time there still is something to do.
        """

    def close(self) -> None:
        """Kill every process, so that no call is made any more; the table stays as it is."""


MakeHost = Callable[[App, World, Counter[str], Faults], Host]
"""A function that makes the host of an app: `TrialCrew`, `hosts.Functions`, or `partial` of one."""


class TrialCrew:
    """The workers of a trial; a worker that dies is replaced."""

    def __init__(self, app: App, world: World, met: Counter[str], faults: Faults) -> None:
        self._app, self._world, self._met, self._faults = app, world, met, faults
        self._alive: dict[str, tuple[Mortal, list[Any]]] = {}
        self._names = 0
        self._closed = False
        world.engine.observers.append(self._note)
        self._committed = False

    def start(self, group: anyio.abc.TaskGroup, workers: int) -> None:
        """Start this number of workers; the group ends them."""
        for _ in range(workers):
            group.start_soon(self._live_for_ever)

    def crash(self, rng: random.Random) -> None:
        """Kill one of the workers at a call or in a commit, which is applied or not."""
        if not self._alive:
            return
        process, _ = rng.choice(list(self._alive.values()))
        process.doom(rng, 40)

    def close(self) -> None:
        """Kill every process, so that no call is made any more; the table stays as it is."""
        self._closed = True
        for process, _ in self._alive.values():
            process.kill()

    async def settle(self) -> None:
        """Wait until all workers have nothing to do.

        Raises:
            TimeoutError: after hours of virtual time they still have something to do.
        """
        self._count_anew()
        with anyio.fail_after(_SETTLE_SECONDS):
            while True:
                await anyio.sleep(1.0)
                idle = [w.is_idle(_PAGES) for _, found in self._alive.values() for w in found]
                if len(idle) < len(self._alive) or not (idle and all(idle)):
                    continue
                if not self._committed:
                    return
                # Committed items come back as records, perhaps through a shard that was quiet
                # before.
                self._count_anew()

    def _count_anew(self) -> None:
        self._committed = False
        for _, workers in self._alive.values():
            for worker in workers:
                worker.count_anew()

    async def _live_for_ever(self) -> None:
        while not self._closed:
            self._names += 1
            process = Mortal(f"worker {self._names}", faults=self._faults)
            found: list[Any] = []
            self._alive[process.name] = process, found
            lived = await self._world.run_worker(
                self._app,
                process=process,
                settings=_SETTINGS,
                until_idle=False,
                started=_keep_in(found),
            )
            del self._alive[process.name]
            self._met["crash"] += not (lived or self._closed)

    def _note(self, call: Any) -> None:
        self._committed = self._committed or call.operation == "TransactWriteItems"


def _keep_in(found: list[Any]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def started(worker: Any) -> None:
        found.append(worker)

    return started

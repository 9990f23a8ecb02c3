"""Stops: processes that are killed or stand still at one of their calls, and go on as zombies.

A process that stands still holds what it has read and what it was about to write. Others take its
place meanwhile; then it thaws, and runs the rest of its code on what it still believes:

    lease   after its lease: who comes second is at work
    phase   with the next step that somebody takes of what both do: a write of the consumer's item,
            or of a migration's; at the latest when the one that took its place is done
    end     when all is done, and nobody looks any more

In: a world, and what stood still. Out: it goes on in its time. On failure: an error that a zombie
ends with and that is not streamkit's own is raised.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from streamkit.aws import Aws
from streamkit.errors import StreamkitError
from streamkit.testing.sightings import Sighting
from streamkit.testing.world import CrashPoint, Process, World

T = TypeVar("T")

Moment = Literal["before", "after"]
"""Whether the engine applies the call that a process stops at: after it has stopped, or before."""
Part = Literal["worker", "operation"]
"""Who is stopped: the harness's worker, or what `Harness.operate` runs beside it."""
Thaw = Literal["lease", "phase", "end"]
"""When a process that stands still goes on, see above."""

THAWS: tuple[Thaw, ...] = get_args(Thaw)
_PHASES = frozenset({"consumer", "migration"})
"""The kinds of control items whose writes are steps."""


@dataclass
class Zombie:
    """A process that stood still; `workers` are those that run in it, if it is one of these."""

    part: Part
    process: Process
    task: "asyncio.Task[Any]"
    thaw: Thaw
    workers: list[Any] = field(default_factory=list)

    def is_busy(self, pages: int) -> bool:
        """Return whether it has thawed, and has something to do."""
        runs = self.process.frozen is None and not self.task.done()
        return runs and not all(worker.is_idle(pages) for worker in self.workers)


class Zombies:
    """Those that stood still in one world. `lease_seconds` is what a lease counts for there."""

    def __init__(self, world: World, lease_seconds: float) -> None:
        self._world, self._lease_seconds = world, lease_seconds
        self._all: list[Zombie] = []

    def add(self, zombie: Zombie) -> None:
        """Let somebody stand still until its time has come."""
        self._all.append(zombie)
        if zombie.thaw == "lease":
            loop = asyncio.get_running_loop()
            loop.call_later(self._lease_seconds, zombie.process.thaw)
        if zombie.thaw == "phase" and self._see not in self._world.watchers:
            self._world.watchers.append(self._see)

    def _see(self, sighting: Sighting) -> None:
        if any(write.kind in _PHASES for write in sighting.writes):
            for zombie in self._all:
                if zombie.thaw == "phase" and zombie.process.name != sighting.actor:
                    zombie.process.thaw()

    def thaw(self, *when: Thaw) -> None:
        """Let those go on whose time this is; without one, all."""
        for zombie in self._all:
            if not when or zombie.thaw in when:
                zombie.process.thaw()

    def count_anew(self) -> None:
        """Let only pages that those who have thawed read from now on count for `is_busy`."""
        for zombie in self._all:
            for worker in zombie.workers:
                worker.count_anew()

    def is_busy(self, pages: int) -> bool:
        """Return whether one of them has thawed, and has something to do."""
        return any(zombie.is_busy(pages) for zombie in self._all)

    async def wait(self, seconds: float) -> None:
        """Wait until the operations among them have ended.

        Raises:
            TimeoutError: one has not within these seconds.
            Exception: what a zombie ended with, if that is not one of streamkit's errors.
        """
        operations = {zombie.task for zombie in self._all if zombie.part == "operation"}
        if operations:
            _, going_on = await asyncio.wait(operations, timeout=seconds)
            if going_on:
                raise TimeoutError(f"what stood still goes on after {seconds:.0f} seconds")
        for zombie in self._all:
            if zombie.task.done() and not zombie.process.dead.is_set():
                with suppress(StreamkitError):  # it was refused, and says so
                    zombie.task.result()

    def close(self) -> list["asyncio.Task[Any]"]:
        """Kill them all; return what has to be waited for."""
        for zombie in self._all:
            zombie.process.kill()
            zombie.task.cancel()
        return [zombie.task for zombie in self._all]


class Operations:
    """Runs operations beside a worker, each in a process with clients of its own.

    One of their calls, counted over all of them, may be the last of its process, or the last before
    it stands still. Then the same operation is begun again in another process, as a person does.
    """

    def __init__(self, world: World, zombies: Zombies) -> None:
        self._world, self._zombies = world, zombies
        self._all: list[Process] = []
        self._point: CrashPoint | None = None
        self._thaw: Thaw = "end"

    @property
    def calls(self) -> int:
        """How many calls they have made."""
        return sum(process.calls for process in self._all)

    @property
    def writes(self) -> list[int]:
        """Which of their calls may have written something, by number."""
        found: list[int] = []
        before = 0
        for process in self._all:
            found += [before + number for number in process.writes]
            before += process.calls
        return found

    def stop_at(self, point: CrashPoint, thaw: Thaw) -> None:
        """Let whichever of them makes this call stop there."""
        self._point, self._thaw = point, thaw

    async def run(self, work: Callable[[Aws], Awaitable[T]]) -> T:
        """Run one, again if its process stops; return what it does.

        Raises:
            Exception: what it raises.
        """
        process = Process("operation", self._point_from(self.calls))
        self._all.append(process)
        task = asyncio.ensure_future(self._within(process, work))
        stopped = asyncio.ensure_future(process.stopped.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            return task.result()
        self._zombies.add(Zombie("operation", process, task, self._thaw))
        try:
            return await self._within(Process("operation again"), work)
        finally:
            self._zombies.thaw("phase")

    def _point_from(self, calls: int) -> CrashPoint | None:
        point = self._point
        if point is None or point.call < calls:
            return None
        return CrashPoint(point.call - calls, point.moment, freezes=point.freezes)

    async def _within(self, process: Process, work: Callable[[Aws], Awaitable[T]]) -> T:
        async with self._world.clients(process) as aws:
            return await work(aws)


__all__ = ["THAWS", "Moment", "Operations", "Part", "Thaw", "Zombie", "Zombies"]

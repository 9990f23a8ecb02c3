"""Stops: processes are killed or frozen at one of their calls; frozen processes go on as zombies.

A frozen process holds what it has read and what it was about to write. Another process takes its
place meanwhile. Then the first one thaws, and runs the rest of its code on what it still believes:

    lease   after its lease, while its successor works
    phase   with the next step of the work that both do: a write of the consumer's item, of a
            migration's or of a verification's by another process; at the latest when the
            successor is done
    end     when all is done

In: a world, and the frozen processes. Out: they go on at their time. On failure: a zombie's error
is raised if it is not one of streamkit's own errors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

import anyio
import msgspec

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.entity import Entity
from streamkit.errors import StreamkitError
from streamkit.local.iterators import ShardIterator
from streamkit.local.transport import Call, Response
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.stream.decode.envelope import POSITION_DIGITS
from streamkit.table import Table
from streamkit.testing.loop import VirtualClock
from streamkit.testing.sightings import SeenCall
from streamkit.testing.world import CrashPoint, Process, World

T = TypeVar("T")

Moment = Literal["before", "after"]
"""Whether the engine applies the call that a process stops at: after it has stopped, or before."""
Part = Literal["worker", "operation"]
"""The process that is stopped: the harness's worker, or what `Harness.operate` runs beside it."""
Thaw = Literal["lease", "phase", "end"]
"""When a frozen process thaws, see above."""

THAWS: tuple[Thaw, ...] = get_args(Thaw)
_PHASES = frozenset({"consumer", "migration", "verification"})
"""Writes of these kinds of control items are steps."""


@dataclass(frozen=True)
class DeathInCommit:
    """Stands between a process's clients and the engine, and kills it before its next commit.

    A commit that finishes no change of an entity with handlers is let through.
    """

    process: Process
    app: App
    table: Table
    _read: dict[str, int] = field(default_factory=dict)

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Pass a call on, or kill the process."""
        if call.operation == "TransactWriteItems":
            written = _written(call)
            if _has_results(written) or any(map(self._finishes, written)):
                self.process.kill()
                await anyio.sleep_forever()
        response = apply()
        if call.operation == "GetRecords":
            self._note(call, response)
        return response

    def _note(self, call: Call, response: Response) -> None:
        """Note the first change of each shard that a handler may run for."""
        iterator = msgspec.json.decode(call.payload)["ShardIterator"]
        shard = ShardIterator.parse(iterator).shard_id
        for record in msgspec.json.decode(response.body).get("Records", ()):
            change = record["dynamodb"]
            item = change.get("NewImage") or change.get("OldImage") or change["Keys"]
            if any(self.table.is_of(entity, item) for entity in self._heard()):
                self._read.setdefault(shard, int(change["SequenceNumber"]))

    def _heard(self) -> set[type[Entity]]:
        apps = (self.app, *self.app.listeners.values())
        return {handler.entity for app in apps for handler in app.handlers}

    def _finishes(self, written: dict[str, Any]) -> bool:
        """Return whether a cursor gets a position behind a change that was read."""
        key = str(written.get("Key"))
        values = written.get("ExpressionAttributeValues", {}).values()
        texts = [value["S"] for value in values if "S" in value]
        found = [int(t) for t in texts if len(t) == POSITION_DIGITS and t.isdecimal()]
        return any(shard in key and max(found, default=0) >= n for shard, n in self._read.items())


def _written(call: Call) -> list[dict[str, Any]]:
    entries = msgspec.json.decode(call.payload)["TransactItems"]
    return [one for entry in entries for verb, one in entry.items() if verb != "ConditionCheck"]


def _has_results(written: Iterable[dict[str, Any]]) -> bool:
    """Return whether a transaction has results of handlers, beside streamkit's own progress."""
    texts = [str(one.get("Key") or one["Item"]) for one in written]
    return any(CONTROL_PREFIX not in text or "#done#" in text or "#lane#" in text for text in texts)


class Succession:
    """Processes of one name that follow each other; their calls are counted as those of one.

    One of them may be told to stop at a call; a process that follows it is not stopped again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[Process] = []
        self._point: CrashPoint | None = None

    @property
    def calls(self) -> int:
        """Return how many calls the processes have made."""
        return sum(process.calls for process in self._all)

    @property
    def writes(self) -> list[int]:
        """Return the numbers of the calls that may have written something."""
        found: list[int] = []
        before = 0
        for process in self._all:
            found += [before + number for number in process.writes]
            before += process.calls
        return found

    def begin(self, clock: VirtualClock | None = None) -> Process:
        """Return the next process, which stops at a call if none before it has made that call."""
        process = Process(self._name, clock=clock)
        process.crash = self._point_of(process)
        self._all.append(process)
        return process

    def stop_at(self, point: CrashPoint, running: Process | None = None) -> None:
        """Stop the process that makes a call, counted from now; it may begin later."""
        self._point = replace(point, call=self.calls + point.call)
        if running is not None:
            running.crash = self._point_of(running)

    def _point_of(self, process: Process) -> CrashPoint | None:
        before = self.calls - process.calls
        if self._point is None or self._point.call < before:
            return None
        return replace(self._point, call=self._point.call - before)


@dataclass
class Zombie:
    """A frozen process; `workers` are the workers that run in it, if it runs any."""

    part: Part
    process: Process
    task: "asyncio.Task[Any]"
    thaw: Thaw
    workers: list[Any] = field(default_factory=list)

    def is_busy(self, pages: int) -> bool:
        """Return whether the process has thawed and has something to do."""
        runs = self.process.frozen is None and not self.task.done()
        return runs and not all(worker.is_idle(pages) for worker in self.workers)


class Zombies:
    """The frozen processes of one world, in which a lease lasts `lease_seconds`."""

    def __init__(self, world: World, lease_seconds: float) -> None:
        self._world, self._lease_seconds = world, lease_seconds
        self._all: list[Zombie] = []

    def add(self, zombie: Zombie) -> None:
        """Keep a process frozen until its time has come."""
        self._all.append(zombie)
        if zombie.thaw == "lease":
            loop = asyncio.get_running_loop()
            loop.call_later(self._lease_seconds, zombie.process.thaw)
        if zombie.thaw == "phase" and self._see not in self._world.watchers:
            self._world.watchers.append(self._see)

    def _see(self, sighting: SeenCall) -> None:
        if any(write.kind in _PHASES for write in sighting.writes):
            for zombie in self._all:
                if zombie.thaw == "phase" and zombie.process.name != sighting.actor:
                    zombie.process.thaw()

    def thaw(self, *when: Thaw) -> None:
        """Thaw the processes that wait for one of these times; without arguments, all."""
        for zombie in self._all:
            if not when or zombie.thaw in when:
                zombie.process.thaw()

    def count_anew(self) -> None:
        """Make `is_busy` count only the pages that thawed processes read from now on."""
        for zombie in self._all:
            for worker in zombie.workers:
                worker.count_anew()

    def is_busy(self, pages: int) -> bool:
        """Return whether one of the processes has thawed and has something to do."""
        return any(zombie.is_busy(pages) for zombie in self._all)

    async def stop(self) -> None:
        """Stop the workers among the processes gracefully, except those that stand to the end.

        One that has thawed ends now, one that is frozen with its thaw.
        """
        named = [zombie for zombie in self._all if zombie.workers and zombie.thaw != "end"]
        for zombie in named:
            zombie.workers[0].stop()
        running = [zombie.task for zombie in named if zombie.process.frozen is None]
        if running:
            await asyncio.wait(running)

    async def wait(self, seconds: float) -> None:
        """Wait until the operations among the processes have ended.

        Raises:
            TimeoutError: an operation has not ended within these seconds.
            Exception: the error of a zombie, if it is not one of streamkit's errors.
        """
        operations = {zombie.task for zombie in self._all if zombie.part == "operation"}
        if operations:
            _, going_on = await asyncio.wait(operations, timeout=seconds)
            if going_on:
                raise TimeoutError(f"what stood still goes on after {seconds:.0f} seconds")
        for zombie in self._all:
            if zombie.task.done() and not zombie.process.dead.is_set():
                with suppress(StreamkitError):  # the zombie was refused, as it should be
                    zombie.task.result()

    def close(self) -> list["asyncio.Task[Any]"]:
        """Kill all processes; return the tasks to wait for."""
        for zombie in self._all:
            zombie.process.kill()
            zombie.task.cancel()
        return [zombie.task for zombie in self._all]


class Operations:
    """Run operations beside a worker, each in a process with clients of its own.

    A process may be killed or frozen at one of the calls, which are counted over all operations.
    Then the same operation is started again in another process, as an operator would do.
    """

    def __init__(self, world: World, zombies: Zombies) -> None:
        self._world, self._zombies = world, zombies
        self._processes = Succession("operation")
        self._thaw: Thaw = "end"

    @property
    def calls(self) -> int:
        """Return how many calls the operations have made."""
        return self._processes.calls

    @property
    def writes(self) -> list[int]:
        """Return the numbers of the calls that may have written something."""
        return self._processes.writes

    def stop_at(self, point: CrashPoint, thaw: Thaw) -> None:
        """Stop the process that makes this call, counted from now."""
        self._processes.stop_at(point)
        self._thaw = thaw

    async def run(self, work: Callable[[Aws], Awaitable[T]]) -> T:
        """Run an operation, again if its process stops; return its result.

        Raises:
            Exception: the error of the operation.
        """
        process = self._processes.begin()
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

    async def _within(self, process: Process, work: Callable[[Aws], Awaitable[T]]) -> T:
        async with self._world.clients(process) as aws:
            return await work(aws)


__all__ = ["THAWS", "Moment", "Operations", "Part", "Succession", "Thaw", "Zombie", "Zombies"]

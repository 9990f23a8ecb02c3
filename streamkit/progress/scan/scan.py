"""The scan of a whole table, in leased segments that any number of processes share.

    async def visit(segment, reply):
        ...
        await segment.advance(reply.get("LastEvaluatedKey"))

    scan = TableScan(store, "0003.1.scan", 64, clock, rng)
    await scan.run(ScanPages(dynamodb.scan, "Shop"), visit, owner, at_once=4)

In: a name, which is the pass, and a number of segments, which never changes for a name. Out: every
page of every segment is visited, and its segment moves behind it, in one commit with what belongs
to it (`segment.commit`) or after it (`segment.advance`): any process can continue at any page.

On failure: if the owner of a segment does not write to it for a lease, by the clock of the process
that watches, another process takes it; what the former owner still commits is refused. An error of
a visit ends the run. Where the scan has a `fence`, its segments are created and deleted only while
the fence holds. The run ends with `LeaseLost` if the fence does not hold or the segments are gone:
else a process that stood still would create the segments of a finished scan again, or delete those
of a later scan with the same name.
"""

import math
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.model.conditions import absent
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action, GuardSource
from streamkit.progress.activity import each_of, task_group
from streamkit.progress.clock import Clock
from streamkit.progress.commit import Committer
from streamkit.progress.control import Cursor, cursor_attributes
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.lease import LeaseWatch
from streamkit.progress.scan.pages import ScanPages, Visit
from streamkit.progress.scan.places import strided
from streamkit.progress.scan.segment import LeasedSegment

log = get_logger("streamkit.scan")

LEASE_SECONDS = 15.0
"""The time after which a silent owner's segment is taken."""
_CREATED_AT_ONCE = 16
_TRANSACTED = 2.0
"""Write units of a small item in a transaction."""
_LOOK_SECONDS = 2.0
"""The pause between two looks at other processes' segments, when there is nothing to take."""
_PAUSE_SECONDS = 0.25
"""Half of the first pause of a process that serves no segment; each later one is twice as long."""
_READ_AT_ONCE = 16
"""Segments that are read at once to find one to take; the next ones are usually free."""
_GENERATION = 1
_Serve = Callable[[LeasedSegment], Awaitable[None]]


@dataclass
class TableScan:
    """One scan; all processes that share it must give the same number of segments.

    `schemas` are those of the tables that commits write to, including the control items' own.
    Creating, taking and deleting segments waits for `paced`, which takes write units, 1 by default.
    With `chosen`, only these segments are read.
    """

    store: CursorStore
    name: str
    total: int
    clock: Clock
    rng: random.Random
    schemas: Mapping[str, TableSchema] = field(default_factory=dict)
    lease_seconds: float = LEASE_SECONDS
    paced: Callable[..., AbstractAsyncContextManager[None]] = nullcontext
    fence: Fenced | None = None
    chosen: Collection[int] | None = None
    _finished: set[str] = field(default_factory=set)
    _running: set[str] = field(default_factory=set)
    _filling: anyio.Lock = field(default_factory=anyio.Lock)
    _idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Create the watch over the owners of segments."""
        self._watch = LeaseWatch(self.lease_seconds)

    @property
    def names(self) -> list[str]:
        """Return the names of the cursors, in the order in which they are taken."""
        chosen = strided(self.total) if self.chosen is None else self.chosen
        return [f"{self.name}.{number}" for number in chosen]

    async def create(self) -> None:
        """Create the cursors that are not there yet.

        Raises:
            LeaseLost: the fence does not hold any more.
        """

        async def create(name: str) -> None:
            with suppress(LeaseLost):  # another process was faster
                async with self.paced():
                    await self.store.write(self._creation(name))

        while missing := await self._missing():
            if self.fence is not None:
                some = [self._creation(name) for name in missing[:_CREATED_AT_ONCE]]
                async with self.paced(_TRANSACTED * (1 + len(some))):
                    await self.fence.apply(some)
                continue
            await each_of(_CREATED_AT_ONCE, missing, create)
            return

    async def _missing(self) -> list[str]:
        there = await self.cursors()
        return [name for name in self.names if name not in there]

    def _creation(self, name: str) -> Action:
        action = self.store.space.update("cursor", name)
        action.sets |= cursor_attributes(Cursor(name=name, generation=_GENERATION))
        action.guards.append((Guard(absent), GuardSource("", name, 0)))
        return action

    async def cursors(self) -> dict[str, Cursor]:
        """Read all cursors of the pass, by name."""
        return await self.store.read_many(self.names)

    async def run(
        self,
        pages: ScanPages,
        visit: Visit[LeasedSegment],
        owner: str,
        *,
        at_once: int = 4,
        stopping: anyio.Event | None = None,
    ) -> bool:
        """Visit pages until every segment is finished, by any process; return whether all are.

        Args:
            pages: how the table is read.
            visit: processes a page; it moves the segment.
            owner: names this process, and never another one.
            at_once: segments of this process.
            stopping: ends it early, once every segment here is given back.

        Raises:
            Exception: what a visit raises; the other segments are given back.
            LeaseLost: the scan is over, and has a fence.
        """
        serve = partial(pages.visit, visit=visit)
        stopping, wanted, pause = stopping or anyio.Event(), len(self.names), _PAUSE_SECONDS
        await self.create()
        async with task_group() as group:
            while not stopping.is_set():
                await self._fill(group, serve, owner, at_once, stopping)
                if len(self._finished) == wanted:
                    break
                pause = _PAUSE_SECONDS if self._running else min(2 * pause, _LOOK_SECONDS)
                known = len(self._running) + len(self._finished)
                if len(self._running) == at_once or known == wanted:
                    await self._wait(stopping, math.inf)  # there is no segment to take
                else:
                    await self._wait(stopping, _LOOK_SECONDS if self._running else pause)
        return len(self._finished) == wanted

    def deletions(self) -> list[Action]:
        """Return the actions that delete the pass's cursors, for a transaction with a fence."""
        return [self.store.space.delete("cursor", name) for name in self.names]

    async def delete(self) -> None:
        """Delete the cursors of the pass that exist.

        Raises:
            LeaseLost: the fence does not hold any more.
        """
        if self.fence is not None:
            keys = [self.store.space.key("cursor", name) for name in self.names]
            async with self.paced(_TRANSACTED * (1 + len(keys))):
                await self.fence.delete_there(keys)
            return
        there = await self.cursors()

        async def delete(name: str) -> None:
            async with self.paced():
                await self.store.write(self.store.space.delete("cursor", name))

        await each_of(_CREATED_AT_ONCE, there, delete)

    async def _wait(self, stopping: anyio.Event, seconds: float) -> None:
        """Wait this long; less if the scan must end, no segment is served here, or one was lost."""
        self._idle = idle = anyio.Event()

        async def until(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(until, stopping)
                group.start_soon(until, idle)

    async def _fill(
        self,
        group: anyio.abc.TaskGroup,
        serve: _Serve,
        owner: str,
        at_once: int,
        stopping: anyio.Event,
    ) -> None:
        """Take segments until as many are served as allowed.

        Other processes' segments are read only while one more could be taken, some at a time.
        """
        async with self._filling:  # else two tasks of this process would take one segment
            free = [n for n in self.names if n not in self._finished and n not in self._running]
            for start in range(0, len(free), _READ_AT_ONCE):
                if len(self._running) >= at_once:
                    return
                some = free[start : start + _READ_AT_ONCE]
                asked = self.clock.monotonic()
                found = await self.store.read_many(some)
                answered = self.clock.monotonic()
                if self.fence is not None and len(found) < len(some):
                    raise LeaseLost(f"the pass {self.name} is over")
                for cursor in (found[name] for name in some if name in found):
                    counter = (cursor.owner, cursor.epoch, cursor.commit)
                    self._watch.note(cursor.name, counter, asked=asked, answered=answered)
                    if len(self._running) >= at_once:
                        break
                    taken = await self._taken(cursor, owner)
                    if taken is not None:
                        self._running.add(taken.name)
                        group.start_soon(self._serve, taken, serve, stopping, at_once, group, owner)

    async def _taken(self, cursor: Cursor, owner: str) -> Cursor | None:
        """Take a segment as it was read; None if it cannot be taken."""
        if cursor.finished:
            self._finished.add(cursor.name)
        free = cursor.owner is None or self._watch.is_abandoned(cursor.name)
        if not cursor.finished and not free and not self._running:
            left = max(0.0, self.lease_seconds - self._watch.silence(cursor.name))
            known: dict[str, Any] = {"segment": cursor.name, "owner": cursor.owner}
            log.often("segment.held", by=str(cursor.owner), taken_in=round(left, 1), **known)
        if cursor.finished or not free:
            return None
        try:
            # If the process dies after this, another one takes the segment, a lease later.
            async with self.paced():
                return await self.store.take(cursor, owner, _GENERATION)
        except LeaseLost:
            return None

    async def _serve(
        self,
        taken: Cursor,
        serve: _Serve,
        stopping: anyio.Event,
        at_once: int,
        group: anyio.abc.TaskGroup,
        owner: str,
    ) -> None:
        space = self.store.space
        schemas = {**self.schemas, space.schema.name: space.schema}
        committer = Committer(self.store.dynamodb, space, taken, schemas, self.rng)
        _, _, number = taken.name.rpartition(".")
        segment = LeasedSegment(int(number), self.total, committer, stopping)
        try:
            await self._under_lease(segment, serve)
        except LeaseLost as error:
            log.info("segment.lost", segment=taken.name, reason=str(error))
            if self.fence is not None:
                await self.fence.apply([])  # raises if the scan is over: then it is lost for good
        finally:
            self._running.discard(taken.name)
        if segment.finished:
            self._finished.add(taken.name)
            if not stopping.is_set():
                await self._fill(group, serve, owner, at_once, stopping)
        if not self._running or not segment.finished:
            self._idle.set()

    async def _under_lease(self, segment: LeasedSegment, serve: _Serve) -> None:
        try:
            async with task_group() as group:
                group.start_soon(segment.renew_for_ever, self.lease_seconds / 3)
                await serve(segment)
                group.cancel_scope.cancel()
        finally:
            if not segment.finished:
                with anyio.CancelScope(shield=True), anyio.move_on_after(self.lease_seconds / 3):
                    await self.store.release(segment.cursor)

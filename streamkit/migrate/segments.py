"""Segments: a pass over a whole table, cut into parts that any number of processes share.

    async def serve(segment):
        while not (segment.finished or segment.stopping.is_set()):
            reply = await dynamodb.scan(**segment.scan_request("Shop", limit=200))
            ...
            await segment.advance(reply.get("LastEvaluatedKey"))

    await Segments(store, "0003.1.scan", 64, clock=clock, rng=rng).run(serve, owner, at_once=4)

Each segment is a leased cursor whose position is the last key that was read, so that a pass goes on
where it stopped, whoever goes on. In: a name, which is the pass, and a number of segments, which
never changes for a name. Out: `serve` is called for every segment until all are finished. Neighbour
segments lie on the same partition, so they are taken in strides (AWS: parallel scan).

On failure: a segment whose owner does not write to it for the duration of a lease, as seen by the
clock of whoever looks, is taken by another; what the former owner still commits is refused. What
`serve` raises ends the run.
"""

import base64
import json
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.actions import OURS, Action, Wire
from streamkit.activity import first_error
from streamkit.clock import Clock
from streamkit.control import START, Cursor, cursor_attributes
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.lease import LeaseWatch
from streamkit.model.conditions import absent
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.processing.commit import Applied, Batch, Committer, Verdict
from streamkit.processing.verdicts import Again

log = get_logger("streamkit.migrate")

LEASE_SECONDS = 15.0
"""After which a silent owner's segment is taken."""
_CREATED_AT_ONCE = 16
_LOOK_SECONDS = 2.0
"""Between two looks at segments of others, when there is nothing to take."""
_PAUSE_SECONDS = 0.25
"""Half of the first pause of a process that serves none; each pause is twice the one before."""
_READ_AT_ONCE = 16
"""Segments that are read to find one to take: the next ones are mostly free."""
_GENERATION = 1


def place_text(key: Mapping[str, Wire]) -> str:
    """Return a key of the table, such as a `LastEvaluatedKey`, as a cursor's position."""
    plain = {
        name: {kind: base64.b64encode(value).decode() if kind == "B" else value}
        for name, attribute in key.items()
        for kind, value in attribute.items()
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def place_of(text: str) -> dict[str, Wire]:
    """Read what `place_text` wrote."""
    return {
        name: {kind: base64.b64decode(value) if kind == "B" else value}
        for name, attribute in json.loads(text).items()
        for kind, value in attribute.items()
    }


def strided(total: int) -> list[int]:
    """Return the numbers below `total` so that those next to each other lie far apart.

    They are counted with their bits reversed.
    """
    bits = max(1, (total - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < total]


class Segment:
    """A segment under lease. `stopping` is set when it should be given back at the next page."""

    def __init__(
        self, number: int, total: int, committer: Committer, stopping: anyio.Event
    ) -> None:
        self.number = number
        self.total = total
        self.committer = committer
        self.stopping = stopping
        self._busy = anyio.Lock()

    @property
    def cursor(self) -> Cursor:
        """The cursor, as this owner last wrote it."""
        return self.committer.cursor

    @property
    def finished(self) -> bool:
        """Whether it is read to its end, and that is in the table."""
        return self.cursor.finished

    def scan_request(self, table: str, *, limit: int) -> dict[str, Any]:
        """Return the arguments of the `Scan` that reads the next page, strongly consistent."""
        request: dict[str, Any] = {
            "TableName": table,
            "Segment": self.number,
            "TotalSegments": self.total,
            "ConsistentRead": True,
            "Limit": limit,
        }
        if self.cursor.position != START:
            request["ExclusiveStartKey"] = place_of(self.cursor.position)
        return request

    async def commit(self, last: Mapping[str, Wire] | None, actions: Sequence[Action]) -> Verdict:
        """Move to the last key of a page, None at the end, together with up to 99 actions.

        Returns:
            What became of it: applied, or what was refused or invalid. Never `Again`.

        Raises:
            LeaseLost: another process has the segment.
        """
        async with self._busy:
            return await self._commit(last, actions)

    async def advance(
        self, last: Mapping[str, Wire] | None, actions: Sequence[Action] = ()
    ) -> None:
        """Do the same with actions that carry no condition.

        Raises:
            LeaseLost: another process has the segment.
        """
        verdict = await self.commit(last, actions)
        if not isinstance(verdict, Applied):
            raise LeaseLost(f"segment {self.cursor.name}: {verdict}")

    async def renew_for_ever(self, seconds: float) -> None:
        """Show others that the owner lives, while a page takes its time."""
        while True:
            before = self.cursor.commit
            await anyio.sleep(seconds)
            async with self._busy:
                if self.cursor.commit == before and not self.finished:
                    await self._send(Batch(self.cursor))

    async def _commit(self, last: Mapping[str, Wire] | None, actions: Sequence[Action]) -> Verdict:
        then = replace(self.cursor, takes=0)
        if last is None:
            then = replace(then, state="finished")
        else:
            then = replace(then, position=place_text(last))
        return await self._send(Batch(then, list(actions)))

    async def _send(self, batch: Batch) -> Verdict:
        pause = 0.05
        while True:
            verdict = await self.committer.commit(batch)
            if not isinstance(verdict, Again):
                return verdict
            await anyio.sleep(pause)
            pause = min(2 * pause, 2.0)


Serve = Callable[[Segment], Awaitable[None]]
"""Reads a segment page by page, until it is finished or has to be given back."""


@dataclass
class Segments:
    """The segments of one pass. All who share it name the same number of them.

    `schemas` are those of the tables that commits write to, the control items' own included.
    `paced` is what creating, taking and deleting a segment waits for. Where somebody who froze may
    find that the pass is over and its segments are gone, it `ends_when_gone`.
    """

    store: CursorStore
    name: str
    total: int
    clock: Clock
    rng: random.Random
    schemas: Mapping[str, TableSchema] = field(default_factory=dict)
    lease_seconds: float = LEASE_SECONDS
    paced: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    ends_when_gone: bool = False
    _finished: set[str] = field(default_factory=set)
    _running: set[str] = field(default_factory=set)
    _filling: anyio.Lock = field(default_factory=anyio.Lock)
    _idle: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Watch the owners of segments."""
        self._watch = LeaseWatch(self.lease_seconds)

    @property
    def names(self) -> list[str]:
        """The names of the cursors, in the order in which they are taken."""
        return [f"{self.name}.{number}" for number in strided(self.total)]

    async def create(self) -> None:
        """Create the cursors that are not there yet."""
        there = await self.store.read_many(self.names)
        limiter = anyio.Semaphore(_CREATED_AT_ONCE)

        async def create(name: str) -> None:
            action = self.store.space.update("cursor", name)
            fresh = Cursor(name=name, generation=_GENERATION)
            action.sets |= cursor_attributes(fresh)
            action.guards.append((Guard(absent), OURS))
            async with limiter:
                try:
                    async with self.paced():
                        await self.store.write(action)
                except LeaseLost:
                    return  # another process was faster

        async with anyio.create_task_group() as group:
            for name in self.names:
                if name not in there:
                    group.start_soon(create, name)

    async def cursors(self) -> dict[str, Cursor]:
        """Read all cursors of the pass, by name."""
        return await self.store.read_many(self.names)

    async def run(
        self, serve: Serve, owner: str, *, at_once: int = 4, stopping: anyio.Event | None = None
    ) -> bool:
        """Serve segments until all are finished, by whomever; return whether they are.

        Args:
            serve: what to do with one.
            owner: names this process, and never another one.
            at_once: segments of this process.
            stopping: ends it early, once every segment here is given back.

        Raises:
            Exception: whatever `serve` raises; the other segments are given back.
            LeaseLost: the pass is over, where it `ends_when_gone`.
        """
        stopping = stopping or anyio.Event()
        await self.create()
        try:
            async with anyio.create_task_group() as group:
                pause = _PAUSE_SECONDS
                while not stopping.is_set():
                    await self._fill(group, serve, owner, at_once, stopping)
                    if len(self._finished) == self.total:
                        break
                    pause = _PAUSE_SECONDS if self._running else min(2 * pause, _LOOK_SECONDS)
                    known = len(self._running) + len(self._finished)
                    if len(self._running) == at_once or known == self.total:
                        await self._wait(stopping, math.inf)  # there is nothing to take
                    else:
                        await self._wait(stopping, _LOOK_SECONDS if self._running else pause)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return len(self._finished) == self.total

    async def delete(self) -> None:
        """Delete the cursors of the pass that are there."""
        there = await self.cursors()
        limiter, table = anyio.Semaphore(_CREATED_AT_ONCE), self.store.space.schema.name

        async def delete(name: str) -> None:
            key = self.store.space.key("cursor", name)
            async with limiter, self.paced():
                await self.store.dynamodb.delete_item(TableName=table, Key=key)

        async with anyio.create_task_group() as group:
            for name in there:
                group.start_soon(delete, name)

    async def _wait(self, stopping: anyio.Event, seconds: float) -> None:
        """Wait so long; less if it is to end, if nothing is served here, or a segment was lost."""
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
        serve: Serve,
        owner: str,
        at_once: int,
        stopping: anyio.Event,
    ) -> None:
        """Take segments until as many are served as may be.

        Those of others are read only where one more could be taken, some at a time: what it
        serves itself, a process knows.
        """
        async with self._filling:  # else two of this process would take one segment
            free = [n for n in self.names if n not in self._finished and n not in self._running]
            for start in range(0, len(free), _READ_AT_ONCE):
                if len(self._running) >= at_once:
                    return
                some = free[start : start + _READ_AT_ONCE]
                asked = self.clock.monotonic()
                found = await self.store.read_many(some)
                answered = self.clock.monotonic()
                if self.ends_when_gone and len(found) < len(some):
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
        """Take a segment as it was read; None if it is not to be had."""
        if cursor.finished:
            self._finished.add(cursor.name)
        free = cursor.owner is None or self._watch.is_abandoned(cursor.name)
        if cursor.finished or not free:
            return None
        try:
            async with self.paced():
                return await self.store.take(cursor, owner, _GENERATION)
        except LeaseLost:
            return None

    async def _serve(
        self,
        taken: Cursor,
        serve: Serve,
        stopping: anyio.Event,
        at_once: int,
        group: anyio.abc.TaskGroup,
        owner: str,
    ) -> None:
        space = self.store.space
        schemas = {**self.schemas, space.schema.name: space.schema}
        committer = Committer(self.store.dynamodb, space, taken, schemas, self.rng)
        number = int(taken.name.rpartition(".")[2])
        segment = Segment(number, self.total, committer, stopping)
        try:
            await self._under_lease(segment, serve)
        except LeaseLost as error:
            log.info("segment.lost", segment=taken.name, reason=str(error))
        finally:
            self._running.discard(taken.name)
        if segment.finished:
            self._finished.add(taken.name)
            if not stopping.is_set():
                await self._fill(group, serve, owner, at_once, stopping)
        if not self._running or not segment.finished:
            self._idle.set()

    async def _under_lease(self, segment: Segment, serve: Serve) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(segment.renew_for_ever, self.lease_seconds / 3)
                await serve(segment)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            if not segment.finished:
                with anyio.CancelScope(shield=True), anyio.move_on_after(self.lease_seconds / 3):
                    await self.store.release(segment.cursor)

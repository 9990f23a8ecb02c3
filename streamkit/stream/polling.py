"""Polling: a bounded number of calls for any number of shards, each when it is due.

A quiet shard is only an entry in a heap: it has no coroutine of its own, and costs only its polls.
In: things to poll, each when due. Out: calls, at most `size` at a time, the most overdue first.
"""

import heapq
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import checkpoint

Poll = Callable[[], Awaitable[float | None]]
"""Polls once, and returns in how many seconds to poll again; None if other code will `add` it."""

_LONG_SECONDS, _GROUP = 1.0, 2.0**-7
"""After a pause of a second and more, polls are made in groups, at most a 64th of the pause later.
A process that wakes up for each of many quiet shards takes a quarter more CPU time."""


@dataclass
class PollingPool:
    """Polls what is due, unless it is `paused`; `run` it in a task, and cancel that to end it."""

    size: int
    paused: bool = False
    _tasks: int = 0
    _due: list[tuple[float, int, Poll]] = field(default_factory=list)
    _added: int = 0
    _places: dict[Poll, int] = field(default_factory=dict)
    _sooner: anyio.Event = field(default_factory=anyio.Event)

    def add(self, poll: Poll, seconds: float = 0.0) -> None:
        """Poll once after so many seconds, and not when it was to be polled before."""
        due = anyio.current_time() + seconds
        if seconds >= _LONG_SECONDS:
            step = math.ldexp(_GROUP, math.frexp(seconds)[1])
            due = math.ceil(due / step) * step
        self._added += 1
        self._places[poll] = self._added
        heapq.heappush(self._due, (due, self._added, poll))
        if self._due[0][1] == self._added:
            self._sooner.set()

    def hasten(self, poll: Poll) -> None:
        """Poll at once what would be due later; a poll that is under way is not repeated."""
        if poll in self._places:
            self.add(poll)

    def pause(self, *, paused: bool) -> None:
        """Stop polling, or continue with everything that is due by then."""
        self.paused = paused
        self._sooner.set()

    async def run(self) -> None:
        """Poll for ever."""
        async with anyio.create_task_group() as group:
            while True:
                poll = self._next() if self._tasks < self.size else None
                if poll is None:
                    await self._wait()
                else:
                    self._tasks += 1
                    group.start_soon(self._poll, poll)

    async def _wait(self) -> None:
        """Wait until something is due and may be polled, or anything has changed."""
        seconds = math.inf
        if self._due and not self.paused and self._tasks < self.size:
            seconds = self._due[0][0] - anyio.current_time()
        self._sooner = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._sooner.wait()

    async def _poll(self, poll: Poll | None) -> None:
        """Poll, and then what is due by then: a task for each poll takes a fifth more CPU time."""
        try:
            while poll is not None:
                seconds = await poll()
                if seconds is not None:
                    self.add(poll, seconds)
                await checkpoint()
                poll = self._next()
        finally:
            if self._tasks == self.size:  # `run` waits for a place
                self._sooner.set()
            self._tasks -= 1

    def _next(self) -> Poll | None:
        """Return what is most overdue; None if nothing is due."""
        while self._due and not self.paused and self._due[0][0] <= anyio.current_time():
            _, place, poll = heapq.heappop(self._due)
            if self._places.get(poll) == place:  # otherwise it was added again, to be polled sooner
                del self._places[poll]
                return poll
        return None

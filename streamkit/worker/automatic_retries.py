"""Automatic retries: a worker's parked changes are tried again when they are due.

In: the parked queues of the worker's shards. Out: queues that are emptied; their shards are told
when one is empty. A queue's item says when it is due, in epoch seconds: a wrong clock tries too
early or too late, which does no harm. This module only remembers that time. It reads a queue when
it is new, when it is due, and, if it is stuck, now and then, because a person may have redriven it.
Two workers that hold one queue, as after a split, may both try it; one of them wins.

On failure: a table that throttles or does not answer only slows this down. Missing permissions end
the worker.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.aws import AwsError, code_of, trouble_of
from streamkit.core.dispatch import Dispatcher
from streamkit.core.parked.queues import read_queues
from streamkit.core.tables import AppTables
from streamkit.errors import InvariantError, RetryableError
from streamkit.observe.logger import get_logger
from streamkit.observe.repeats import OUTAGE_SECONDS
from streamkit.progress.control import QueuedKey
from streamkit.progress.machine import Machine
from streamkit.progress.transaction import SENT_AGAIN
from streamkit.worker.holders import Holder, Holders
from streamkit.worker.redriver import QueueReport, Redriver

log = get_logger("streamkit.retrying")

AT_ONCE = 8
"""The most queues of one handler that are tried at the same time: a downstream that recovers is not
overloaded, and a slow one does not delay the queues of other handlers."""
LOOK_SECONDS = 5.0
"""How late a new parked queue may be noticed."""
STUCK_SECONDS = 900.0
"""The pause between looks at a stuck queue."""
_DELAY_SECONDS = 30.0
"""The pause until a queue that could not be tried is tried again."""
_NEW_MAX = 1000
"""The most new queues that are read in one round, so that due queues do not wait for all of them.
"""
_SHORTEST_SECONDS = 1.0
"""The least pause between two rounds: each looks at every parked queue, in memory."""


class QueueRetries:
    """Retries the parked changes of one app on one worker; `run_for_ever` may be called once.

    Args:
        redriver: redrives a queue; it tells the holders about the queues that a fan-out begins.
        holders: the shards that have parked queues.
        wrote: is called when a parked change has been committed.
    """

    def __init__(
        self, redriver: Redriver, holders: Holders, wrote: Callable[[], object] = lambda: None
    ) -> None:
        self._redriver, self._holders, self._wrote = redriver, holders, wrote
        self._clock = redriver.clock
        self._due: dict[str, float] = {}
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)
        self._handlers: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._busy: set[str] = set()
        self._serving: set[str] = set()
        self._stuck: set[str] = set()
        self._foreign: set[tuple[str, str]] = set()
        self._heard = self._learnt = 0
        self._runners: Counter[str] = Counter()
        self._paused = False
        self._woken = anyio.Event()

    @classmethod
    def of(
        cls,
        app: App,
        machine: Machine,
        tables: AppTables,
        like: Dispatcher,
        *,
        wrote: Callable[[], object] = lambda: None,
    ) -> "QueueRetries":
        """Return an app's retries, which read, send and count as the dispatcher `like`."""
        holders, parts = Holders(), (app, machine, tables, like.tools, like.channels)
        redriver = Redriver(*parts, automatic=True, set_aside=holders.begin)
        return cls(redriver, holders, wrote)

    def watch(self, shard: str, holder: Holder) -> None:
        """Retry a shard's parked changes from now on."""
        self._holders.add(shard, holder)
        self.wake()

    def wake(self) -> None:
        """Look at once, because a new parked queue may be due."""
        self._heard += 1
        self._woken.set()

    @property
    def busy(self) -> bool:
        """Return whether something is due or under way; failed changes that wait do not count."""
        if self._paused:
            return self._runners.total() > 0
        return self._heard > self._learnt or bool(self._busy or self._serving)

    @property
    def parked(self) -> int:
        """Return how many parked queues there are, without fan-outs that are being served."""
        return len(self._holders.queues - self._serving)

    @property
    def stuck(self) -> int:
        """Return how many of them wait for a person, as far as this worker knows."""
        return len(self._holders.queues & self._stuck)

    @property
    def oldest(self) -> dict[str, int]:
        """Return for each handler since when its oldest parked queue exists, in epoch seconds."""
        found: dict[str, int] = {}
        for name in self._since.keys() & self._holders.queues:
            handler, since = self._handlers[name], self._since[name]
            found[handler] = min(since, found.get(handler, since))
        return found

    def unwatch(self, shard: str) -> None:
        """Leave a shard's queues to its next owner; a queue under way is finished first."""
        self._holders.remove(shard)

    def pause(self, *, paused: bool) -> None:
        """Stop beginning queues, or begin them again."""
        self._paused = paused
        self._woken.set()

    async def run_for_ever(self) -> None:
        """Retry what is due, until cancelled.

        Raises:
            ConfigurationError: the credentials may not write.
            ClientError: they may not read.
        """
        async with anyio.create_task_group() as group:
            while True:
                if not self._paused:
                    await self._round(group)
                with anyio.move_on_after(self._rest()):
                    await self._woken.wait()
                self._woken = anyio.Event()

    async def _round(self, group: anyio.abc.TaskGroup) -> None:
        """Read new queues, and begin with the due ones, the one that is due longest first."""
        heard = self._heard
        if self._foreign:
            await self._look_again()
        held = self._holders.queues
        self._due = {name: due for name, due in self._due.items() if name in held}
        self._handlers = {name: self._handlers[name] for name in self._due.keys() & self._handlers}
        self._since = {name: self._since[name] for name in self._due.keys() & self._since}
        self._serving &= held
        self._stuck &= held
        await self._learn(name for name in held if name not in self._due)
        now = self._clock.time()
        due = [name for name, at in self._due.items() if at <= now and name not in self._busy]
        for name in sorted(due, key=lambda name: (self._due[name], name)):
            self._waiting[self._handlers.get(name, "")].append(name)
        self._busy.update(due)
        for handler, waiting in self._waiting.items():
            for _ in range(min(AT_ONCE - self._runners[handler], len(waiting))):
                self._runners[handler] += 1
                group.start_soon(self._run, handler, waiting)
        self._learnt = heard

    def _rest(self) -> float:
        """Return the seconds until the next round."""
        if not (self._holders.queues or self._foreign):
            return math.inf  # `wake` tells of new ones
        soonest = min((at for name, at in self._due.items() if name not in self._busy), default=0.0)
        wait = soonest - self._clock.time() if soonest else LOOK_SECONDS
        return min(max(wait, _SHORTEST_SECONDS), LOOK_SECONDS)

    async def _learn(self, unknown: Iterator[str]) -> None:
        """Read when new queues are due."""
        began = {name: self._holders.holds(name) for name in islice(unknown, _NEW_MAX)}
        if not began:
            return
        queues = await read_queues(self._redriver.store, sorted(began))
        found = {queue.name: queue for queue in queues}
        for name, holds in began.items():
            queue = found.get(name)
            if queue is None:
                self._foreign |= {(shard, hold.chunk) for shard, (_, hold) in holds.items()}
                self._emptied(name, holds)
            else:
                stuck = self._clock.time() + STUCK_SECONDS
                self._due[name] = stuck if queue.stuck else float(queue.due)
                self._handlers[name], self._since[name] = queue.handler, queue.since
                if queue.stuck:
                    self._stuck.add(name)

    async def _run(self, handler: str, waiting: deque[str]) -> None:
        """Try queues of a handler until none waits."""
        try:
            while waiting and not self._paused:
                queue = waiting.popleft()
                holds = self._holders.holds(queue)
                if holds:
                    await self._try(queue, holds)
                if holds and queue in self._serving and self._is_next(queue):
                    waiting.append(queue)  # behind all other queues that are due
                else:
                    self._busy.discard(queue)
        finally:
            self._runners[handler] -= 1

    def _is_next(self, queue: str) -> bool:
        """Return whether a queue is due again before the next round."""
        return self._due.get(queue, math.inf) < self._clock.time() + _SHORTEST_SECONDS

    async def _try(self, queue: str, holds: Mapping[str, tuple[Holder, QueuedKey]]) -> None:
        try:
            report = await self._redriver.redrive(queue)
        except InvariantError:
            log.exception("queue.broken", queue=queue)
            pause = STUCK_SECONDS
        except (*AwsError, RetryableError) as error:
            if isinstance(error, AwsError) and trouble_of(error) not in SENT_AGAIN:
                raise
            code = code_of(error)
            log.often("queue.delayed", level="warning", by=code, queue=queue, code=code)
            pause = _DELAY_SECONDS
        else:
            self._note(report, holds)
            return
        self._serving.discard(queue)
        self._due[queue] = self._clock.time() + pause

    def _note(self, report: QueueReport, holds: Mapping[str, tuple[Holder, QueuedKey]]) -> None:
        """Record what became of a queue, and report it to the shards and the log."""
        queue, by = report.queue, report.handler
        self._serving.discard(queue)
        if report.done or report.serving:
            self._wrote()
        known: dict[str, Any] = {"queue": queue, "handler": by, "done": report.done}
        if report.failure is not None:
            known["error"] = report.failure.kind
        if report.empty:
            if report.done:
                log.often("queue.lifted", by=by, **known)
            else:
                self._foreign |= {(shard, hold.chunk) for shard, (_, hold) in holds.items()}
            self._emptied(queue, holds)
            return
        if report.serving:
            self._serving.add(queue)
        self._stuck.discard(queue)
        if report.stuck:
            self._stuck.add(queue)
            self._due[queue] = self._clock.time() + STUCK_SECONDS
        else:
            self._due[queue] = float(report.due or 0)
        if report.failed and report.stuck:
            log.often("queue.stuck", level="error", by=by, **known)
        elif report.failed:
            log.often("queue.retried", by=by, quiet=OUTAGE_SECONDS, **known, due=report.due)

    async def _look_again(self) -> None:
        """Read the queues that are listed beside one that another process has emptied.

        If the emptied queue was a fan-out's, the fan-out may have parked recipients that this
        worker does not know.
        """
        chunks, self._foreign = self._foreign, set()
        items = [("holds", chunk) for chunk in sorted({chunk for _, chunk in chunks})]
        found = {item["chunk"]["S"]: item for item in await self._redriver.store.items(items)}
        for shard, chunk in sorted(chunks):
            listed = found.get(chunk, {}).get("lanes", {"SS": ()})["SS"]
            self._holders.begin_listed(shard, chunk, listed)

    def _emptied(self, queue: str, before: Mapping[str, tuple[Holder, QueuedKey]]) -> None:
        """Forget a queue that is gone, and tell the shards that held it."""
        self._due.pop(queue, None)
        self._holders.end(queue, before)

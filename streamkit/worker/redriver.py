"""The redriver: runs the handlers of the changes in one parked queue, first to last.

In: the name of a queue. Out: a report: the queue is empty, or its first change
failed again and stays first, due later or stuck, or is not due yet.

A redrive is one transaction without the cursor: the queue's head moves on IF it is this change, the
parked change is deleted IF it is still there, and its effects happen. Both conditions are false
afterwards. So a repeated or late attempt is harmless, two redrivers do not disturb each other, and
workers go on queueing meanwhile. The last change ends the queue IF nothing was queued behind it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from streamkit.app import App
from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.core.attempts import Patience
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import Handler
from streamkit.core.loop import CommitLoop
from streamkit.core.outcome import PendingChange
from streamkit.core.parked.head import Head, postpone, take_off
from streamkit.core.parked.payload import whole_record
from streamkit.core.parked.queues import ParkedQueue, read_head
from streamkit.core.parking import LATE, UNREADABLE, Failure, Parked, next_due
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.routes import Channels
from streamkit.core.runs import Tools
from streamkit.core.tables import AppTables
from streamkit.errors import USER_ERRORS, InvariantError, Unavailable
from streamkit.fleet.hosting import look
from streamkit.kinds.fan_out.broadcasting import Broadcaster, SetAside, nothing_aside
from streamkit.kinds.fan_out.fan_out import serving_one
from streamkit.kinds.fan_out.serving import FanOutChange
from streamkit.model.builds import Build
from streamkit.model.json_fields import JsonFields
from streamkit.progress.machine import Machine
from streamkit.progress.pacing import Pace, Pacing
from streamkit.stream.decode import Page

Step = Failure | Literal["done", "overtaken"] | float
"""The result for a queue's first change: it failed, it is done, or another process was faster; or
the seconds after which a fan-out continues.
"""

_ASIDE_SECONDS = 30.0
"""How long a fan-out that another worker serves is left alone."""

_LEFT = "; its queue stays as it is, for workers that have it; if there are none, discard it"
"""What happens by hand to a queue whose handler the app does not have."""

_SPREAD = (0.75, 1.25)
"""The range of a pause's random factor, so that changes that failed together are not retried
together."""


@dataclass(frozen=True, slots=True)
class QueueReport(JsonFields):
    """The result for a parked queue: how many changes left it, and why the first one stays, if so.

    `due` is when the first change is tried again automatically, in epoch seconds; None if nothing
    is left, or if it is `stuck` and waits for a person. `serving` says that a fan-out is under way.
    """

    queue: str
    handler: str
    done: int = 0
    failure: Failure | None = None
    due: float | None = None
    stuck: bool = False
    serving: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the queue's next change failed and is still parked."""
        return self.failure is not None

    @property
    def empty(self) -> bool:
        """Return whether nothing is parked in the queue any more."""
        return self.due is None and not self.stuck


@dataclass
class Redriver:
    """Redrives the parked queues of one consumer; several may work at the same time.

    By hand (`automatic` is false) it tries every change it is asked for, as often as its handler's
    policy says, and a change that fails starts its count of tries again. Automatically it only
    tries changes that are due, once. `set_aside` is told of the queues of recipients that a fan-out
    parks, with the name of the fan-out's own queue.
    """

    app: App
    machine: Machine
    tables: AppTables
    tools: Tools
    channels: Channels
    automatic: bool = False
    set_aside: SetAside = nothing_aside
    _dispatchers: dict[tuple[str, bool], Dispatcher] = field(default_factory=dict)
    _builds: Mapping[str, Build] = field(default_factory=dict)
    _in_builds: dict[tuple[str, Build], Handler] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the consumer's control items."""
        self.aws, self.clock, self.rng = self.machine.aws, self.machine.clock, self.machine.rng
        self.store = self.tables.store(self.app, self.aws)
        parts = (self.store, self.tables.schemas, self.rng, self.clock)
        self._broadcaster = Broadcaster(*parts, self.set_aside)

    async def redrive(self, name: str) -> QueueReport:
        """Run the queue's changes, first to last, until it is empty or one fails or is not due.

        Raises:
            ClientError: the table throttled, or did not answer, for half a minute.
            InvariantError: the queue names a change that is not there.
        """
        report = QueueReport(name, "")
        while True:
            found = await read_head(self.store, name)
            if found is None:
                return report
            queue, head = found
            report = replace(report, handler=head.handler)
            if self.automatic and (queue.stuck or queue.due > self.clock.time()):
                return _waits(report, queue)
            if head.build:
                self._builds = (await look(self.store)).builds
            step = await self._redrive_one(queue, head)
            if isinstance(step, Failure):
                return await self._failed(report, queue, head, step)
            if isinstance(step, float):
                return replace(report, due=self.clock.time() + step, serving=True)
            if step == "done":
                report = replace(report, done=report.done + 1)

    async def _failed(
        self, report: QueueReport, queue: ParkedQueue, head: Parked, failure: Failure
    ) -> QueueReport:
        """Record that the first change failed again, unless another process changed the queue."""
        tries = queue.tries + 1 if self.automatic else 1
        handler = self._handler(head)
        if handler is None and not self.automatic:  # workers of another version may have it
            return replace(_waits(report, queue), failure=failure)
        due = None
        if handler is not None:
            spread = self.rng.uniform(*_SPREAD)
            due = next_due(handler.policy, failure, tries, self.clock.time(), spread)
        if not await postpone(self.store, head, failure, tries, due, self.rng):
            return replace(report, failure=failure, due=int(self.clock.time()))
        return replace(report, failure=failure, due=due, stuck=due is None)

    def _handler(self, head: Parked) -> Handler | None:
        found = next((h for h in self.app.handlers if h.name == head.handler), None)
        if found is None or not head.build or found.in_build is None:
            return found
        build = self._builds.get(found.name)
        if build is None or build.number != head.build:
            build = Build(head.build, "scanning")
        place = (found.name, build)
        if place not in self._in_builds:
            self._in_builds[place] = found.in_build(build)
        return self._in_builds[place]

    async def _redrive_one(self, queue: ParkedQueue, head: Parked) -> Step:
        if head.error == UNREADABLE:
            text = f"the record cannot be read ({head.detail}): look at it, and discard it"
            return _never_heals(UNREADABLE, text)
        if head.error == LATE:
            text = "it may have been applied before: look at what it would do, and discard it"
            return _never_heals(LATE, text)
        handler = self._handler(head)
        if handler is None:
            todo = " any more; discard it, or bring it back" if self.automatic else _LEFT
            return _never_heals("HandlerMissing", f"the app has no handler {head.handler!r}{todo}")
        if handler.shadow:
            return _never_heals(
                "HandlerShadowed",
                f"{handler.declared} is in shadow mode now, so its change would be lost;"
                " discard it, or apply its effects again",
            )
        if head.to:
            handler = serving_one(handler, head.to)
        dispatcher = self._dispatcher(handler, skips=self._skips(handler, head))
        record = await whole_record(self.aws, self.tables.table.stream_arn or "", head)
        if isinstance(record, Failure):
            return record
        seen = dict(dispatcher.router.sides(record)).get(handler.entity)
        if seen is None or seen.kind not in handler.kinds:
            return _never_heals(
                "ChangeUnwanted",
                f"{handler.declared} does not listen to such a change any more; discard it",
            )
        pending, _, _ = await dispatcher.dispatch(Page((seen,)), head.shard)
        if not pending:  # the handler's `when` does not hold (any more): done without effects
            return await self._leave_undone(queue, head)
        failure = pending[0].outcomes[0].failure
        if failure is not None:  # its `when` failed, or it has too many hops
            return failure
        if handler.broadcast is not None:
            return await self._fan_out(dispatcher, handler, pending[0], queue, head)
        return await self._settle(dispatcher, pending[0], queue, head)

    async def _fan_out(
        self,
        dispatcher: Dispatcher,
        handler: Handler,
        change: PendingChange,
        queue: ParkedQueue,
        head: Parked,
    ) -> Step:
        """Continue serving the audience of a change, until another fan-out's turn has come."""
        try:
            typed = dispatcher.change_of(change, handler, head.shard)
            by_hand = not self.automatic
            fanned = FanOutChange.of(handler, typed, change, queue, head, by_hand=by_hand)
            step, pause = await self._broadcaster.advance(fanned, dispatcher, whole=by_hand)
        except AwsError as error:
            if trouble_of(error) not in (ErrorKind.INVALID, ErrorKind.MISSING):
                raise
            return Failure(code_of(error), f"the audience cannot be read: {error}"[:1000])
        except (Unavailable, InvariantError):
            raise
        except USER_ERRORS as error:  # the audience is user code
            dispatcher.failures.raised(handler, error)
            return Failure.of(error, 1)
        if step == "served":
            return await self._leave_undone(queue, head)
        if step == "overtaken":
            now = await self.store.item("lane", queue.name)
            same = now is not None and now["head"]["S"] == queue.head
            return _ASIDE_SECONDS if self.automatic and same else "overtaken"
        return step if isinstance(step, Failure) else pause

    async def _leave_undone(self, queue: ParkedQueue, head: Parked) -> Step:
        """Take a change without effects off its queue."""
        schemas = self.tables.schemas
        sent = await take_off(self.store, schemas, queue, head, (), self.rng, self.clock)
        return "done" if sent is None else "overtaken"

    async def _settle(
        self, dispatcher: Dispatcher, change: PendingChange, queue: ParkedQueue, head: Parked
    ) -> Step:
        """Commit an outcome; run it again as long as its conditions require it."""
        (outcome,) = change.outcomes
        outcome.to = head.to
        space, schemas = self.store.space, self.tables.schemas
        fence = Head(self.store, schemas, queue, head, self.rng, self.clock)
        planner = Planner(space, self.clock, head.shard, parks=False)
        queued, pacing = QueuedKeys(self.store, planner.queues), Pacing(Pace(), self.rng)
        loop = CommitLoop(fence, dispatcher, planner, queued, schemas, pacing)
        loop.pending.append(change)
        await loop.run()
        return loop.failure or fence.step or await self._leave_undone(queue, head)

    def _skips(self, handler: Handler, head: Parked) -> bool:
        """Return whether a change may be dropped here: it was deferred, and has not failed yet."""
        skips = handler.policy.on_failure == "skip" and handler.broadcast is None
        return skips and self.automatic and head.error is None

    def _dispatcher(self, handler: Handler, *, skips: bool) -> Dispatcher:
        """Return a dispatcher of one handler that reports a failure as such, unless it `skips`.

        With the policy `block` a run would never return, and `skip` would drop the change.
        """
        place = (handler.name, skips)
        known = self._dispatchers.get(place)
        if known is None or known.handlers[0].run is not handler.run:
            policy = replace(handler.policy, breaker=False)
            if not skips:
                attempts = 1 if self.automatic else policy.attempts
                policy = replace(policy, on_failure="park", attempts=attempts)
            running = replace(handler, policy=policy)
            known = Dispatcher(
                [running],
                self.app.routes(self.tables.schemas),
                self.tools,
                self.clock,
                self.rng,
                self.channels,
                # An automatic redrive has other queues to try, and returns to this one later. The
                # change is parked already, so a slow sink holds up nothing else.
                Patience(reads=not self.automatic, sink_seconds=math.inf),
            )
            self._dispatchers[place] = known
        return known


def _never_heals(kind: str, detail: str) -> Failure:
    return Failure(kind, detail, 0, heals=False)


def _waits(report: QueueReport, queue: ParkedQueue) -> QueueReport:
    """Complete the report on a queue whose first change is not tried now."""
    return replace(report, due=None if queue.stuck else queue.due, stuck=queue.stuck)

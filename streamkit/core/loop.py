"""The commit loop: it takes pending changes and commits them, with one commit in flight.

    plan ─► deliver sends ─► commit under the fence ─► adopt the plan that won, drop its changes
      ▲                               │
      └── run again, halve, refuse, ◄─┘
          park

A `Fence` proves each commit's right and moves its progress: a shard's cursor, the high-water marks
of a Lambda batch's items, a parked queue's head, or a fan-out's place. The loop knows only two
other differences between its hosts. A `deadline` cuts off the application's code. A `patient` host
waits when the first change cannot go on, until it is `stopping`; another host leaves the rest to be
delivered again.

In: pending changes, in order. Out: nothing is pending, or `left` says that the rest has to come
again; of its first change, only the handlers recorded as done have been applied. On failure: the
loop raises what the fence raises, such as `LeaseLost`: drop everything, nothing is lost.
"""

import math
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import msgspec

from streamkit.core.dispatch import Dispatcher
from streamkit.core.narrowing import Narrowing, unstored
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import Failure
from streamkit.core.planning import Blocked, Planner, Rerun, TooLarge
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.reading import settle
from streamkit.core.refusal import contended, refuse
from streamkit.core.repeating import Repeating
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import ITEMS_MAX, READ
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import Pacing
from streamkit.progress.plain import write_plainly
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit

log = get_logger("streamkit.commit")


class Overtaken(msgspec.Struct, frozen=True):
    """Nothing was applied, because another run was faster; these pending changes are left to do."""

    left: Sequence[PendingChange]


class Fence(Protocol):
    """A fence proves that a commit is right and records how far it goes."""

    @property
    def start(self) -> Cursor:
        """Return where planning begins: the position up to which all is done, and what else is."""

    async def commit(self, plan: Batch, pending: Sequence[PendingChange]) -> Verdict | Overtaken:
        """Commit a plan and its progress, in one transaction; return what became of it.

        `Applied` names the plan that won, which may be one that was sent earlier.

        Raises:
            LeaseLost: this host may not commit any more.
        """

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> Sequence[PendingChange]:
        """Remove from `pending` the changes that a plan finishes; return them."""

    def adopted(self, won: Batch) -> None:
        """Record a commit that won; its changes were dropped already."""


@dataclass
class CommitLoop:
    """Commits the effects of the `pending` changes of one shard or batch.

    `deadline` is a time of the event loop's clock; `cut` says that the deadline cut some code off.
    `failure` says why the rest is left, if a change has failed and cannot be parked.
    """

    fence: Fence
    dispatcher: Dispatcher
    planner: Planner
    queued_keys: QueuedKeys
    tables: Mapping[str, TableSchema]
    pacing: Pacing
    deadline: float = math.inf
    patient: bool = True
    pending: deque[PendingChange] = field(default_factory=deque)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    left: bool = False
    cut: bool = False
    failure: Failure | None = None
    _narrowing: Narrowing = field(default_factory=Narrowing)
    _taken: int = ITEMS_MAX

    async def run(self) -> None:
        """Commit until nothing is pending, or until the rest has to be left."""
        while self.pending and not self.left:
            await self._once()

    async def within(self, doing: Coroutine[Any, Any, object]) -> None:
        """Run something that waits for the application's code, until the deadline."""
        with anyio.CancelScope(deadline=self.deadline) as scope:
            await doing
        self.cut = self.cut or scope.cancelled_caught

    async def adopt(self, won: Batch) -> None:
        """Continue from the commit that won, which may be an earlier one than was sent last.

        Approximate effects are written now, after the commit: if the process dies in between, they
        are lost, but never applied twice.
        """
        if won.plain:
            await write_plainly(self.queued_keys.store.dynamodb, self.tables, won.plain)
        self.queued_keys.begin(won.queued)
        if self.dispatcher.runs.have_read:
            settle(self.pending, won.written)
        self._drop(won)
        self.fence.adopted(won)
        self._narrowing.widen()
        self.pacing.committed()

    # -- one transaction -----------------------------------------------------------------------

    async def _once(self) -> None:
        await self.queued_keys.learn_tails(self.pending)
        start = self.fence.start
        most, split = self._narrowing.most, self._narrowing.split
        plan = self.planner.plan(self.pending, start, most=most, split=split)
        if isinstance(plan, Rerun):
            await self._rerun(plan)
        elif isinstance(plan, Blocked):
            self.left, self.failure = True, plan.failure
        elif isinstance(plan, TooLarge):
            if not self._take_apart():
                self.dispatcher.failures.too_large(plan.outcome, self.planner.shard)
        elif plan.sends and not await self._deliver(plan):
            return
        elif plan.actions or plan.cursor.done or plan.sends or plan.plain:
            await self._commit(plan)
        else:
            self._drop(plan)

    def _drop(self, plan: Batch) -> None:
        for change in self.fence.drop(plan, self.pending):
            self.dispatcher.committed(change)

    async def _rerun(self, rerun: Rerun) -> None:
        outcome = rerun.outcome
        if self.cut:
            self.left = True
        elif contended(outcome):
            await self._pause()
        else:
            again = Repeating(self.dispatcher, self.queued_keys, self.planner.shard, self.stopping)
            await self.within(again.run(rerun, tuple(self.pending), self._taken))
        self.left = self.left or self._leaves(outcome)

    async def _deliver(self, plan: Batch) -> bool:
        """Deliver a plan's sends before its commit; False: plan again, some results changed."""
        sending, shard = self.dispatcher.sending, self.planner.shard
        # If the process dies between this and the commit, the next one sends the same again: a
        # send after the commit could be lost instead.
        await self.within(sending.send_all(plan.sends, shard, self.stopping))
        delivered = all(outcome.sent for _, outcome in plan.sends)
        waits = any(self._leaves(outcome) for _, outcome in plan.sends)
        # A send that the deadline cuts off is neither sent nor waiting: without this, the loop
        # would plan it and cut it off again without end.
        self.left = waits or (self.cut and not delivered)
        return delivered

    async def _commit(self, plan: Batch) -> None:
        self._taken = max(plan.changes, ITEMS_MAX)
        with self.dispatcher.tracing.commit(self.planner.shard, plan, self.pending):
            # If the process dies here, all of the plan is in the table or nothing. The fence's
            # progress is part of it, so the next process reads from there which of the two it was.
            verdict = await self.fence.commit(plan, self.pending)
        if isinstance(verdict, Applied):
            await self.adopt(verdict.batch)
        elif isinstance(verdict, RefusedCommit):
            await self._refused(verdict)
        elif isinstance(verdict, Invalid):
            await self._narrow(plan, verdict.code)
        elif isinstance(verdict, Again):
            await self._pause(throttled=verdict.throttled)
        else:
            self.pending = deque(verdict.left)

    # -- what did not go through ---------------------------------------------------------------

    async def _refused(self, refused: RefusedCommit) -> None:
        """Change the results that made the commit fail, so that the next plan differs."""
        results: dict[tuple[str, str], set[int]] = {}
        for source in dict.fromkeys(refused.sources):
            if source.effect < READ:
                await self.queued_keys.refresh(source.handler)
            else:
                results.setdefault((source.position, source.handler), set()).add(source.effect)
        again = False
        for change in self.pending if results else ():
            for outcome in change.outcomes:
                effects = results.get((change.position, outcome.handler.name))
                if effects:
                    refuse(outcome, effects, change.position, self.dispatcher.schema)
                    log.debug(
                        "effect.refused", handler=outcome.handler.name, refusals=outcome.refusals
                    )
                    again = again or (outcome.waiting and outcome.refusals > 1)
        if again:
            await self._pause()

    async def _narrow(self, sent: Batch, code: str) -> None:
        """Halve the commit until only the change, then the handler, that is invalid is left."""
        if self._take_apart():
            return
        shard, stored = self.planner.shard, unstored(self.pending[0], self.fence.start.done)
        if self._narrowing.narrow(sent.changes, len(stored)):
            return
        found = stored[0] if stored else None
        if found is None or found.parks:
            log.often("parking.refused", level="error", by=code, shard=shard, code=code)
            self.failure = None if found is None else found.failure
            await self._wait()
            return
        name = found.handler.name
        log.often("effect.invalid", level="warning", by=name, handler=name, code=code)
        failure = Failure(code, "DynamoDB finds an effect of this result invalid")
        self.dispatcher.failures.give_up(found, failure, shard)
        if found.waiting:
            await self._wait()

    def _take_apart(self) -> bool:
        """Replace blocks by their changes, to find the one at fault; return whether there were any.

        A block ends where its last change does: an earlier plan that still wins ends there, too.
        """
        if not any(change.block for change in self.pending):
            return False
        self.pending = deque(self.dispatcher.apart(self.pending, self.planner.shard))
        return True

    async def _wait(self) -> None:
        """Pause before the first change is tried again; leave it if this loop may not wait."""
        self.left = not self.patient or self.stopping.is_set()
        if not self.left:
            await self._pause(throttled=True)

    async def _pause(self, *, throttled: bool = False) -> None:
        await anyio.sleep(self.pacing.contended(throttled=throttled))

    def _leaves(self, outcome: Outcome) -> bool:
        """Return whether a result that must be made again is left, with all behind it."""
        return outcome.waiting and (not self.patient or self.stopping.is_set())

"""Commit the records of one invocation under the high-water marks of their items.

    records ─► not done yet ─► handlers ─► commit loop: marks + effects, one transaction ─► …

Marks are read for some records at a time. So an invocation with little time still finishes the
beginning of a large batch.

In: records in order. Out: what is `left`: None, or the first record that has to be delivered again;
nothing of its item from that record on has been applied. This holds at every moment, so that a run
may be cancelled. What is done of the batch stays done, also if it is delivered again. On failure:
as the handlers' policies say; parking advances the mark, and with `block` the change is the first
record left.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from streamkit.aws_lambda.high_water_marks import HighWaterMarks
from streamkit.changes import ItemKey
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import AsRun, as_registered
from streamkit.core.high_water_mark import HighWaterMark
from streamkit.core.loop import CommitLoop, Overtaken
from streamkit.core.outcome import PendingChange
from streamkit.core.parking import Failure, queue_name
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.progress.actions import MARK_GUARD
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import Cursor, QueuedKey
from streamkit.progress.pacing import Pace, Pacing
from streamkit.progress.transaction import Send, transact
from streamkit.progress.verdicts import Invalid
from streamkit.stream.decode import Page, Record

_CUT_OFF = Failure("TimeoutError", "the function's time was over before the handler returned")
"""Why a change is given up that ran alone, and did not return before the deadline."""
_START = Cursor("batch")
"""A batch has no cursor: changes that are done are left out before planning begins."""


@dataclass
class BatchRun:
    """Processes one batch, some records at a time; it is the fence of its own commit loop.

    `todo` are the records that are not known to be done, `passed` those before a mark that a later
    change had moved: it cannot be known whether they were done. The marks of the first `_read` of
    `todo` are known. Handlers are cancelled at the `deadline` (of the loop's clock); results that
    they have returned by then are still committed.
    `marked` is as in `Page`. `as_run` returns what runs in a handler's place; `send` replaces the
    plain commit where a commit needs a further condition beside the marks.
    """

    dispatcher: Dispatcher
    planner: Planner
    marks: HighWaterMarks
    deadline: float
    todo: deque[Record]
    as_run: AsRun = as_registered
    send: Send | None = None
    passed: list[Record] = field(default_factory=list)
    marked: bool = True
    _read: int = 0

    def __post_init__(self) -> None:
        """Build the commit loop, and the queued keys that it looks at."""
        self.queued_keys = QueuedKeys(self.marks.store, self.planner.queues)
        self.tables, self.rng = self.dispatcher.routes.tables, self.dispatcher.rng
        self.loop = self._loop_of(deque())

    def _loop_of(self, pending: deque[PendingChange]) -> CommitLoop:
        pacing, how = Pacing(Pace(), self.rng), (self.deadline, False)
        parts = (self, self.dispatcher, self.planner, self.queued_keys, self.tables, pacing)
        return CommitLoop(*parts, *how, pending=pending)

    @property
    def left(self) -> Record | None:
        """The first record that is not known to be done; None if all are.

        It is correct at every moment, also when the run is cancelled.
        """
        if self.loop.pending:
            return self.loop.pending[0].record
        return self.todo[0] if self.todo else None

    @property
    def stalled(self) -> bool:
        """Whether the first record left waits for a handler that did not return in time.

        A record that waits because of the policy `block` is not stalled.
        """
        pending, blocks = self.loop.pending, self.dispatcher.failures.blocks
        waiting = [o for o in pending[0].outcomes if o.waiting] if pending else []
        return self.loop.cut and bool(waiting) and not any(blocks(o.handler) for o in waiting)

    async def look(self, count: int) -> bool:
        """Read the marks of the next records, unless that is done; return whether any is to do.

        Changes that are done are left out, `count` at a time, until one is found that is not.
        """
        while self.todo and not self._read:
            some = list(islice(self.todo, count))
            await self.marks.read({record.item_key for record in some} - self.marks.known.keys())
            fresh = []
            for record in some:
                self.todo.popleft()
                if self.marks.is_done(record.item_key, record.position):
                    self._found_done(record.item_key, record)
                else:
                    fresh.append(record)
            self.todo.extendleft(reversed(fresh))
            self._read = len(fresh)
            self._hold()
        return bool(self.todo)

    @property
    def looked_at(self) -> list[Record]:
        """The next records to do, as far as their marks are known."""
        return list(islice(self.todo, self._read))

    def _found_done(self, key: ItemKey, record: Record) -> None:
        """Note a change whose mark is past it; a mark at the change itself proves it done."""
        if self.marks.known[key].position != record.position:
            self.passed.append(record)

    def _hold(self) -> None:
        """Let the records to do wait behind the parked queues that their marks name."""
        if not any(mark.queues for mark in self.marks.known.values()):
            return
        for record in self.looked_at:
            for queue in self.marks.known[record.item_key].queues:
                # The queue's list and tail are read together, before a change is added to it.
                self.queued_keys.queues.setdefault(queue, QueuedKey(""))

    async def advance(self, count: int) -> bool:
        """Process the next records that were looked at; return whether all of them are done."""
        some = self.looked_at[:count]
        shard, page = self.planner.shard, Page(tuple(some), marked=self.marked)
        # A mark names the handlers that are done with one change, and not with a block.
        blocks = not any(mark.done for mark in self.marks.known.values())
        pending, later, _ = await self.dispatcher.dispatch(page, shard, self.as_run, blocks=blocks)
        self._begin(pending)
        if later:
            run, has = self.dispatcher.runs.run_chains, self.queued_keys.has
            await self.loop.within(run(later, pending, shard, queued=has))
        return await self._commit(len(some))

    async def park(self, failure: Failure) -> bool:
        """Park the next change unrun for every handler that listens; return whether it is parked.

        The handlers' policies do not matter: the change would be delivered again for ever.
        """
        self._begin(self.dispatcher.unrun(self.todo[0], failure, self.as_run))
        return await self._commit(1)

    async def time_out(self) -> bool:
        """Give up the next change for handlers that did not return in time, as their policies say.

        What is not sent goes on in its parked queue. Returns whether the change is finished.
        """
        failures, (change, *_) = self.dispatcher.failures, self.loop.pending
        for outcome in change.outcomes:
            if outcome.waiting:
                failures.give_up(outcome, _CUT_OFF, self.planner.shard)
            elif not (outcome.sent or failures.blocks(outcome.handler)) and outcome.sends:
                outcome.defer()
        self.loop = self._loop_of(self.loop.pending)
        return await self._commit(1)

    def note_stalled(self) -> None:
        """Let the breakers know of the handlers that did not return in time."""
        for change in self.loop.pending:
            for outcome in change.outcomes:
                handler = outcome.handler
                if outcome.waiting and outcome.run and handler.is_async:
                    self.dispatcher.failures.failed(handler)

    def _begin(self, pending: Iterable[PendingChange]) -> None:
        self.loop.pending.clear()
        self.loop.pending.extend(pending)

    async def _commit(self, count: int) -> bool:
        """Commit the changes of the next `count` records, as far as they are ready."""
        self._drop_done(self.loop.pending)
        await self.loop.run()
        if self.loop.left:
            return False
        for _ in range(count):
            self.todo.popleft()
        self._read -= count
        return True

    def _drop_done(self, pending: Iterable[PendingChange]) -> None:
        """Leave out the handlers that are done with a change since an earlier invocation."""
        for change in pending:
            if change.key is not None:
                done = self.marks.known[change.key].done
                if done:
                    named = [(f"{change.position}:{o.handler.name}", o) for o in change.outcomes]
                    change.outcomes = [outcome for name, outcome in named if name not in done]

    # -- the marks as a fence ------------------------------------------------------------------

    @property
    def start(self) -> Cursor:
        """A cursor without a position: the marks say what is done."""
        return _START

    async def commit(self, plan: Batch, pending: Sequence[PendingChange]) -> Verdict | Overtaken:
        """Commit a plan with the marks of its items."""
        then, until = self._marks_after(plan, pending), self.marks.until()
        moves = [self.marks.move(key, first, mark, until) for key, (first, mark) in then.items()]
        send = self.send or partial(transact, self.marks.store.dynamodb, self.tables)
        # If the function dies here, the batch comes again, and its marks show what was applied.
        # With effects and marks one after the other, a death in between would lose the effects or
        # double them (model `high_water_marks`).
        verdict = await send([*moves, *plan.actions], self.rng)
        if verdict is None:
            self.dispatcher.meters.commits.add()
            for key, (_, mark) in then.items():
                self.marks.moved(key, mark)
            return Applied(plan)
        if isinstance(verdict, Invalid):
            # DynamoDB stops at the first invalid action, and then does not report the conditions of
            # marks.
            before = dict(self.marks.known)
            left = await self._look_again(pending)
            overtaken = any(self.marks.known[key] != mark for key, mark in before.items())
            return Overtaken(left) if overtaken else verdict
        if any(source.effect == MARK_GUARD for source in verdict.sources):
            # Lambda may deliver records while an earlier invocation of them still commits.
            self.dispatcher.meters.fenced.add()
            return Overtaken(await self._look_again(pending))
        return verdict

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> list[PendingChange]:
        """Drop the changes that a plan finishes, and the handlers that it is done with."""
        dropped = [pending.popleft() for _ in range(plan.changes)]
        self._drop_done(islice(pending, 1))
        return dropped

    def adopted(self, won: Batch) -> None:
        """Do nothing: the marks are known to have moved."""

    def _marks_after(
        self, plan: Batch, pending: Iterable[PendingChange]
    ) -> dict[ItemKey, tuple[str, HighWaterMark]]:
        """Return, for the items of a plan, their first change in it and their marks after it."""
        found: dict[ItemKey, tuple[str, HighWaterMark]] = {}
        for number, change in enumerate(pending):
            if change.key is None or number > plan.changes:
                break
            if number == plan.changes and not plan.cursor.done:
                break
            for key, position in change.steps:
                before = found.get(key)
                mark = before[1] if before else self.marks.known[key]
                queues = self._queues(key, mark, plan)
                if number < plan.changes:
                    then = HighWaterMark(position, queues=queues)
                else:
                    then = HighWaterMark(mark.position, mark.done | plan.cursor.done, queues)
                found[key] = (before[0] if before else position, then)
        return found

    def _queues(self, key: ItemKey, mark: HighWaterMark, plan: Batch) -> frozenset[str]:
        """Return the parked queues that an item has after a plan.

        Queues of handlers that this release does not have stay, too: the release may be rolled
        back.
        """
        if not self.queued_keys.queues and not plan.queued:
            return frozenset()
        own = {queue_name(handler.name, key) for handler in self.dispatcher.handlers}
        names = mark.queues | own
        return names & (self.queued_keys.queues.keys() | plan.queued.keys())

    async def _look_again(self, pending: Iterable[PendingChange]) -> list[PendingChange]:
        """Return what is not done yet, after another invocation has committed some items first."""
        # Another invocation may have done some changes of a block, and not the others.
        pending = self.dispatcher.apart(pending, self.planner.shard)
        keys = {change.key for change in pending if change.key is not None}
        for queue in (queue for key in keys for queue in self.marks.known[key].queues):
            self.queued_keys.forget(queue)  # it may be gone, or have another tail
        await self.marks.read(keys)
        left: list[PendingChange] = []
        for change in pending:
            if change.key is not None and self.marks.is_done(change.key, change.position):
                if change.record is not None:
                    self._found_done(change.key, change.record)
            else:
                left.append(change)
        self._hold()
        self._drop_done(left)
        return left

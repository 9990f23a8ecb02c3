"""A batch: the records of one invocation, committed under the marks of their items.

    records ─► not done yet ─► lanes, handlers ─► plan ─► marks + effects, one transaction ─► …

In: records in order. Out: what is `left`: None, or the first record that has to come again, after
which nothing of its item has been applied. That holds at every moment, so that a run may be
cancelled. What is done of the batch stays done, whatever comes again. On failure: as the handlers'
policies say; parking advances the mark. `block` is that first record.
"""

import random
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import anyio

from streamkit.actions import ITEMS_MAX, LANE, MARK_GUARD, Action
from streamkit.aws_lambda.marks import Marks
from streamkit.changes import ItemKey
from streamkit.control import Cursor
from streamkit.decode import Page, Record
from streamkit.model.tables import Tables
from streamkit.observe.logger import get_logger
from streamkit.processing.commit import Batch, Invalid, Refused
from streamkit.processing.dispatch import AsRun, Dispatcher, as_registered
from streamkit.processing.holds import HeldLanes
from streamkit.processing.mark import Mark
from streamkit.processing.outcome import Work
from streamkit.processing.parking import Failure, Hold, lane_name
from streamkit.processing.plain import write_plainly
from streamkit.processing.planning import ALL, Planner, Rerun, TooLarge
from streamkit.processing.reading import settle
from streamkit.processing.refusal import contended, refuse
from streamkit.processing.repeating import Repeating
from streamkit.processing.transaction import Send, transact

log = get_logger("streamkit.lambda")

_CONTENDED_SECONDS = 0.02
"""Before a result is made again that was refused for what it read; twice as long each time."""


@dataclass
class BatchRun:
    """Processes one batch, some records at a time.

    `todo` are the records that are not known to be done, `behind` those that a mark had passed.
    Handlers are cut off at the `deadline` (of the loop's clock); what they have answered by then is
    still committed. `cut` says that one was. `marked` is as in `Page`. `as_run` says what runs in a
    handler's place, `send` commits, where not every commit is right that the marks let through.
    """

    dispatcher: Dispatcher
    planner: Planner
    marks: Marks
    tables: Tables
    rng: random.Random
    deadline: float
    todo: deque[Record]
    as_run: AsRun = as_registered
    send: Send | None = None
    works: deque[Work] = field(default_factory=deque)
    behind: list[Record] = field(default_factory=list)
    cut: bool = False
    marked: bool = True
    _most: int = ALL
    _split: bool = False
    _narrowing: bool = False
    _size: int = ITEMS_MAX

    def __post_init__(self) -> None:
        """Hold what the marks of the batch's items say is held."""
        self.held = HeldLanes(self.marks.store, self.planner.holds)

    @property
    def left(self) -> Record | None:
        """The first record that is not known to be done; None if there is none.

        Known at every moment, whatever is cut off.
        """
        if self.works:
            return self.works[0].record
        return self.todo[0] if self.todo else None

    @property
    def stalled(self) -> bool:
        """Whether the first record left is one that a handler did not answer in time.

        One that waits because its handler's policy is `block` does what it is to do.
        """
        waiting = [o for o in self.works[0].outcomes if o.waiting] if self.works else []
        blocks = self.dispatcher.failures.blocks
        return self.cut and bool(waiting) and not any(blocks(o.handler) for o in waiting)

    async def begin(self) -> None:
        """Read the marks, and leave out what is done."""
        keys = [record.item_key for record in self.todo]
        await self.marks.read(set(keys))
        fresh: deque[Record] = deque()
        for key, record in zip(keys, self.todo, strict=True):
            done = self.marks.is_done(key, record.position)
            (self.behind if done else fresh).append(record)
        self.todo = fresh
        self._hold()

    def _hold(self) -> None:
        """Hold the lanes that the marks of what is to do say are held."""
        if not any(mark.lanes for mark in self.marks.known.values()):
            return
        for record in self.todo:
            for lane in self.marks.known[record.item_key].lanes:
                # Where it is listed is read with its tail, before anything queues there.
                self.held.lanes.setdefault(lane, Hold(""))

    async def advance(self, count: int) -> bool:
        """Process the next records; return whether all of them are done."""
        some = list(islice(self.todo, count))
        shard, page = self.planner.shard, Page(tuple(some), marked=self.marked)
        works, later, _ = await self.dispatcher.works(page, shard, self.as_run)
        self.works = deque(works)
        if later:
            lanes = self.dispatcher.run_lanes(later, works, shard, held=self.held.holds)
            await self._in_time(lanes)
        return await self._commit(len(some))

    async def park(self, failure: Failure) -> bool:
        """Park the next change unrun, for every handler that listens to it; return whether it is.

        Whatever their policies are: the change would come again for ever.
        """
        self.works = deque(self.dispatcher.unrun(self.todo[0], failure, self.as_run))
        return await self._commit(1)

    async def _commit(self, count: int) -> bool:
        """Commit the works, which are of the next `count` records, as far as they are ready."""
        self._drop_done(self.works)
        while self.works:
            if not await self._commit_once():
                return False
        for _ in range(count):
            self.todo.popleft()
        return True

    async def _in_time(self, doing: Coroutine[Any, Any, object]) -> None:
        """Do something that waits for the application's code, until the deadline."""
        with anyio.CancelScope(deadline=self.deadline) as scope:
            await doing
        self.cut = self.cut or scope.cancelled_caught

    def _drop_done(self, works: Iterable[Work]) -> None:
        """Leave out the handlers that an earlier invocation was done with."""
        for work in works:
            if work.key is not None:
                done = self.marks.known[work.key].done
                if done:
                    named = [(f"{work.position}:{o.handler.name}", o) for o in work.outcomes]
                    work.outcomes = [outcome for name, outcome in named if name not in done]

    # -- one transaction -----------------------------------------------------------------------

    async def _commit_once(self) -> bool:
        """Plan and commit; False: the first change left has to come again."""
        await self.held.learn_tails(self.works)
        plan = self.planner.plan(self.works, Cursor("batch"), most=self._most, split=self._split)
        if isinstance(plan, Rerun):
            return not self.cut and await self._rerun(plan)
        if isinstance(plan, TooLarge):
            self.dispatcher.failures.too_large(plan.outcome, self.planner.shard)
            return True
        if plan.sends and not await self._deliver(plan):
            return not self.cut and not any(outcome.waiting for _, outcome in plan.sends)
        then = self._marks_after(plan)
        if plan.actions or plan.sends or plan.cursor.done or plan.plain:
            return await self._send(plan, then)
        self._taken(plan, then)
        return True

    async def _deliver(self, plan: Batch) -> bool:
        """Deliver what a plan sends; return whether all is delivered."""
        shard, never = self.planner.shard, anyio.Event()
        await self._in_time(self.dispatcher.sending.send_all(plan.sends, shard, never))
        return all(outcome.sent for _, outcome in plan.sends)

    def _marks_after(self, plan: Batch) -> dict[ItemKey, tuple[str, Mark]]:
        """Return, for the items of a plan, their first change in it and their marks after it."""
        found: dict[ItemKey, tuple[str, Mark]] = {}
        for number, work in enumerate(self.works):
            if work.key is None or number > plan.changes:
                break
            before = found.get(work.key)
            mark = before[1] if before else self.marks.known[work.key]
            lanes = self._lanes(work.key, mark, plan)
            if number < plan.changes:
                then = Mark(work.position, lanes=lanes)
            elif plan.cursor.done:
                then = Mark(mark.position, mark.done | plan.cursor.done, lanes)
            else:
                break
            found[work.key] = (before[0] if before else work.position, then)
        return found

    def _lanes(self, key: ItemKey, mark: Mark, plan: Batch) -> frozenset[str]:
        """Return the lanes of an item that are held after a plan.

        Those of handlers that this release does not have are held, too: it may be taken back.
        """
        if not self.held.lanes and not plan.held:
            return frozenset()
        names = {lane_name(handler.name, key) for handler in self.dispatcher.handlers} | mark.lanes
        return frozenset(name for name in names if name in self.held.lanes or name in plan.held)

    async def _send(self, plan: Batch, then: dict[ItemKey, tuple[str, Mark]]) -> bool:
        moves: list[Action] = [
            self.marks.move(key, first, mark) for key, (first, mark) in then.items()
        ]
        dynamodb, self._size = self.marks.store.dynamodb, max(plan.changes, ITEMS_MAX)
        with self.dispatcher.tracing.commit(self.planner.shard, plan, self.works):
            send = self.send or partial(transact, dynamodb, self.tables)
            verdict = await send([*moves, *plan.actions], self.rng)
        if verdict is None:
            self.dispatcher.meters.commits.add()
            for key, (_, mark) in then.items():
                self.marks.moved(key, mark)
            self._taken(plan, then)
            if plan.plain:
                await write_plainly(dynamodb, self.tables, plan.plain)
            return True
        if isinstance(verdict, Invalid):
            return await self._narrow(plan, verdict.code)
        return await self._refused(verdict)

    def _taken(self, plan: Batch, then: dict[ItemKey, tuple[str, Mark]]) -> None:
        """Go on behind what is committed."""
        self.held.begin(plan.held)
        settle(self.works, plan.written)
        for _ in range(plan.changes):
            self.dispatcher.committed(self.works.popleft())
        if self.works and self.works[0].key in then:
            self._drop_done([self.works[0]])
        if self._narrowing or self._split:
            self._most, self._split, self._narrowing = ALL, False, False

    # -- what did not go through ---------------------------------------------------------------

    async def _rerun(self, rerun: Rerun) -> bool:
        outcome = rerun.outcome
        if not contended(outcome):
            if outcome.refusals > 1:
                await anyio.sleep(_CONTENDED_SECONDS * 2**outcome.refusals * self.rng.random())
            never = anyio.Event()
            again = Repeating(self.dispatcher, self.held, self.planner.shard, never)
            await self._in_time(again.run(rerun, tuple(self.works), self._size))
        return not outcome.waiting

    async def _refused(self, refused: Refused) -> bool:
        results: dict[tuple[str, str], set[int]] = {}
        behind = False
        for source in dict.fromkeys(refused.sources):
            if source.effect == MARK_GUARD:
                behind = True
            elif source.effect == LANE:
                await self.held.refresh(source.handler)
            else:
                results.setdefault((source.position, source.handler), set()).add(source.effect)
        if behind:
            self.dispatcher.meters.fenced.add()
            await self._look_again()
            return True
        for work in self.works:
            for outcome in work.outcomes:
                effects = results.get((work.position, outcome.handler.name))
                if effects:
                    refuse(outcome, effects, work.position, self.tables.own)
        return True

    async def _look_again(self) -> None:
        """Another invocation was faster with some items: leave out what it has done."""
        keys = {work.key for work in self.works if work.key is not None}
        for lane in (lane for key in keys for lane in self.marks.known[key].lanes):
            self.held.forget(lane)  # it may be gone, or have another tail
        await self.marks.read(keys)
        left: deque[Work] = deque()
        for work in self.works:
            if work.key is not None and self.marks.is_done(work.key, work.position):
                self.behind += [work.record] if work.record is not None else []
            else:
                left.append(work)
        self.works = left
        self._hold()
        self._drop_done(self.works)

    async def _overtaken(self) -> bool:
        """Read the marks again; say whether another invocation was faster with an item."""
        before = dict(self.marks.known)
        await self._look_again()
        return any(self.marks.known[key] != mark for key, mark in before.items())

    async def _narrow(self, plan: Batch, code: str) -> bool:
        """Halve the transaction until the handler is alone whose result cannot be stored.

        DynamoDB stops at the first action that is invalid, and then says nothing of the marks.
        """
        self._narrowing = True
        if plan.changes > 1:
            self._most = plan.changes // 2
        elif not self._split:
            self._most, self._split = 1, True
        elif not await self._overtaken():
            culprit = next((o for o in self.works[0].outcomes if o.parks or o.items), None)
            if culprit is None or culprit.parks:
                log.error("parking.refused", shard=self.planner.shard, code=code)
                return False
            log.warning("effect.invalid", handler=culprit.handler.name, code=code)
            failure = Failure(code, "DynamoDB finds an effect of this result invalid")
            self.dispatcher.failures.give_up(culprit, failure, self.planner.shard)
            return not culprit.waiting
        return True

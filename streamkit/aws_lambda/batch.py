"""A batch: the records of one invocation, committed under the marks of their items.

    records ─► not done yet ─► lanes, handlers ─► plan ─► marks + effects, one transaction ─► …

In: records in order. Out: None, or the first record that has to come again: nothing after it of its
item has been applied. What is done of the batch stays done, whatever comes again. On failure: as
the handlers' policies say; parking advances the mark. `block` is that first record.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from streamkit.actions import LANE, MARK_GUARD, Action
from streamkit.aws_lambda.marks import Mark, Marks, after
from streamkit.changes import ItemKey
from streamkit.commit import ITEMS_MAX, Batch, Invalid, Refused
from streamkit.control import Cursor
from streamkit.decode import Page, Record
from streamkit.dispatch import Dispatcher
from streamkit.errors import InvariantError
from streamkit.holds import HeldLanes
from streamkit.outcome import Work
from streamkit.parking import Failure, Hold, lane_name
from streamkit.plain import write_plainly
from streamkit.planning import Planner, Rerun
from streamkit.refusal import contended, refuse
from streamkit.tables import Tables
from streamkit.transaction import transact

_ALL = 1_000_000


@dataclass
class BatchRun:
    """Processes one batch. `out_of_time` is set when what is not committed is to come again."""

    dispatcher: Dispatcher
    planner: Planner
    marks: Marks
    tables: Tables
    rng: random.Random
    out_of_time: anyio.Event
    works: deque[Work] = field(default_factory=deque)
    _most: int = _ALL
    _split: bool = False

    def __post_init__(self) -> None:
        """Hold what the marks of the batch's items say is held."""
        self.held = HeldLanes(self.marks.store, self.planner.holds)

    async def run(self, records: Sequence[Record]) -> Record | None:
        """Process records; return the first one that has to come again."""
        wanted = [record for record in records if self.dispatcher.wants(record)]
        await self.marks.read({record.item_key for record in wanted})
        fresh = [r for r in wanted if not self.marks.is_done(r.item_key, r.position)]
        self._hold(fresh)
        shard = self.planner.shard
        works, later, _ = self.dispatcher.works(Page(tuple(fresh)), shard)
        await self.dispatcher.run_lanes(
            later, works, shard, held=self.held.holds, until=self.out_of_time
        )
        return await self._commit(works)

    async def _commit(self, works: Sequence[Work]) -> Record | None:
        self.works.extend(works)
        self._drop_done()
        while self.works:
            if self.out_of_time.is_set() or not await self._commit_once():
                return self.works[0].record
        return None

    async def park(self, record: Record, failure: Failure) -> Record | None:
        """Park a change unrun, for every handler that listens to it."""
        self.dispatcher.wants(record)
        await self.marks.read({record.item_key})
        if self.marks.is_done(record.item_key, record.position):
            return None
        self._hold([record])
        return await self._commit(self.dispatcher.unrun(record, failure))

    def _hold(self, records: Sequence[Record]) -> None:
        for record in records:
            for lane in self.marks.known[record.item_key].lanes:
                self.held.lanes.setdefault(lane, Hold(f"{self.planner.shard}.0"))

    def _drop_done(self) -> None:
        """Leave out the handlers that an earlier invocation was done with."""
        for work in self.works:
            if work.key is not None:
                done = self.marks.known[work.key].done
                self._finish(work, done)

    def _finish(self, work: Work, done: frozenset[str]) -> None:
        if done:
            work.outcomes = [
                o for o in work.outcomes if f"{work.position}:{o.handler.name}" not in done
            ]

    # -- one transaction -----------------------------------------------------------------------

    async def _commit_once(self) -> bool:
        """Plan and commit; False: a handler's policy is that its change comes again."""
        await self.held.learn_tails(self.works)
        plan = self.planner.plan(self.works, Cursor("batch"), most=self._most, split=self._split)
        if isinstance(plan, Rerun):
            return await self._rerun(plan)
        if plan.sends:
            shard = self.planner.shard
            if not await self.dispatcher.sending.send_all(plan.sends, shard, self.out_of_time):
                return not any(outcome.waiting for _, outcome in plan.sends)
        then = self._marks_after(plan)
        if len(plan.actions) + len(then) > ITEMS_MAX + 1:
            self._most = max(1, min(plan.changes, self._most) // 2)
            self._split = self._split or plan.changes <= 1
            return True
        if plan.actions or plan.sends or plan.cursor.done or plan.plain:
            return await self._send(plan, then)
        self._taken(plan, then)
        return True

    def _marks_after(self, plan: Batch) -> dict[ItemKey, tuple[str, Mark]]:
        """Return, for the items of a plan, their first change in it and their marks after it."""
        found: dict[ItemKey, tuple[str, Mark]] = {}
        for number, work in enumerate(self.works):
            if work.key is None or number > plan.changes:
                break
            lanes = self._lanes(work, plan)
            before = found.get(work.key)
            mark = before[1] if before else self.marks.known[work.key]
            if number < plan.changes:
                then = after(mark, work.position, lanes)
            elif plan.cursor.done:
                then = Mark(mark.position, mark.done | plan.cursor.done, lanes)
            else:
                break
            found[work.key] = (before[0] if before else work.position, then)
        return found

    def _lanes(self, work: Work, plan: Batch) -> frozenset[str]:
        """Return the lanes of an item that are held after a plan."""
        assert work.key is not None  # noqa: S101 - looked at by the caller
        names = (lane_name(handler.name, work.key) for handler in self.dispatcher.handlers)
        return frozenset(name for name in names if name in self.held.lanes or name in plan.held)

    async def _send(self, plan: Batch, then: dict[ItemKey, tuple[str, Mark]]) -> bool:
        moves: list[Action] = [
            self.marks.move(key, first, mark) for key, (first, mark) in then.items()
        ]
        dynamodb = self.marks.store.dynamodb
        verdict = await transact(dynamodb, self.tables, [*moves, *plan.actions], self.rng)
        if verdict is None:
            if plan.plain:
                await write_plainly(dynamodb, self.tables, plan.plain)
            self._taken(plan, then)
            return True
        if isinstance(verdict, Invalid):
            return self._narrow(plan)
        return await self._refused(verdict)

    def _taken(self, plan: Batch, then: dict[ItemKey, tuple[str, Mark]]) -> None:
        """Go on behind what is committed."""
        for key, (_, mark) in then.items():
            if plan.actions or plan.sends or plan.cursor.done:
                self.marks.moved(key, mark)
        self.held.begin(plan.held)
        for _ in range(plan.changes):
            self.works.popleft()
        if self.works:
            self._finish(self.works[0], plan.cursor.done)
        self._most, self._split = _ALL, False

    # -- what did not go through ---------------------------------------------------------------

    async def _rerun(self, rerun: Rerun) -> bool:
        outcome = rerun.outcome
        if not contended(outcome):
            await self.dispatcher.run(
                rerun.work,
                outcome,
                tuple(self.works),
                self.planner.shard,
                until=self.out_of_time,
            )
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
        await self.marks.read({work.key for work in self.works if work.key is not None})
        self.works = deque(
            work
            for work in self.works
            if work.key is None or not self.marks.is_done(work.key, work.position)
        )
        self._drop_done()

    def _narrow(self, plan: Batch) -> bool:
        """Halve the transaction until the handler is alone whose result cannot be stored."""
        if plan.changes > 1:
            self._most = plan.changes // 2
        elif not self._split:
            self._most, self._split = 1, True
        else:
            culprit = next((o for o in self.works[0].outcomes if o.actions or o.failure), None)
            if culprit is None or culprit.failure is not None:
                raise InvariantError("the table finds a parking transaction invalid")
            text = "DynamoDB finds an effect of this result invalid"
            failure = Failure("ValidationError", text)
            self.dispatcher.failures.give_up(culprit, failure, self.planner.shard)
            return not culprit.waiting
        return True

"""The pipeline of one shard: pages in, commits out, until the shard ends or the lease does.

        read ──pages──► dispatch ──works──► commit
          │                │                  │
     bounded by bytes   pure handlers run   one in flight; meanwhile the next
     over all shards    ahead; async ones   page is read and dispatched
                        wait for a quiet
                        commit stage

`works` is everything dispatched and not yet committed, in order. A position that no commit has
carried is remembered and rides with the next commit; alone it is written only now and then.

In: a leased cursor. Out: whether the shard was read to its end; `finish` then closes it. On
failure: `LeaseLost` (drop everything, nothing is lost), `RetentionLost`, or what the table refuses.
"""

from collections import deque
from dataclasses import dataclass, replace

import anyio

from streamkit.actions import CHILD, READ
from streamkit.clock import Clock
from streamkit.commit import Again, Applied, Batch, Committer, Invalid, Refused
from streamkit.control import START, Cursor
from streamkit.cursor import CursorStore, creation
from streamkit.dispatch import Dispatcher, Run
from streamkit.errors import InvariantError
from streamkit.fold import fold
from streamkit.holds import HeldLanes
from streamkit.observe.logger import get_logger
from streamkit.outcome import Outcome, Work
from streamkit.pacing import ByteBudget, Pacing
from streamkit.parking import Failure
from streamkit.planning import Planner, Rerun
from streamkit.refusal import contended, refuse
from streamkit.source.reader import ShardReader

log = get_logger("streamkit.shard")

_FULL_BYTES = 500_000
"""A page this large is likely followed by another."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The shard is read to its end; these children's cursors exist now."""

    children: tuple[Cursor, ...]


class ShardPipeline:
    """Runs one shard for one owner. `run` may be called once."""

    def __init__(
        self,
        reader: ShardReader,
        dispatcher: Dispatcher,
        planner: Planner,
        committer: Committer,
        store: CursorStore,
        pacing: Pacing,
        budget: ByteBudget,
        clock: Clock,
    ) -> None:
        self.shard = committer.cursor.name
        self.committer = committer
        self.reader = reader
        self.works: deque[Work] = deque()
        self._dispatcher = dispatcher
        self._planner = planner
        self._store = store
        self._held = HeldLanes(store, planner.holds)
        self._pacing = pacing
        self._budget = budget
        self._clock = clock
        self._position = committer.cursor.position
        self._seen = committer.cursor.seen
        self._persisted_at = clock.monotonic()
        self._business_since = False
        self._stopping = anyio.Event()
        self._arrived = anyio.Event()
        self._quiet = anyio.Event()
        self._quiet.set()
        self._drained = False
        self._left = False
        self._most = 1_000_000
        self._split = False
        self.quiet_pages = 0

    @property
    def cursor(self) -> Cursor:
        """The cursor as it is in the table."""
        return self.committer.cursor

    def stop(self) -> None:
        """Ask for a graceful end: what is dispatched is committed, then `run` returns.

        A change that cannot be handled now, and what is behind it, is left to the next owner.
        """
        self._stopping.set()
        self._arrived.set()

    async def run(self) -> bool:
        """Process the shard. Return True if it was read to its end, False if stopped before.

        Raises:
            LeaseLost: another worker owns the shard.
            RetentionLost: records may have been trimmed unread.
        """
        await self._held.load(self.cursor.holds)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read_and_dispatch)
            await self._commit_until_drained()
        return self.reader.ended and not self.works

    # -- read and dispatch ---------------------------------------------------------------------

    async def _read_and_dispatch(self) -> None:
        try:
            while not (self._stopping.is_set() or self.reader.ended):
                await self._budget.room(self.shard)
                page = await self.reader.read()
                if page is None:
                    continue
                works, later, business = self._dispatcher.works(page, self.shard)
                busy = business > 0 or page.size > _FULL_BYTES or len(page.records) >= 100
                self.quiet_pages = 0 if busy else self.quiet_pages + 1
                if later:
                    await self._run_lanes(later, works)
                self._budget.take(self.shard, page.size if page.records else 0)
                self._seen = max(self._seen, int(self.reader.seen))
                if page.records:
                    self._business_since |= business > 0
                    works.append(Work(self.reader.position, page_bytes=page.size))
                    self._enqueue(works)
                if not self.reader.ended:
                    await self._idle(self._pacing.pause(business, len(page.records)))
        finally:
            self._drained = True
            self._arrived.set()

    async def _run_lanes(self, later: list[Run], works: list[Work]) -> None:
        """Run async handlers once everything before this page is committed.

        So they see what came before, know which lanes are held, and run at most once a commit.
        """
        await self._quiet.wait()
        if not self._left:
            await self._dispatcher.run_lanes(
                later, works, self.shard, held=self._held.holds, until=self._stopping
            )

    def _enqueue(self, works: list[Work]) -> None:
        self.works.extend(works)
        self._quiet = anyio.Event()
        self._arrived.set()

    async def _idle(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._stopping.wait()

    # -- commit --------------------------------------------------------------------------------

    async def _commit_until_drained(self) -> None:
        while True:
            if self.works and not self._left:
                await self._commit_once()
                continue
            self._quiet.set()
            if self._drained or self._left:
                break
            due = self._persist_due()
            if due <= 0:
                await self._persist()
                continue
            self._arrived = anyio.Event()
            with anyio.move_on_after(due):
                await self._arrived.wait()
        if self._position != self.cursor.position and not self.reader.ended:
            await self._persist()

    async def _commit_once(self) -> None:
        await self._held.learn_tails(self.works)
        cursor = replace(self.cursor, position=self._position)
        plan = self._planner.plan(self.works, cursor, most=self._most, split=self._split)
        if isinstance(plan, Rerun):
            await self._rerun(plan)
        elif plan.actions or plan.cursor.done:
            await self._send(plan)
        else:
            self._drop_until(plan.cursor.position)

    async def _send(self, batch: Batch) -> None:
        seen = self._seen if batch.changes == len(self.works) else self.cursor.seen
        batch.cursor = replace(batch.cursor, seen=seen)
        verdict = await self.committer.commit(batch)
        if isinstance(verdict, Applied):
            self._adopt(verdict.batch)
        elif isinstance(verdict, Refused):
            await self._refused(verdict)
        elif isinstance(verdict, Invalid):
            await self._narrow(batch, verdict)
        elif isinstance(verdict, Again):
            await anyio.sleep(self._pacing.contended(throttled=verdict.throttled))

    def _adopt(self, won: Batch) -> None:
        """Go on from the commit that has won, which may be an earlier one than was sent last."""
        self._held.lanes |= won.held
        self._drop_until(won.cursor.position)
        self._persisted_at = self._clock.monotonic()
        self._business_since = bool(self.works)
        self._most, self._split = 1_000_000, False
        self._pacing.committed()

    def _drop_until(self, position: str) -> None:
        """Drop works that are done with; their pages' bytes make room for others.

        By position and not by number, because works without effects are dropped uncommitted, and
        an earlier plan that held them may yet win.
        """
        while position != START and self.works and self.works[0].position <= position:
            work = self.works.popleft()
            self._position = work.position
            if work.page_bytes:
                self._budget.release(self.shard, work.page_bytes)

    async def _rerun(self, rerun: Rerun) -> None:
        outcome = rerun.outcome
        if contended(outcome):
            await anyio.sleep(self._pacing.contended(throttled=False))
        else:
            await self._dispatcher.run(
                rerun.work, outcome, tuple(self.works), self.shard, until=self._stopping
            )
        self._left = outcome.waiting and self._stopping.is_set()

    # -- refusals ------------------------------------------------------------------------------

    async def _refused(self, refused: Refused) -> None:
        """Change what made the commit fail, so that the next plan is another one."""
        results: dict[tuple[str, str], set[int]] = {}
        for source in dict.fromkeys(refused.sources):
            if source.effect == CHILD:
                raise InvariantError("a child's cursor was created by a commit before the last")
            if source.effect < READ:
                await self._held.refresh(source.handler)
            else:
                results.setdefault((source.position, source.handler), set()).add(source.effect)
        again = False
        for (position, handler), effects in results.items():
            outcome = self._outcome(position, handler)
            if outcome is not None:
                refuse(outcome, effects, position, self._dispatcher.schema)
                log.debug("effect.refused", handler=handler, refusals=outcome.refusals)
                again = again or (outcome.waiting and outcome.refusals > 1)
        if again:
            await anyio.sleep(self._pacing.contended(throttled=False))

    def _outcome(self, position: str, handler: str) -> Outcome | None:
        for work in self.works:
            if work.position == position:
                for outcome in work.outcomes:
                    if outcome.handler.name == handler:
                        return outcome
        return None

    async def _narrow(self, sent: Batch, verdict: Invalid) -> None:
        """Halve the commit until the change, then the handler, is alone that cannot be stored."""
        if sent.changes > 1:
            self._most = max(1, sent.changes // 2)
        elif not self._split:
            self._most, self._split = 1, True
        else:
            work = self.works[0]
            culprit = next((o for o in work.outcomes if self._sends(work, o)), None)
            if culprit is None or culprit.failure is not None:
                raise InvariantError(f"the table finds a parking commit invalid: {verdict.code}")
            log.warning("effect.invalid", handler=culprit.handler.name, code=verdict.code)
            text = "DynamoDB finds an effect of this result invalid"
            culprit.give_up(Failure(verdict.code, text))
            if culprit.waiting:
                self._left = self._stopping.is_set()
                await anyio.sleep(self._pacing.contended(throttled=True))

    def _sends(self, work: Work, outcome: Outcome) -> bool:
        done = f"{work.position}:{outcome.handler.name}" in self.cursor.done
        return not done and bool(outcome.actions or outcome.failure)

    # -- positions without effects ------------------------------------------------------

    def _persist_due(self) -> float:
        """Return the seconds until the position has to be written although nothing else is."""
        if self._position == self.cursor.position and self._seen <= self.cursor.seen + 1:
            return self._pacing.quiet_seconds
        seconds = (
            self._pacing.checkpoint_seconds if self._business_since else self._pacing.quiet_seconds
        )
        return self._persisted_at + seconds - self._clock.monotonic()

    async def _persist(self) -> None:
        """Write the position alone."""
        while True:
            batch = Batch(replace(self.cursor, position=self._position, seen=self._seen))
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                self._adopt(verdict.batch)
                if verdict.batch is batch:
                    return
            else:
                await anyio.sleep(self._pacing.contended(throttled=isinstance(verdict, Again)))

    # -- the end of the shard ------------------------------------------------------------------

    async def finish(self, children: list[Cursor]) -> Finished:
        """Close the shard: its cursor is finished and its children's cursors exist, at once.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        now = int(self._clock.time())
        there: set[str] = set()
        while True:
            # Only this shard's owner held lanes in its chunks, so that an empty one stays empty.
            chunks = frozenset(await self._held.in_chunks(self.cursor.holds))
            finished = replace(
                self.cursor,
                position=self._position,
                state="finished",
                ended=now,
                seen=max(self._seen, int(self.reader.seen)),
                done=frozenset(),
                holds=chunks,
                children=frozenset(child.name for child in children),
            )
            # They inherit what the cursor says now: an adopted commit may have held a lane.
            heirs = [replace(c, holds=finished.holds, seen=finished.seen) for c in children]
            new = [child for child in heirs if child.name not in there]
            actions = [action for child in new for action in creation(self._store.space, child)]
            batch = Batch(finished, fold(actions))
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                self._adopt(verdict.batch)
                if verdict.batch is batch:
                    return Finished(tuple(heirs))
            elif isinstance(verdict, Refused):
                there |= {source.handler for source in verdict.sources if source.effect == CHILD}
            else:
                await anyio.sleep(self._pacing.contended(throttled=isinstance(verdict, Again)))

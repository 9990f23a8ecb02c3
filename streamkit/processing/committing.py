"""The commit stage of one shard: works in, commits out, one in flight.

`works` is everything dispatched and not yet committed, in order. A position that no commit has
carried is remembered and rides with the next commit; alone it is written only now and then.

In: works. Out: the cursor as it is in the table; `quiet` says that nothing waits. On failure:
`LeaseLost` (drop everything, nothing is lost), or what the table refuses.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio

from streamkit.actions import CHILD, ITEMS_MAX, READ
from streamkit.clock import Clock
from streamkit.control import START, Cursor
from streamkit.cursor import CursorStore, creation
from streamkit.decode import Record
from streamkit.errors import InvariantError
from streamkit.observe.logger import get_logger
from streamkit.pacing import ByteBudget, Pacing
from streamkit.processing.commit import Again, Applied, Batch, Committer, Invalid, Refused
from streamkit.processing.dispatch import Dispatcher
from streamkit.processing.fold import fold
from streamkit.processing.holds import HeldLanes
from streamkit.processing.outcome import Outcome, Work
from streamkit.processing.parking import Failure
from streamkit.processing.planning import ALL, Planner, Rerun, TooLarge
from streamkit.processing.reading import settle
from streamkit.processing.refusal import contended, refuse
from streamkit.processing.repeating import Repeating
from streamkit.processing.unreadable import set_aside

log = get_logger("streamkit.shard")


class CommitStage:
    """Commits what one shard's changes have led to."""

    def __init__(
        self,
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
        self.works: deque[Work] = deque()
        self.held = HeldLanes(store, planner.holds)
        self.stopping = anyio.Event()
        self.quiet = anyio.Event()
        self.quiet.set()
        self.left = False
        self.wrote: Callable[[], object] = lambda: None
        self.seen = committer.cursor.seen
        self._dispatcher = dispatcher
        self._planner = planner
        self._store = store
        self._pacing = pacing
        self._budget = budget
        self._clock = clock
        self._position, self._dated = committer.cursor.position, committer.cursor.dated
        self._persisted_at = clock.monotonic()
        self._business_since = False
        self._most = ALL
        self._split = False
        self._taken = ITEMS_MAX

    @property
    def cursor(self) -> Cursor:
        """The cursor as it is in the table."""
        return self.committer.cursor

    def enqueue(self, works: Sequence[Work], *, business: bool) -> None:
        """Let works wait for their commit."""
        self._business_since |= business
        self.works.extend(works)
        if self.quiet.is_set():
            self.quiet = anyio.Event()

    async def set_aside(self, records: Sequence[Record]) -> None:
        """Set aside the records that cannot be read, before anything behind them is committed."""
        rng, meters = self._dispatcher.rng, self._dispatcher.meters
        await set_aside(self._store, records, self.shard, self._clock, rng, meters)

    async def run(self) -> None:
        """Commit until nothing waits, or what waits is to be left to another owner."""
        while self.works and not self.left:
            await self._commit_once()
        self.quiet.set()

    async def _commit_once(self) -> None:
        await self.held.learn_tails(self.works)
        cursor = replace(self.cursor, position=self._position, dated=self._dated)
        plan = self._planner.plan(self.works, cursor, most=self._most, split=self._split)
        if isinstance(plan, Rerun):
            await self._rerun(plan)
        elif isinstance(plan, TooLarge):
            self._dispatcher.failures.too_large(plan.outcome, self.shard)
        elif plan.sends and not await self._deliver(plan):
            return
        elif plan.actions or plan.cursor.done or plan.sends or plan.plain:
            await self._send(plan)
        else:
            self._drop_until(plan.cursor.position)

    async def _send(self, batch: Batch) -> None:
        seen = self.seen if batch.changes == len(self.works) else self.cursor.seen
        batch.cursor = self._advanced(replace(batch.cursor, seen=seen))
        self._taken = max(batch.changes, ITEMS_MAX)
        with self._dispatcher.tracing.commit(self.shard, batch, self.works):
            verdict = await self.committer.commit(batch)
        if isinstance(verdict, Applied):
            await self._adopt(verdict.batch)
        elif isinstance(verdict, Refused):
            await self._refused(verdict)
        elif isinstance(verdict, Invalid):
            await self._narrow(batch, verdict)
        elif isinstance(verdict, Again):
            await anyio.sleep(self._pacing.contended(throttled=verdict.throttled))

    async def _deliver(self, batch: Batch) -> bool:
        """Deliver what a commit's results send, before it; False: plan again, some have changed."""
        sending = self._dispatcher.sending
        delivered = await sending.send_all(batch.sends, self.shard, self.stopping)
        if any(outcome.waiting for _, outcome in batch.sends):
            self.left = self.stopping.is_set()
        return delivered

    def _advanced(self, then: Cursor) -> Cursor:
        """Forget, when the position moves on, that owners vanished where it was."""
        if then.position == self.cursor.position and then.done == self.cursor.done:
            return then
        return replace(then, takes=0, trying="", tries=0)

    async def _adopt(self, won: Batch) -> None:
        """Go on from the commit that has won, which may be an earlier one than was sent last.

        What is approximate is written now: lost, should this end in between, and not doubled.
        """
        if won.plain:
            await self.committer.write_plainly(won.plain)
        self.held.begin(won.held)
        if not all(action.is_control for action in won.actions):
            self.wrote()
        settle(self.works, won.written)
        self._drop_until(won.cursor.position)
        self._persisted_at = self._clock.monotonic()
        self._business_since = bool(self.works)
        self._most, self._split = ALL, False
        self._pacing.committed()

    def _drop_until(self, position: str) -> None:
        """Drop works that are done with; their pages' bytes make room for others.

        By position and not by number, because works without effects are dropped uncommitted, and
        an earlier plan that held them may yet win.
        """
        while position != START and self.works and self.works[0].position <= position:
            work = self.works.popleft()
            self._position, self._dated = work.position, int(work.dated)
            self._dispatcher.committed(work)
            if work.page_bytes:
                self._budget.release(self.shard, work.page_bytes)

    async def _rerun(self, rerun: Rerun) -> None:
        outcome = rerun.outcome
        if contended(outcome):
            await anyio.sleep(self._pacing.contended(throttled=False))
        else:
            again = Repeating(self._dispatcher, self.held, self.shard, self.stopping)
            await again.run(rerun, tuple(self.works), self._taken)
        self.left = outcome.waiting and self.stopping.is_set()

    # -- refusals ------------------------------------------------------------------------------

    async def _refused(self, refused: Refused) -> None:
        """Change what made the commit fail, so that the next plan is another one."""
        results: dict[tuple[str, str], set[int]] = {}
        for source in dict.fromkeys(refused.sources):
            if source.effect == CHILD:
                raise InvariantError("a child's cursor was created by a commit before the last")
            if source.effect < READ:
                await self.held.refresh(source.handler)
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
            if culprit is None or culprit.parks:
                code = verdict.code
                log.often("parking.refused", level="error", by=code, shard=self.shard, code=code)
                await self._wait()
                return
            name, code = culprit.handler.name, verdict.code
            log.often("effect.invalid", level="warning", by=name, handler=name, code=code)
            text = "DynamoDB finds an effect of this result invalid"
            failure = Failure(verdict.code, text)
            self._dispatcher.failures.give_up(culprit, failure, self.shard)
            if culprit.waiting:
                await self._wait()

    async def _wait(self) -> None:
        """Let the shard wait, as where a handler blocks: another owner may go on with it."""
        self.left = self.stopping.is_set()
        await anyio.sleep(self._pacing.contended(throttled=True))

    def _sends(self, work: Work, outcome: Outcome) -> bool:
        done = f"{work.position}:{outcome.handler.name}" in self.cursor.done
        return not done and bool(outcome.parks or outcome.items)

    # -- positions without effects -------------------------------------------------------------

    @property
    def persist_due(self) -> float:
        """The seconds until the position has to be written although nothing else is."""
        if self._position == self.cursor.position and self.seen <= self.cursor.seen + 1:
            return self._pacing.quiet_seconds
        seconds = (
            self._pacing.checkpoint_seconds if self._business_since else self._pacing.quiet_seconds
        )
        return self._persisted_at + seconds - self._clock.monotonic()

    def persist_soon(self) -> None:
        """Let the position be due to be written, as soon as nothing waits."""
        self._persisted_at = -math.inf

    @property
    def persisted(self) -> bool:
        """Whether the table has the position."""
        return self._position == self.cursor.position

    async def persist(self) -> None:
        """Write the position alone."""
        await self._write(self._here)

    async def note_trying(self, position: str) -> int:
        """Write down that the change at a position is about to be run; return how often it was.

        Everything before it has to be committed.
        """
        tries = 1 + (self.cursor.tries if self.cursor.trying == position else 0)
        await self._write(
            lambda: self._here(trying=position, tries=tries),
            advance=False,
        )
        return tries

    async def turn(self, live: frozenset[str]) -> None:
        """Write down for which builds the shard is live; everything read has to be committed."""
        await self._write(lambda: self._here(live=live))

    async def note_loss(self, seen: int) -> None:
        """Write down that records before `seen` (epoch seconds) may have been lost.

        That the position is trimmed is known from now on, and no loss any more.
        """
        self.seen, self._dated = max(self.seen, seen), 0
        now = int(self._clock.time())
        await self._write(lambda: self._here(lost=now))

    def _here(self, **more: Any) -> Cursor:
        """Return the cursor at the position up to which all is done, with what else it says."""
        return replace(
            self.cursor, position=self._position, dated=self._dated, seen=self._known, **more
        )

    @property
    def _known(self) -> int:
        """Up to when all is read *and* done: not while works wait that were read before."""
        return self.cursor.seen if self.works else self.seen

    async def _write(self, make: Callable[[], Cursor], *, advance: bool = True) -> None:
        while True:
            then = make()
            batch = Batch(self._advanced(then) if advance else then)
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                await self._adopt(verdict.batch)
                if verdict.batch is batch:
                    return
            else:
                await anyio.sleep(self._pacing.contended(throttled=isinstance(verdict, Again)))

    # -- the end of the shard ------------------------------------------------------------------

    async def finish(self, children: Sequence[Cursor]) -> list[Cursor]:
        """Close the shard: its cursor is finished and its children's cursors exist, at once.

        Returns:
            The children's cursors.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        now = int(self._clock.time())
        there: set[str] = set()
        while True:
            # Only this shard's owner held lanes in its chunks, so that an empty one stays empty.
            chunks = frozenset(await self.held.in_chunks(self.cursor.holds))
            finished = replace(
                self._advanced(replace(self.cursor, position=self._position, dated=self._dated)),
                state="finished",
                ended=now,
                seen=self.seen,
                done=frozenset(),
                holds=chunks,
                children=frozenset(child.name for child in children),
            )
            # They inherit what the cursor says now: an adopted commit may have held a lane.
            seen, dated = finished.seen, finished.dates_children
            heirs = [replace(c, holds=finished.holds, seen=seen, dated=dated) for c in children]
            new = [child for child in heirs if child.name not in there]
            actions = [action for child in new for action in creation(self._store.space, child)]
            batch = Batch(finished, fold(actions))
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                await self._adopt(verdict.batch)
                if verdict.batch is batch:
                    return heirs
            elif isinstance(verdict, Refused):
                there |= {source.handler for source in verdict.sources if source.effect == CHILD}
            else:
                await anyio.sleep(self._pacing.contended(throttled=isinstance(verdict, Again)))

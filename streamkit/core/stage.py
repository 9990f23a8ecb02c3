"""The commit stage of one shard: its commit loop, fenced by its cursor.

A position that no commit has carried stays in memory and rides with the next commit; it is written
alone only now and then, to save writes.

In: the pending changes of a page. Out: the cursor as it is in the table; `quiet` says that nothing
is pending. On failure: `LeaseLost` (drop everything, nothing is lost), or what the table refuses.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio

from streamkit.core.by_item import Run
from streamkit.core.dispatch import Dispatcher
from streamkit.core.loop import CommitLoop
from streamkit.core.outcome import PendingChange
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.unreadable import set_aside
from streamkit.errors import InvariantError
from streamkit.progress.actions import CHILD
from streamkit.progress.commit import Applied, Batch, Committer, Verdict
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import creation
from streamkit.progress.fold import fold
from streamkit.progress.pacing import ByteBudget, Pacing
from streamkit.progress.verdicts import Again, RefusedCommit
from streamkit.stream.decode import Record


class CommitStage:
    """Commits the effects of one shard's changes; it is the fence of its own loop.

    `wrote` is called when a commit has written items of the application.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        planner: Planner,
        committer: Committer,
        held: QueuedKeys,
        pacing: Pacing,
        budget: ByteBudget,
        wrote: Callable[[], object],
    ) -> None:
        self.shard = committer.cursor.name
        self.committer = committer
        self.loop = CommitLoop(self, dispatcher, planner, held, committer.tables, pacing)
        self.dispatcher, self.pacing = dispatcher, pacing
        self.held, self.stopping = held, self.loop.stopping
        self.quiet = anyio.Event()
        self.quiet.set()
        self.seen = committer.cursor.seen
        self._wrote = wrote
        self._budget = budget
        self._clock = planner.clock
        self._position, self._dated = committer.cursor.position, committer.cursor.dated
        self._persisted_at = self._clock.monotonic()
        self._traffic_since = False

    @property
    def cursor(self) -> Cursor:
        """Return the cursor as it is in the table."""
        return self.committer.cursor

    @property
    def pending(self) -> deque[PendingChange]:
        """Return the changes that were dispatched and are not committed yet, in order."""
        return self.loop.pending

    @property
    def left(self) -> bool:
        """Return whether the pending changes are left to another owner."""
        return self.loop.left

    def enqueue(self, pending: Sequence[PendingChange], *, traffic: bool) -> None:
        """Add pending changes, to be committed."""
        self._traffic_since |= traffic
        self.pending.extend(pending)
        if self.quiet.is_set():
            self.quiet = anyio.Event()

    async def run_later(self, later: Sequence[Run], pending: Sequence[PendingChange]) -> None:
        """Run the async handlers of a page, unless its changes are left to another owner."""
        if later and not self.left:
            run = self.dispatcher.runs.run_chains
            await run(later, pending, self.shard, held=self.held.holds, until=self.stopping)

    async def set_aside(self, records: Sequence[Record]) -> None:
        """Set aside the records that cannot be read, before anything behind them is committed."""
        rng, meters = self.dispatcher.rng, self.dispatcher.meters
        await set_aside(self.held.store, records, self.shard, self._clock, rng, meters)

    def note_seen(self, seen: int) -> None:
        """Record that every record created before `seen` (epoch seconds) was read."""
        self.seen = max(self.seen, seen)

    async def run(self) -> None:
        """Commit until nothing is pending, or until the rest must be left to another owner."""
        await self.loop.run()
        self.quiet.set()

    # -- the cursor as a fence -----------------------------------------------------------------

    @property
    def start(self) -> Cursor:
        """Return the cursor, at the position up to which all is done."""
        return replace(self.cursor, position=self._position, dated=self._dated)

    async def commit(self, plan: Batch, pending: Sequence[PendingChange]) -> Verdict:
        """Commit a plan with the cursor at its end.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        seen = self.seen if plan.changes == len(pending) else self.cursor.seen
        plan.cursor = self._advanced(replace(plan.cursor, seen=seen))
        verdict = await self.committer.commit(plan)
        if isinstance(verdict, RefusedCommit) and any(s.effect == CHILD for s in verdict.sources):
            raise InvariantError("a child's cursor was created by a commit before the last")
        return verdict

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> list[PendingChange]:
        """Drop the changes up to a plan's position; their pages' bytes make room for others.

        Changes are dropped by position and not by number. Changes without effects are dropped
        without a commit, and an earlier plan that held them may still win.
        """
        dropped: list[PendingChange] = []
        position = plan.cursor.position
        while position != START and pending and pending[0].position <= position:
            change = pending.popleft()
            self._position, self._dated = change.position, int(change.dated)
            dropped.append(change)
            if change.page_bytes:
                self._budget.release(self.shard, change.page_bytes)
        return dropped

    def adopted(self, won: Batch) -> None:
        """Record that a commit has written the position."""
        if not all(action.is_control for action in won.actions):
            self._wrote()
        self._persisted_at = self._clock.monotonic()
        self._traffic_since = bool(self.pending)

    def _advanced(self, then: Cursor) -> Cursor:
        """Reset the counts of vanished owners when the position moves on."""
        if then.position == self.cursor.position and then.done == self.cursor.done:
            return then
        return replace(then, takes=0, trying="", tries=0)

    # -- positions without effects -------------------------------------------------------------

    @property
    def persist_due(self) -> float:
        """Return the seconds until the position must be written, even if nothing else is."""
        if self._position == self.cursor.position and self.seen <= self.cursor.seen + 1:
            return self.pacing.quiet_seconds
        seconds = (
            self.pacing.checkpoint_seconds if self._traffic_since else self.pacing.quiet_seconds
        )
        return self._persisted_at + seconds - self._clock.monotonic()

    def persist_soon(self) -> None:
        """Make the position due to be written as soon as nothing is pending."""
        self._persisted_at = -math.inf

    @property
    def persisted(self) -> bool:
        """Return whether the table has the current position."""
        return self._position == self.cursor.position

    async def persist(self) -> None:
        """Write the position alone."""
        await self._write(self._here)

    async def note_trying(self, position: str) -> int:
        """Record that the change at a position is about to run; return how often that was recorded.

        Everything before it must be committed.
        """
        tries = 1 + (self.cursor.tries if self.cursor.trying == position else 0)
        await self._write(
            lambda: self._here(trying=position, tries=tries),
            advance=False,
        )
        return tries

    async def turn(self, live: frozenset[str]) -> None:
        """Record for which builds the shard is live; everything read must be committed."""
        await self._write(lambda: self._here(live=live))

    async def note_loss(self, seen: int) -> None:
        """Record that records before `seen` (epoch seconds) may have been lost.

        From now on it is known that the position is trimmed, and this no longer counts as a loss.
        """
        self.seen, self._dated = max(self.seen, seen), 0
        now = int(self._clock.time())
        await self._write(lambda: self._here(lost=now))

    def _here(self, **more: Any) -> Cursor:
        """Return the cursor at the position up to which all is done, with some fields changed."""
        return replace(
            self.cursor, position=self._position, dated=self._dated, seen=self._known, **more
        )

    @property
    def _known(self) -> int:
        """Return up to when all records are read *and* done; pending changes hold it back."""
        return self.cursor.seen if self.pending else self.seen

    async def _write(self, make: Callable[[], Cursor], *, advance: bool = True) -> None:
        while True:
            then = make()
            batch = Batch(self._advanced(then) if advance else then)
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                await self.loop.adopt(verdict.batch)
                if verdict.batch is batch:
                    return
            else:
                await anyio.sleep(self.pacing.contended(throttled=isinstance(verdict, Again)))

    # -- the end of the shard ------------------------------------------------------------------

    async def finish(self, children: Sequence[Cursor]) -> list[Cursor]:
        """Close the shard: one transaction finishes its cursor and creates its children's cursors.

        Returns:
            The children's cursors.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        now = int(self._clock.time())
        there: set[str] = set()
        while True:
            # Only this shard's owner adds queued keys to its chunks, so an empty chunk stays empty.
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
            # Children inherit what the cursor says now: an adopted commit may have queued a key.
            seen, dated = finished.seen, finished.dates_children
            heirs = [replace(c, holds=finished.holds, seen=seen, dated=dated) for c in children]
            new = [child for child in heirs if child.name not in there]
            actions = [action for child in new for action in creation(self.held.store.space, child)]
            batch = Batch(finished, fold(actions))
            verdict = await self.committer.commit(batch)
            if isinstance(verdict, Applied):
                await self.loop.adopt(verdict.batch)
                if verdict.batch is batch:
                    return heirs
            elif isinstance(verdict, RefusedCommit):
                there |= {source.handler for source in verdict.sources if source.effect == CHILD}
            else:
                await anyio.sleep(self.pacing.contended(throttled=isinstance(verdict, Again)))

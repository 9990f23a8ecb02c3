"""The commit stage of one shard: its commit loop, fenced by its cursor.

A position that no commit has carried stays in memory and rides with the next commit. `Checkpoints`
write it alone only now and then, to save writes.

In: the pending changes of a page. Out: the cursor as it is in the table; `until_quiet` returns when
nothing is pending. On failure: `LeaseLost` (drop everything, nothing is lost), or what the table
refuses.
"""

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
from streamkit.progress.commit import Batch, Committer, Verdict
from streamkit.progress.control import START, Cursor
from streamkit.progress.pacing import ByteBudget, CheckpointTimer, Pacing
from streamkit.progress.verdicts import RefusedCommit
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
        queued_keys: QueuedKeys,
        pacing: Pacing,
        budget: ByteBudget,
        wrote: Callable[[], object],
    ) -> None:
        self.shard = committer.cursor.name
        self.committer = committer
        self.loop = CommitLoop(self, dispatcher, planner, queued_keys, committer.tables, pacing)
        self.dispatcher, self.pacing = dispatcher, pacing
        self.queued_keys, self.stopping = queued_keys, self.loop.stopping
        self._quiet: anyio.Event | None = None
        self.seen = committer.cursor.seen
        self._wrote = wrote
        self._budget = budget
        self.clock = planner.clock
        self._position, self._dated = committer.cursor.position, committer.cursor.dated
        self._timer = CheckpointTimer(pacing, self.clock)

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
        if traffic:
            self._timer.note_traffic()
        self.pending.extend(pending)
        if self._quiet is None:
            self._quiet = anyio.Event()

    async def run_later(self, later: Sequence[Run], pending: Sequence[PendingChange]) -> None:
        """Run the async handlers of a page, unless its changes are left to another owner."""
        if later and not self.left:
            run = self.dispatcher.runs.run_chains
            await run(later, pending, self.shard, queued=self.queued_keys.has, until=self.stopping)

    async def set_aside(self, records: Sequence[Record]) -> None:
        """Set aside the records that cannot be read, before anything behind them is committed."""
        rng, meters = self.dispatcher.rng, self.dispatcher.meters
        await set_aside(self.queued_keys.store, records, self.shard, self.clock, rng, meters)

    def note_seen(self, seen: int) -> None:
        """Record that every record created before `seen` (epoch seconds) was read."""
        self.seen = max(self.seen, seen)

    async def run(self) -> None:
        """Commit until nothing is pending, or until the rest must be left to another owner."""
        await self.loop.run()
        if self._quiet is not None:
            self._quiet.set()
            self._quiet = None

    async def until_quiet(self) -> None:
        """Wait until nothing is pending, or what is pending is left to another owner."""
        if self._quiet is not None:
            await self._quiet.wait()

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
        plan.cursor = self.advanced(replace(plan.cursor, seen=seen))
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
        self._timer.note_written(traffic=bool(self.pending))

    def advanced(self, then: Cursor) -> Cursor:
        """Return a cursor; if it moves on, without counts of vanished owners and old joins."""
        if then.position == self.cursor.position and then.done == self.cursor.done:
            return then
        joined = then.joined and then.joined_after(then.position)
        return replace(then, takes=0, trying="", tries=0, joined=joined)

    # -- what checkpoints write ----------------------------------------------------------------

    @property
    def persist_due(self) -> float:
        """Return the seconds until the position must be written, even if nothing else is."""
        moved = not self.persisted or self.seen > self.cursor.seen + 1
        return self._timer.due(moved=moved)

    def persist_soon(self) -> None:
        """Make the position due to be written as soon as nothing is pending."""
        self._timer.soon()

    @property
    def persisted(self) -> bool:
        """Return whether the table has the current position."""
        return self._position == self.cursor.position

    @property
    def passed_start(self) -> bool:
        """Return whether the shard is read beyond its start, and the table does not say so.

        A handler that joins its app has to be beyond its start, also where nothing was written.
        """
        return self.cursor.seen < self.cursor.since <= self._known

    def note_lost_before(self, seen: int) -> None:
        """Record that records before `seen` (epoch seconds) may have been lost."""
        self.seen, self._dated = max(self.seen, seen), 0

    def here(self, **more: Any) -> Cursor:
        """Return the cursor at the position up to which all is done, with some fields changed."""
        return replace(
            self.cursor, position=self._position, dated=self._dated, seen=self._known, **more
        )

    @property
    def _known(self) -> int:
        """Return the time up to which all records are read and done (epoch seconds).

        While changes are pending, it is the time that the cursor has stored.
        """
        return self.cursor.seen if self.pending else self.seen

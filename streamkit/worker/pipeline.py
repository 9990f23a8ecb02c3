"""The pipeline of one shard: pages in, commits out, until the shard ends or the lease does.

        poll ──page──► dispatch ─pending─► commit
          ▲               │                  │
     when it is due    pure handlers run   one in flight; meanwhile the next
     by the pool,      ahead; async ones   page is read and dispatched
     bounded by bytes  wait for a quiet
                       commit stage

A quiet shard has no coroutine: it is an entry in the polling pool. Its occasional tasks run in its
`Activity`. When that rests and the shard has ended, or must be given up, the pipeline closes.

In: a leased cursor. Out: the call `ended` (read to its end, all committed) or `released`. On
failure: `LeaseLost` (drop everything, nothing is lost), or what the table refuses, to `failed`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio.abc

from streamkit.core.by_item import Run
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.outcome import PendingChange
from streamkit.core.stage import CommitStage
from streamkit.errors import RetentionLost
from streamkit.fleet.lag import Behind
from streamkit.observe.logger import get_logger
from streamkit.progress.activity import Activity
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Page
from streamkit.stream.reader import ShardReader
from streamkit.stream.sharing import SharedReader
from streamkit.worker.go_live import GoLive
from streamkit.worker.one_by_one import OneByOne
from streamkit.worker.quiet import QuietPages
from streamkit.worker.reading import Reading

log = get_logger("streamkit.shard")


class Closing(Protocol):
    """Is told of a shard's pages, and how its pipeline closed."""

    def note_read(self) -> None:
        """Record that a page was read."""

    async def ended(self, pipeline: "ShardPipeline") -> None:
        """Handle that the shard was read to its end, and everything is committed."""

    async def released(self, pipeline: "ShardPipeline") -> None:
        """Handle that the shard was given up; its dispatched changes are committed."""

    def failed(self, pipeline: "ShardPipeline", error: Exception) -> bool:
        """Return whether an error ends only this shard, which is then dropped."""


@dataclass
class ShardPipeline:
    """Runs one shard for one owner; `shared` is its reader if other consumers read it, too."""

    reader: ShardReader
    stage: CommitStage
    checkpoints: Checkpoints
    go_live: GoLive
    reading: Reading
    closing: Closing
    group: anyio.abc.TaskGroup
    shared: SharedReader | None = None
    _processing: bool = False
    _committing: bool = False
    _broken_off: bool = False
    _closed: bool = False
    _reading: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        """Create the activity, with no task yet."""
        self.activity = Activity(self.group, partial(self.closing.failed, self), self.rested)
        self.behind = Behind(self.reader.clock, self.cursor.seen)
        self.quiet = QuietPages(self.reading.writes)
        self._one_by_one = OneByOne(self.stage, self.checkpoints, self.go_live, self.reading)

    @property
    def shard(self) -> str:
        """Return the shard's name."""
        return self.stage.shard

    @property
    def cursor(self) -> Cursor:
        """Return the cursor as it is in the table."""
        return self.stage.cursor

    @property
    def waits(self) -> bool:
        """Return whether nothing is under way except the next poll."""
        return self.reads and not self.stage.pending

    @property
    def reads(self) -> bool:
        """Return whether its next page must be read, now or when it is due."""
        return not (self._processing or self.reader.ended)

    async def begin(self) -> None:
        """Load the queued keys, and begin to poll."""
        await self.stage.queued_keys.load(self.cursor.chunks)
        await self.go_live.begin(self.checkpoints)
        self._one_by_one.begin()
        self.reading.pool.add(self.poll)

    def stop(self) -> None:
        """Commit what is dispatched, or leave it to the next owner; then release the shard."""
        self.stage.stopping.set()
        if self._reading is not None:
            self._reading.cancel()
        if not self.activity.busy:
            self.rested()

    def end(self) -> None:
        """Cancel every task of this shard at once, and stop reading."""
        self.activity.cancel()
        self.leave()

    def leave(self) -> None:
        """Release what is kept for it to share with other consumers of this process."""
        if self.shared is not None:
            self.shared.close()

    def rested(self) -> None:
        """Close, when there is nothing left to do here."""
        stage = self.stage
        done = stage.stopping.is_set() or stage.left or (self.reader.ended and not stage.pending)
        if done and not self._closed:
            self._closed = True
            self.activity.start(self._close)

    async def _close(self) -> None:
        if self.reader.ended and not (self.stage.pending or self._broken_off):
            await self.closing.ended(self)
            return
        if not self.stage.persisted or self.stage.passed_start:
            # If the process dies before this, the next owner reads pages without effects again.
            await self.checkpoints.position()
        await self.closing.released(self)

    def write_down(self) -> None:
        """Write the position soon, once all dispatched changes are committed."""
        if not self.stage.persisted:
            self.stage.persist_soon()
            self._commit_soon()

    # -- read and dispatch ---------------------------------------------------------------------

    async def poll(self) -> float | None:
        """Read one page and dispatch it; return in how many seconds to poll again."""
        return await self.activity.within(self._poll)

    async def _poll(self) -> float | None:
        if self._closed or self._processing or self.reader.ended or self.stage.stopping.is_set():
            return None
        if not self.reading.budget.has_room(self.shard):
            return 0.05  # then it checks again whether there is room for another of its pages
        if self.go_live.turns(self.reader.seen):
            return self._apart(self._turn)
        try:
            with anyio.CancelScope() as reading:
                self._reading = reading
                page = await self.reader.read()
            self._reading = None  # a scope keeps what is around it: 2 KB for each quiet shard
            if reading.cancelled_caught:
                return None
        except RetentionLost as lost:
            return self._apart(self._settle, lost)
        if page is None:
            return self.reader.wait
        self.closing.note_read()
        self.behind.note(page.records)
        if page.flawed:
            return self._apart(self._process_flawed, page)
        if self._one_by_one.suspects and page.records:
            return self._apart(self._process_singly, page)
        pending, later, traffic = await self._dispatch(page)
        self.quiet.note(page, traffic)
        pause = self.stage.pacing.pause(traffic, len(page.records))
        if later or self.go_live.late:
            return self._apart(self._process, page, pending, later, traffic, pause)
        self._hand_over(page, pending, traffic)
        return None if self.reader.ended else self._rest(pause)

    async def _dispatch(self, page: Page) -> tuple[list[PendingChange], list[Run], int]:
        """Run the pure handlers of a page; the shard counts as busy while they run."""
        self._processing = True
        dispatch = self.stage.dispatcher.dispatch
        try:
            return await dispatch(page, self.shard, self.go_live.as_run, blocks=True)
        finally:
            self._processing = False

    def _rest(self, pause: float) -> float:
        """Return the pause; 0 if another consumer has read the next page already."""
        return 0.0 if self.shared is not None and self.shared.ready else pause

    def _apart(self, process: Callable[..., Awaitable[None]], *arguments: object) -> float | None:
        """Continue in a task, which takes no place in the pool and says when to poll again."""
        self._processing = True
        self.activity.start(process, *arguments)
        return None

    async def _process(
        self, page: Page, pending: list[PendingChange], later: list[Run], traffic: int, pause: float
    ) -> None:
        """Run async handlers once everything before this page is committed.

        So they see the earlier changes and the queued keys, and run at most once per commit.
        """
        await self.stage.until_quiet()
        await self.go_live.settle()
        await self.stage.run_later(later, pending)
        self._hand_over(page, pending, traffic)
        self._go_on(self._rest(pause))

    async def _process_flawed(self, page: Page) -> None:
        """Set aside the records that cannot be read, and process the others of the page."""
        await self.stage.set_aside(page.records)
        if self._one_by_one.suspects:
            await self._process_singly(page)
            return
        dispatch = self.stage.dispatcher.dispatch
        pending, later, traffic = await dispatch(page, self.shard, self.go_live.as_run)
        self.quiet.note(page, traffic)
        pause = self.stage.pacing.pause(traffic, len(page.records))
        await self._process(page, pending, later, traffic, pause)

    def _go_on(self, pause: float) -> None:
        self._processing = False
        if not self.reader.ended:
            self.reading.pool.add(self.poll, pause)

    def _hand_over(self, page: Page, pending: list[PendingChange], traffic: int) -> None:
        stage = self.stage
        stage.note_seen(int(self.reader.seen))
        if page.records:
            self.reading.budget.take(self.shard, page.size)
            position, dated = self.reader.position, self.reader.dated
            pending.append(PendingChange(position, dated, page_bytes=page.size))
            stage.enqueue(pending, traffic=traffic > 0)
        if stage.pending or stage.persist_due <= 0:
            self._commit_soon()

    async def _settle(self, lost: RetentionLost) -> None:
        """Apply the app's policy for losses, once all earlier changes are committed; then go on."""
        await self.stage.until_quiet()
        pause = await self.reading.losses.settle(lost)
        if pause is None:
            self.reader.resume(lost)
            # If the process dies before this, the next owner applies the policy again.
            await self.checkpoints.loss(int(self.reader.seen))
        self._go_on(pause or 0.0)

    async def _turn(self) -> None:
        """Take the steps that are due, once all earlier changes are committed; then go on."""
        await self.stage.until_quiet()
        turn, pending = self.go_live.turn, self.stage.pending
        if pause := 0.0 if pending else await turn(self.checkpoints, self.reader.seen):
            self.closing.note_read()  # it waits for people, not for the stream
            self.quiet.note_unread()
        self._go_on(pause)

    async def _process_singly(self, page: Page) -> None:
        """Run changes one by one, to find the one that kills workers."""
        await self.stage.until_quiet()
        wanted = await self._one_by_one.process(page.records)
        if wanted is None:
            self._broken_off = True
            return
        self.quiet.note(page, wanted)
        self._hand_over(page, [], wanted)
        self._go_on(0.0)

    # -- commit --------------------------------------------------------------------------------

    def _commit_soon(self) -> None:
        if not self._committing:
            self._committing = True
            self.activity.start(self._commit)

    async def _commit(self) -> None:
        stage = self.stage
        try:
            while True:  # changes that come during the last write are committed before this ends
                if stage.pending and not stage.left:
                    await stage.run()
                elif not stage.pending and stage.persist_due <= 0:
                    await self.checkpoints.position()
                else:
                    return
        finally:
            self._committing = False

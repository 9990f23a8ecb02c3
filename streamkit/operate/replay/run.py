"""What a replay to the end does between its beginning and its end: the changes of every shard.

    cursor ─► pages, from the archive, then from the stream ─► run ─► effects and position commit

Shards are read some at a time, a child after its parent, so that the changes of an item keep their
order. Each shard ends for itself: once its cursor is nowhere behind the app's, which is read after
the replay's last commit.

In: the cursors of a replay that has begun. Out: counts in its report. On failure: a change that
fails stays, with all that is behind it in its shard and in the descendants of that; the other
shards go on. `LeaseLost` says that another process goes on with the replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec

from streamkit.archive.reader import LongReader
from streamkit.changes import Change
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.dispatch import Dispatcher
from streamkit.core.outcome import PendingChange
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.fleet.generation import Generation, same_consumer
from streamkit.fleet.members import new_worker_name
from streamkit.model.conditions import Attr
from streamkit.operate.past.past import PastChanges
from streamkit.operate.replay.parts import ReplayParts
from streamkit.operate.replay.progress import ProgressTeller
from streamkit.operate.replay.replayer import TOO_MANY, UNREADABLE
from streamkit.operate.replay.report import Replayed
from streamkit.progress.actions import Verb
from streamkit.progress.commit import Committer
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fenced import Fenced
from streamkit.progress.paced import PacedCommitter
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.stream.decode import Page, Record

_PAUSE_SECONDS = 0.5


@dataclass
class ReplayRun:
    """One process that runs the changes of all shards; `own` has the cursors, `live` the app's."""

    parts: ReplayParts
    past: PastChanges
    live: CursorStore
    own: CursorStore
    begun: Generation
    report: Replayed

    def __post_init__(self) -> None:
        """Prepare the handlers."""
        parts, wish = self.parts, self.parts.wish
        self._me = new_worker_name()
        self._since = int(wish.since)  # changes are stamped to the second
        self._dispatcher: Dispatcher = parts.dispatcher(
            parts.handlers, looks_back=True, large=self._note_large
        )
        self._progress = ProgressTeller(wish.since, wish.until, parts.machine.clock, wish.tell)
        self._large = set[tuple[str, str]]()

    async def run(self) -> bool:
        """Replay each shard to its end, and those that appear meanwhile.

        Returns:
            Whether it has got there; False means that a change has failed.
        """
        reached = await self.past.shards.each(self._run_shard)
        self._progress.note_end()
        return reached

    async def _run_shard(self, shard: str) -> bool:
        cursor = await self._cursor(shard)
        ended = cursor.finished or await self._run_to_end(cursor)
        if ended:
            self._progress.note_done(shard)
        return ended

    async def _run_to_end(self, cursor: Cursor) -> bool:
        shard = cursor.name
        taken = await self.own.take(cursor, self._me, self.begun.number)
        stage = self._stage(taken)
        reader = await self.past.reader(shard, self._since, taken.position)
        while True:
            async for page in self.past.read(reader):
                if not await self._run_page(stage, page, reader):
                    return False
                self._progress.note(shard, reader.dated)
            stage.note_seen(int(reader.seen))
            if reader.ended:
                await Checkpoints(stage).end([])
                return True
            if not stage.persisted:
                await Checkpoints(stage).position()
            # Read behind the last commit: what the app does from now on comes after all of this.
            if is_reached(reader.position, await self.live.read(shard)):
                return True
            await anyio.sleep(_PAUSE_SECONDS)

    async def _cursor(self, shard: str) -> Cursor:
        found = await self.own.read(shard)
        if found is not None:
            return found
        fresh = Cursor(shard, generation=self.begun.number, root=shard)
        still = Attr("generation").eq(self.begun.number) & same_consumer(self.begun)
        fenced = Fenced(self.own, still, self.parts.machine.rng)
        await fenced.apply(creation(self.own.space, fresh))
        return fresh

    def _stage(self, taken: Cursor) -> CommitStage:
        machine, own, rate = self.parts.machine, self.own, self.parts.rate
        planner = Planner(own.space, machine.clock, taken.name, parks=False)
        target = own.dynamodb, own.space, taken, self.parts.tables.schemas, machine.rng
        committer = Committer(*target) if rate is None else PacedCommitter(rate, *target)
        queued, pacing = QueuedKeys(own, planner.queues), Pacing(Pace(), machine.rng)
        parts = planner, committer, queued, pacing, ByteBudget()

        def wrote() -> None:
            self._progress.note(taken.name, committer.cursor.dated)

        return CommitStage(self._dispatcher, *parts, wrote)

    async def _run_page(self, stage: CommitStage, page: Page, reader: LongReader) -> bool:
        """Run the changes of a page in order, and commit them; return whether all could be."""
        self.report.note_read(len(page.records))
        records = tuple(record for record in page.records if self._wants(record))
        wanted = msgspec.structs.replace(page, records=records)
        pending, later, traffic = await self._dispatcher.dispatch(wanted, stage.shard)
        await stage.run_later(later, pending)
        stage.note_seen(int(reader.seen))
        marker = PendingChange(reader.position, reader.dated)
        stage.enqueue([*pending, marker], traffic=traffic > 0)
        await stage.run()
        left = {id(change) for change in stage.pending}
        self._count([change for change in pending if id(change) not in left])
        if stage.left:
            self._fail(stage)
        return not stage.left

    def _wants(self, record: Record) -> bool:
        if record.flaw:
            for name in self.report.handlers:
                self.report.pass_over(name, record, UNREADABLE)
            return False
        return record.created_at >= self._since and self.parts.wants(record)

    def _note_large(self, handler: str, change: Change[Any]) -> None:
        self._large.add((handler, change.sequence_number))

    def _count(self, done: Sequence[PendingChange]) -> None:
        for change in done:
            for outcome in change.outcomes:
                name = outcome.handler.name
                counts = self.report.handlers[name]
                writes = [a for a in outcome.actions.values() if a.verb is not Verb.CHECK]
                if writes or outcome.sends:
                    counts.ran += 1
                    counts.items += len(writes)
                elif (name, change.position) in self._large and change.record is not None:
                    self.report.pass_over(name, change.record, TOO_MANY)
                else:
                    counts.nothing += 1

    def _fail(self, stage: CommitStage) -> None:
        """Count the failure of the first change that is left, and list it."""
        change, failure = stage.pending[0], stage.loop.failure
        kind = failure.kind if failure is not None else "unknown"
        for outcome in change.outcomes:
            if outcome.failure is not None and change.record is not None:
                self.report.note_failed(outcome.handler.name, change.record, kind)
                return


def is_reached(position: str, live: Cursor | None) -> bool:
    """Return whether a replay has done all that the app has done in a shard.

    Args:
        position: up to where the replay has read the shard, and committed.
        live: the app's cursor of it, as it was read after that; None if it has not begun.
    """
    if live is None:
        return True
    if live.finished:
        return False  # the replay reads on to the end of the shard
    # The app may have run the handler already for the change behind its position.
    begun = [mark.partition(":")[0] for mark in live.done]
    upto = max(begun, default=live.position)
    return upto == START or (position != START and position >= upto)

"""Replay to the end: all changes since a moment run again, in order, beside the live handlers.

    begin    a consumer of its own, with a cursor for each shard; whichever process goes on raises
             its generation and takes the cursors, so that what an earlier one has sent is refused
    run      each shard's changes in order, parents first; effects and cursor in one transaction
    end      a shard is done once its cursor is nowhere behind the app's, which is read after the
             replay's last commit; when all are done, the consumer is deleted

On the way a target may go back to what an older change made of it. It is right again at the end,
because the last change of each item then ran here after it ran live, or will still run live. So it
must not be given up half way (model `old_changes`): the consumer stays until the end is reached,
`status` shows it, and the same command goes on with it. From whatever change it goes on, it ends
right, as long as it gets to the end.

In: handlers that say what is to be, and an app that workers run, in this version. Out: counts. On
failure: a change that fails stays, with all that is behind it in its shard; nothing is passed over
but records that nobody can read.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import anyio
import msgspec

from streamkit.archive.reader import LongReader
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import fingerprint_of
from streamkit.core.outcome import PendingChange
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.errors import LeaseLost
from streamkit.fleet.directory import ConsumerEntry, enter
from streamkit.fleet.generation import (
    Generation,
    newest_generation,
    same_consumer,
    write_generation,
)
from streamkit.fleet.hosting import DELETING, REPLAYING, WORKERS
from streamkit.fleet.members import new_worker_name
from streamkit.fleet.rewinding import finish_rewind
from streamkit.model.conditions import Attr
from streamkit.operate.deletion import erase_consumer
from streamkit.operate.past import PastChanges
from streamkit.operate.replay_report import Replayed, ReplayRefused, asked_for, replay_name
from streamkit.operate.replayer import ReplayParts
from streamkit.progress.actions import Verb
from streamkit.progress.commit import Committer
from streamkit.progress.control import START, ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import said_of
from streamkit.progress.paced import PacedCommitter
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.stream.decode import Page, Record

UNREADABLE = "it cannot be read"
_PAUSE_SECONDS = 0.5


class _Stopped(Exception):
    """A change has failed, and stays."""


@dataclass
class ReplayToEnd:
    """One process that runs a replay to the end, or goes on with it."""

    parts: ReplayParts
    past: PastChanges

    def __post_init__(self) -> None:
        """Prepare the handlers."""
        parts = self.parts
        self.live = parts.tables.store(parts.app, parts.machine.aws)
        self.own = CursorStore(self.live.dynamodb, own_space(self.live))
        self.report = parts.report()
        self.me = new_worker_name()
        self._since = int(parts.wish.since)  # changes are stamped to the second
        self._dispatcher: Dispatcher = parts.dispatcher(parts.handlers, looks_back=True)
        self._pacing = Pacing(Pace(), parts.machine.rng)

    async def run(self) -> Replayed:
        """Replay to the end; a report that is `under_way` says that a change has failed.

        Raises:
            ReplayRefused: it cannot begin, or go on.
            RetentionLost: the archive lacks changes.
        """
        try:
            await self._require_live()
            begun = await self._begin()
            try:
                await self._run(begun)
            except _Stopped:
                self.report.stop()
            else:
                await self._end(begun)
        except LeaseLost:
            raise ReplayRefused(["another process goes on with this replay; this one ends"]) from (
                None
            )
        self.report.losses.extend(self.past.losses)
        return self.report

    # -- begin, and end ----------------------------------------------------------------------------

    async def _require_live(self) -> None:
        """Refuse unless workers run the app in this version: they would undo what runs here.

        Raises:
            ReplayRefused: they do not.
        """
        newest, app = await newest_generation(self.live), self.parts.app
        if newest is None:
            raise ReplayRefused([f"{app.name} has never run on this stream"])
        if newest.host not in ("", WORKERS):
            raise ReplayRefused([f"{app.name} is not run by workers, whose cursors say the end"])
        if newest.fingerprint != app.fingerprint():
            raise ReplayRefused(
                [f"{app.name} is deployed with other handlers; replay with the code that is"]
            )
        if newest.rewinding or newest.asks:
            raise ReplayRefused([f"{app.name} is being rewound, which runs all of it again"])

    async def _begin(self) -> Generation:
        """Found the consumer of this replay, or go on with it under the next generation."""
        newest = await newest_generation(self.own)
        if newest is not None and newest.host == DELETING:
            await self._erase(newest)  # one that had ended, or was forgotten
            newest = None
        wanted, asked = fingerprint_of(self.parts.handlers), asked_for(self.parts.wish)
        said = said_of(self.parts.machine.clock, f"replay to the end: {asked}")
        if newest is None:
            founded = Generation(1, wanted, (wanted,), {}, frozenset(), host=REPLAYING)
            founded = replace(founded, since=self._since, start=asked)
            founded = replace(founded, incarnation=uuid.uuid4().hex[:8]).noted(said)
            await write_generation(
                self.own, None, founded, [enter(self.own.space, self.parts.app.table)]
            )
            return founded
        if newest.host != REPLAYING or newest.start != asked:
            raise ReplayRefused(self._other(newest))
        # Other code begins anew: what the code before has done is gone over, change by change.
        anew = newest.rewinding or newest.fingerprint != wanted
        begun = replace(newest, number=newest.number + 1, fingerprint=wanted, known=(wanted,))
        begun = replace(begun, rewinding=anew).noted(said)
        await write_generation(self.own, newest, begun)
        if anew:
            await finish_rewind(self.own, begun)
        return replace(begun, rewinding=False)

    def _other(self, newest: Generation) -> Iterator[str]:
        name, table = self.own.space.consumer, self.parts.app.table
        if newest.host != REPLAYING:
            yield f"{name} is a consumer already; this replay would need its name"
            return
        yield (
            f"another replay to the end is under way, and must get there first: {newest.start}."
            f" One that is as early, of the same handlers, goes over what it has done: to begin it"
            f" instead, streamkit consumers delete {name} --table {table} --yes"
        )

    async def _end(self, begun: Generation) -> None:
        """Delete the consumer, IF no other process has gone on with it."""
        await self._require_live()
        await self._erase(begun)

    async def _erase(self, newest: Generation) -> None:
        space = self.own.space
        entry = ConsumerEntry(self.parts.app.table, space.consumer, space.label)
        await erase_consumer(self.own, entry, newest)

    # -- run ---------------------------------------------------------------------------------------

    async def _run(self, begun: Generation) -> None:
        """Replay each shard to its end, and those that appear meanwhile."""
        done: set[str] = set()
        while todo := [shard for shard in await self.past.shards() if shard not in done]:
            for shard in todo:
                self.parts.wish.tell(f"shard {len(done) + 1} of {len(done) + len(todo)}")
                await self._run_shard(shard, begun)
                done.add(shard)

    async def _run_shard(self, shard: str, begun: Generation) -> None:
        cursor = await self._cursor(shard, begun)
        if cursor.finished:
            return
        taken = await self.own.take(cursor, self.me, begun.number)
        stage = self._stage(taken)
        reader = await self.past.reader(shard, self._since, taken.position)
        while True:
            async for page in self.past.read(reader):
                await self._run_page(stage, page, reader)
            if reader.ended:
                await Checkpoints(stage).end([])
                return
            if not stage.persisted:
                await Checkpoints(stage).position()
            # Read behind the last commit: what the app does from now on comes after all of this.
            if is_reached(reader.position, await self.live.read(shard)):
                return
            await anyio.sleep(_PAUSE_SECONDS)

    async def _cursor(self, shard: str, begun: Generation) -> Cursor:
        found = await self.own.read(shard)
        if found is not None:
            return found
        fresh = Cursor(shard, generation=begun.number, root=shard)
        still = Attr("generation").eq(begun.number) & same_consumer(begun)
        fenced = Fenced(self.own, still, self.parts.machine.rng)
        await fenced.apply(creation(self.own.space, fresh))
        return fresh

    def _stage(self, taken: Cursor) -> CommitStage:
        machine, own = self.parts.machine, self.own
        planner = Planner(own.space, machine.clock, taken.name, parks=False)
        schemas = self.parts.tables.schemas
        target = own.dynamodb, own.space, taken, schemas, machine.rng
        rate = self.parts.rate
        committer = Committer(*target) if rate is None else PacedCommitter(rate, *target)
        queued = QueuedKeys(own, planner.queues)
        parts = planner, committer, queued, self._pacing, ByteBudget()
        return CommitStage(self._dispatcher, *parts, lambda: None)

    async def _run_page(self, stage: CommitStage, page: Page, reader: LongReader) -> None:
        """Run the changes of a page in order, and commit them.

        Raises:
            _Stopped: a change has failed.
        """
        self.report.note_read(len(page.records))
        records = tuple(record for record in page.records if self._wants(record))
        wanted = msgspec.structs.replace(page, records=records)
        pending, later, traffic = await self._dispatcher.dispatch(wanted, stage.shard)
        await stage.run_later(later, pending)
        marker = PendingChange(reader.position, reader.dated)
        stage.enqueue([*pending, marker], traffic=traffic > 0)
        await stage.run()
        left = {id(change) for change in stage.pending}
        self._count([change for change in pending if id(change) not in left])
        if stage.left:
            self._fail(stage)
            raise _Stopped

    def _wants(self, record: Record) -> bool:
        if record.flaw:
            for name, counts in self.report.handlers.items():
                counts.passed[UNREADABLE] += 1
                self.report.note_row(name, record, UNREADABLE)
            return False
        return record.created_at >= self._since and self.parts.wants(record)

    def _count(self, done: Sequence[PendingChange]) -> None:
        for change in done:
            for outcome in change.outcomes:
                counts = self.report.handlers[outcome.handler.name]
                writes = [a for a in outcome.actions.values() if a.verb is not Verb.CHECK]
                if writes or outcome.sends:
                    counts.ran += 1
                    counts.items += len(writes)
                else:
                    counts.nothing += 1

    def _fail(self, stage: CommitStage) -> None:
        """Count the failure of the first change that is left, and list it."""
        change, failure = stage.pending[0], stage.loop.failure
        kind = failure.kind if failure is not None else "unknown"
        for outcome in change.outcomes:
            if outcome.failure is not None and change.record is not None:
                name = outcome.handler.name
                self.report.handlers[name].failed[kind] += 1
                self.report.note_row(name, change.record, f"failed: {kind}")
                return


def own_space(live: CursorStore) -> ControlSpace:
    """Return where the replay to the end of an app's consumer keeps its control items."""
    return replace(live.space, consumer=replay_name(live.space.consumer))


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
    # Of the change behind its position the app may have done the handler already.
    begun = [mark.partition(":")[0] for mark in live.done]
    upto = max(begun, default=live.position)
    return upto == START or (position != START and position >= upto)

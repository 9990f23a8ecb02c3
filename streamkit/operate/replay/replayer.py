"""The bounded replay: old changes run again, each by itself, if its item is as the change left it.

    pages ─► chosen items ─► item still as the change left it? ─► run ─► commit, checked (`as_left`)
                                no: passed over, and counted

In: pages of old changes, and what a replay needs of its app (`ReplayParts`). Out: a report.
`writes` commits what handlers return; `dry-run` only counts it; `shadow` compares it with the
table. Every change runs by itself: through the dispatcher and the commit loop of workers, with a
fence of its own. Mirrors run for all changes, because they read the latest state and check it. A
dry run of a replay to the end runs here, and `shadow`, too: then no change is passed over.

On failure: a change that fails is counted, and the next one runs. A replay has no position: what
was done may be done again, so one that was stopped is begun again. Memory holds a page of each
shard that is being read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio

from streamkit.changes import ItemKey
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import Handler
from streamkit.core.loop import CommitLoop
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import Failure, queue_name
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.reading import Uncommitted
from streamkit.core.shadow import differences
from streamkit.operate.past.past import PastChanges
from streamkit.operate.replay.as_left import (
    ATTRIBUTES_MAX,
    CHANGED,
    PARKED,
    TOO_LARGE,
    AsLeft,
    Image,
)
from streamkit.operate.replay.parts import ReplayParts
from streamkit.operate.replay.progress import ProgressTeller
from streamkit.operate.replay.replayable import (
    LOOKS_BACK,
    AddsUp,
    AudienceTooLarge,
    LooksBack,
)
from streamkit.operate.replay.report import Replayed
from streamkit.progress.actions import ItemRef, Verb, Wire, item_ref
from streamkit.progress.fetch import fetch_by_ref
from streamkit.progress.pacing import Pace, Pacing
from streamkit.stream.decode import Page, Record

_AT_ONCE = 16
"""Items of a page whose changes run at once."""
UNREADABLE = "it cannot be read"
TOO_MANY = "its recipients do not fit in one transaction"
_PASSED = {
    LooksBack.__name__: LOOKS_BACK,
    AddsUp.__name__: "it returned an effect that adds up",
    AudienceTooLarge.__name__: TOO_MANY,
}


@dataclass(frozen=True)
class _Unit:
    """One handler of a replay; `checked` says that its item must be as its change left it."""

    handler: Handler
    dispatcher: Dispatcher
    checked: bool


@dataclass
class Replayer:
    """Runs handlers for old changes, each change and handler by itself."""

    parts: ReplayParts

    def __post_init__(self) -> None:
        """Prepare the handlers."""
        parts = self.parts
        self.machine, self.tables, self.wish = parts.machine, parts.tables, parts.wish
        self.store = self.tables.store(parts.app, self.machine.aws)
        self.report = parts.report()
        self._units = [self._unit(handler) for handler in parts.handlers]
        self._limiter = anyio.Semaphore(_AT_ONCE)

    def _unit(self, handler: Handler) -> _Unit:
        wish = self.wish
        free = handler.converges or handler.name in wish.allow or bool(wish.revision)
        dispatcher = self.parts.dispatcher([handler], looks_back=free or wish.to_end)
        return _Unit(handler, dispatcher, not handler.is_mirror)

    async def run(self, past: PastChanges) -> Replayed:
        """Replay what was wished, some shards at a time."""
        wish = self.wish
        progress = ProgressTeller(wish.since, wish.until, self.machine.clock, wish.tell)

        async def run_shard(shard: str) -> bool:
            async for page in past.pages(shard, wish.since, wish.until):
                await self.run_page(page.records, shard)
                progress.note(shard, page.records[-1].created_at)
            progress.note_done(shard)
            return True

        await past.shards.each(run_shard)
        progress.note_end()
        self.report.losses.extend(past.losses)
        self.report.missing.extend(self.parts.unseen())
        return self.report

    async def run_page(self, records: Sequence[Record], shard: str) -> None:
        """Replay some changes: those of different items at once, those of one item in order."""
        self.report.note_read(len(records))
        items: dict[ItemKey, list[Record]] = {}
        for record in records:
            if record.flaw:
                for unit in self._units:
                    self.report.pass_over(unit.handler.name, record, UNREADABLE)
                continue
            if self.parts.wants(record) and any(u.dispatcher.wants(record) for u in self._units):
                items.setdefault(record.item_key, []).append(record)
        keys = [found[0].keys for found in items.values()]
        now = await fetch_by_ref(self.machine.aws.dynamodb, self.tables.table, keys)
        async with anyio.create_task_group() as group:
            for found in items.values():
                await self._limiter.acquire()
                group.start_soon(self._run_item, found, now, shard)

    async def _run_item(
        self, records: Sequence[Record], now: Mapping[ItemRef, dict[str, Wire]], shard: str
    ) -> None:
        try:
            for record in records:
                item = now.get(item_ref(self.tables.table, record.keys))
                for unit in self._units:
                    if unit.dispatcher.wants(record):
                        await self._run(unit, record, item, shard)
        finally:
            self._limiter.release()

    async def _run(
        self, unit: _Unit, record: Record, item: Mapping[str, Wire] | None, shard: str
    ) -> None:
        """Run a handler for a change, if its item is still as the change left it."""
        counts, image, overtaken = self.report.handlers[unit.handler.name], None, False
        if unit.checked:
            try:
                image = Image.of(record, unit.handler.entity)
            except ValueError:
                self.report.pass_over(unit.handler.name, record, UNREADABLE)
                return
            reason = self._passed(image, item) or await self._queued(unit, record)
            if reason and not self.wish.to_end:
                self.report.pass_over(unit.handler.name, record, reason)
                return
            overtaken = bool(reason)
        pending = await made_of(unit.dispatcher, record, shard)
        if pending is None:
            counts.nothing += 1
            return
        (outcome,) = pending.outcomes
        if outcome.failure is None and self.wish.mode == "write":
            await self._commit(unit, pending, image, shard)
        elif outcome.failure is not None:
            self._failed(unit, record, outcome.failure)
        else:
            await self._judge(unit, record, outcome, compares=not overtaken)

    def _passed(self, image: Image, item: Mapping[str, Wire] | None) -> str:
        if not image.is_in(item):
            return CHANGED
        revision = self.wish.revision
        if revision and (image.left is None or revision not in image.left):
            return f"it has no {revision}"
        return TOO_LARGE if len(image.names) > ATTRIBUTES_MAX else ""

    async def _queued(self, unit: _Unit, record: Record) -> str:
        if unit.handler.commutes:
            return ""
        queue = queue_name(unit.handler.name, record.item_key)
        return PARKED if await self.store.item("lane", queue) is not None else ""

    async def _commit(
        self, unit: _Unit, pending: PendingChange, image: Image | None, shard: str
    ) -> None:
        record, counts = pending.record, self.report.handlers[unit.handler.name]
        if record is None:
            return
        waits = unit.checked and not unit.handler.commutes
        queue = queue_name(unit.handler.name, record.item_key) if waits else ""
        ref = item_ref(self.tables.table, record.keys)
        schemas, rng = self.tables.schemas, self.machine.rng
        fence = AsLeft(self.store, schemas, rng, ref, image, queue)
        planner = Planner(self.store.space, self.machine.clock, shard, parks=False)
        queued, pacing = QueuedKeys(self.store, planner.queues), Pacing(Pace(), rng)
        loop = CommitLoop(fence, unit.dispatcher, planner, queued, schemas, pacing)
        loop.pending.append(pending)
        if self.parts.rate is not None:
            await self.parts.rate.turn()
        await loop.run()
        if loop.failure is not None:
            self._failed(unit, record, loop.failure)
        elif fence.passed:
            self.report.pass_over(unit.handler.name, record, fence.passed)
        elif fence.written:
            counts.ran += 1
            counts.items += fence.written
        else:
            counts.nothing += 1

    async def _judge(
        self, unit: _Unit, record: Record, outcome: Outcome, *, compares: bool
    ) -> None:
        """Count what would be written; compare it with the table, if that is asked for.

        What an older change of an item would write is not compared: a later one goes over it.
        """
        counts = self.report.handlers[unit.handler.name]
        writes = [a for a in outcome.actions.values() if a.verb is not Verb.CHECK]
        if not writes and not outcome.sends:
            counts.nothing += 1
            return
        counts.ran += 1
        counts.items += len(writes)
        for action in writes if compares and self.wish.mode == "shadow" else ():
            schema = self.tables.schemas[action.ref.table]
            key = action.ref.key(schema)
            found = await fetch_by_ref(self.machine.aws.dynamodb, schema, [key])
            names = differences(action, found.get(action.ref), schema)
            if names is None:
                counts.same += 1
            else:
                counts.different += 1
                self.report.note_row(unit.handler.name, record, "different", action, names)

    def _failed(self, unit: _Unit, record: Record, failure: Failure) -> None:
        name, reason = unit.handler.name, _PASSED.get(failure.kind)
        if reason is not None:
            self.report.pass_over(name, record, reason)
            return
        self.report.note_failed(name, record, failure.kind)


async def made_of(dispatcher: Dispatcher, record: Record, shard: str) -> PendingChange | None:
    """Run the one handler of a dispatcher for a change, and commit nothing.

    Returns:
        What it made of the change; None if it does not want it.
    """
    pending, _, _ = await dispatcher.dispatch(Page((record,)), shard)
    if not pending:
        return None
    (outcome,) = pending[0].outcomes
    if outcome.waiting:
        await dispatcher.runs.run(pending[0], outcome, Uncommitted(pending), shard)
    return pending[0]

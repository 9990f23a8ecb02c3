"""The factory of pipelines: what reads a shard, and what commits its changes, for one owner.

In: a cursor that this worker has taken. Out: a pipeline that has not begun. Where its pages come
from depends on the app: the stream, pages shared with other consumers of this process, or an
archive. A writer of an archive gets a pipeline that copies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import anyio.abc

from streamkit.archive.long_pages import LongPages
from streamkit.archive.reader import CopyReader, LongReader
from streamkit.archive.tail import Tail
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.dispatch import Dispatcher
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.core.tables import AppTables
from streamkit.fleet.taken import BEHIND, marks_of, taken
from streamkit.fleet.view import FleetView
from streamkit.model.builds import Build
from streamkit.progress.commit import Committer
from streamkit.progress.control import Cursor
from streamkit.progress.machine import Machine
from streamkit.progress.paced import CommitRate, PacedCommitter
from streamkit.progress.pacing import Pacing
from streamkit.stream.iterators import PageSource
from streamkit.stream.reader import ShardReader, StreamPages
from streamkit.worker.copying import CopyCheckpoints, CopyPipeline, CopyStage
from streamkit.worker.go_live import GoLive
from streamkit.worker.pipeline import Closing, ShardPipeline
from streamkit.worker.reading import ArchiveUse, Reading
from streamkit.worker.taking_over import TakeOver


class PipelineOwner(Closing, Protocol):
    """The shards that the pipelines belong to; `stopping` says that the worker ends."""

    running: dict[str, ShardPipeline]
    stopping: bool


@dataclass
class PipelineFactory:
    """Builds the pipelines of one worker. `wake` is called when a change has been parked."""

    machine: Machine
    tables: AppTables
    dispatcher: Dispatcher
    reading: Reading
    view: FleetView
    wake: Callable[[], object]
    group: anyio.abc.TaskGroup
    owner: PipelineOwner

    def __post_init__(self) -> None:
        """Create the rate at which all shards of the worker catch up, if there is one."""
        used, units, self._rate = self.dispatcher.meters.used, self.reading.units, None
        if units is not None:
            ending, clock = lambda: self.owner.stopping, self.machine.clock
            self._rate = CommitRate(units, lambda: used.write, ending, clock)

    def build(self, cursor: Cursor) -> ShardPipeline:
        """Build the pipeline of a shard that was taken."""
        arn = self.tables.table.stream_arn or ""
        shared, use = None, self.reading.archive
        if self.reading.reads is not None:
            shared = self.reading.reads.join(arn, cursor.name, partial(self._hasten, cursor.name))
        joined = self.view.rollout.joined
        begin = (arn, cursor, self.machine.clock, self.machine.rng, joined.founded if joined else 0)
        pages: PageSource = shared or StreamPages(self.machine.aws)
        parts = (self.reading, self.owner, self.group, shared)
        if use is not None and use.copies:
            copying = self._copy_stage(cursor, use)
            checkpoints, go_live = CopyCheckpoints(copying), self._go_live(copying)
            return CopyPipeline(CopyReader(pages, *begin), copying, checkpoints, go_live, *parts)
        if use is not None:
            chain = use.shards.chain(cursor.name)
            reader: ShardReader = LongReader(LongPages(pages, chain, arn, use.writer), *begin)
        else:
            reader = ShardReader(pages, *begin)
        stage = CommitStage(*self._commits(cursor))
        return ShardPipeline(reader, stage, Checkpoints(stage), self._go_live(stage), *parts)

    def _go_live(self, stage: CommitStage) -> GoLive:
        store, rollout = self.view.known.store, self.view.rollout
        return GoLive(self._builds, lambda: stage.cursor, store, rollout.doubt, self._taking(stage))

    def _taking(self, stage: CommitStage) -> TakeOver | None:
        """Return what a shard takes over from consumers of their own, or gives back to them."""
        joined, store = self.view.rollout.joined, self.view.known.store
        runs = {one.name for one in self.dispatcher.handlers}
        joins = marks_of(joined.joins if joined else ())
        there = taken(stage.cursor, joins.values())
        apart = {name: joins[name] for name in joins.keys() & runs - there}
        strange = {name: joins[name] for name in there - runs}
        if apart or strange or BEHIND in stage.cursor.live:
            return TakeOver(store, stage, self.machine.clock, apart, strange)
        return None

    def _copy_stage(self, cursor: Cursor, use: ArchiveUse) -> CopyStage:
        chain, pk = use.shards.chain(cursor.name), self.tables.table.pk
        tail = Tail(chain, pk, use.flush, cursor.position)
        lineage, running = self.reading.lineage, self.owner.running
        return CopyStage(tail, lineage, lambda: len(running), *self._commits(cursor))

    def _commits(self, cursor: Cursor) -> tuple[Any, ...]:
        """Return the parts of a shard's commit stage."""
        store, clock = self.view.known.store, self.machine.clock
        planner = Planner(store.space, clock, cursor.name, generation=cursor.generation)
        return (
            self.dispatcher,
            planner,
            self._committer(cursor),
            QueuedKeys(store, planner.queues, self.wake),
            Pacing(self.reading.pace, self.machine.rng),
            self.reading.budget,
            self.reading.writes.note,
        )

    def _committer(self, cursor: Cursor) -> Committer:
        machine, space = self.machine, self.view.known.store.space
        parts = machine.aws.dynamodb, space, cursor, self.tables.schemas, machine.rng
        if self._rate is None:
            return Committer(*parts, self.dispatcher.meters)
        return PacedCommitter(self._rate, *parts, self.dispatcher.meters)

    def _hasten(self, shard: str) -> None:
        """Read a shard at once, because another consumer has read a page with records of it."""
        pipeline = self.owner.running.get(shard)
        if pipeline is not None:
            self.reading.pool.hasten(pipeline.poll)

    def _builds(self) -> Mapping[str, Build]:
        joined = self.view.rollout.joined
        return joined.builds if joined else {}

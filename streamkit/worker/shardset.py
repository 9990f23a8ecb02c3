"""The shards of this worker: a pipeline each, from taking the cursor to the shard's end.

    take ──► polled ──► ended ──► finished, with its children ──► take each child
      │         └──► given, stopped ──► released
      └──► lost: another worker has it; nothing of it goes on here

In: cursors to take and names to give, from the coordinator. Out: pipelines in the polling pool. On
failure: a lost lease ends its own shard at once and is a normal event; an error of the stream or
the table ends the worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import anyio
import anyio.abc

from streamkit.core.dispatch import Dispatcher
from streamkit.core.tables import AppTables
from streamkit.errors import LeaseLost, StreamSilent
from streamkit.fleet.taken import is_over
from streamkit.fleet.view import FleetView
from streamkit.observe.logger import get_logger
from streamkit.observe.shards import ShardEvent, ShardHook, Turn, tell
from streamkit.progress.control import Cursor, child_of
from streamkit.progress.machine import Machine
from streamkit.worker.automatic_retries import QueueRetries
from streamkit.worker.holders import Holder
from streamkit.worker.pipeline import ShardPipeline
from streamkit.worker.pipeline_factory import PipelineFactory
from streamkit.worker.reading import Reading

log = get_logger("streamkit.worker")

_TAKEN_AT_ONCE = 16


@dataclass
class ShardSet:
    """Runs pipelines in a task group that the worker owns, in its generation."""

    machine: Machine
    tables: AppTables
    dispatcher: Dispatcher
    reading: Reading
    retries: QueueRetries
    view: FleetView
    group: anyio.abc.TaskGroup
    hook: ShardHook | None = None
    running: dict[str, ShardPipeline] = field(default_factory=dict)
    stopping: bool = False
    paused: bool = False
    enabled: bool = True
    _taking: dict[str, Cursor] = field(default_factory=dict)
    _emptied: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Bound how many shards are taken at once."""
        self.store = self.view.known.store
        self._takers = anyio.Semaphore(_TAKEN_AT_ONCE)
        self._read_at = self.machine.clock.monotonic()
        parts = (self.machine, self.tables, self.dispatcher, self.reading, self.view)
        self._factory = PipelineFactory(*parts, self.retries.wake, self.group, self)

    # -- what the coordinator asks for ---------------------------------------------------------

    @property
    def held(self) -> Mapping[str, Cursor]:
        """Return the cursors of the shards that are read here or about to be taken."""
        return self._taking | {name: pipe.cursor for name, pipe in self.running.items()}

    def take(self, cursor: Cursor) -> None:
        """Begin to take a shard whose cursor was read, unless the worker stops."""
        if cursor.name not in self._taking and cursor.name not in self.running:
            self._taking[cursor.name] = cursor
            self.group.start_soon(self._begin, cursor)

    def give(self, name: str) -> None:
        """Begin to release a shard; its dispatched changes are committed first."""
        if name in self.running:
            self.running[name].stop()

    def lose(self, cursor: Cursor) -> None:
        """Drop a shard, if its cursor says that another worker or a new generation has taken it."""
        pipeline = self.running.get(cursor.name)
        if pipeline is None or cursor.finished:
            return
        mine = pipeline.cursor
        if mine.epoch < cursor.epoch or mine.generation < cursor.generation:
            self.failed(pipeline, LeaseLost("another worker has taken it"))

    def give_all(self) -> None:
        """Begin to release every shard."""
        for pipeline in list(self.running.values()):
            pipeline.stop()

    def pause(self, *, paused: bool) -> None:
        """Stop reading, and write how far everything is read; or continue."""
        if paused == self.paused:
            return
        self.paused = paused
        self.reading.pool.pause(paused=paused)
        self.retries.pause(paused=paused)
        if not paused:
            log.info("consumer.resumed", shards=len(self.running))
            return
        log.info("consumer.paused", shards=len(self.running))
        for pipeline in list(self.running.values()):
            pipeline.write_down()

    async def drain(self) -> None:
        """Release every shard, and take no more."""
        self.stopping = True
        self.give_all()
        while self._taking or self.running:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def abandon(self) -> None:
        """Leave this process's shared reads, when the worker ends without releasing shards."""
        for pipeline in self.running.values():
            pipeline.leave()

    # -- what callers ask about --------------------------------------------------------------------

    def idle(self, pages: int) -> bool:
        """Return whether every shard has served so many pages in a row without a change.

        A paused consumer is idle once its dispatched changes are committed.
        """
        return not self._taking and all(
            (self.paused or pipeline.quiet.number >= pages) and pipeline.waits
            for pipeline in self.running.values()
        )

    @property
    def silence(self) -> float:
        """Return for how many seconds no page was read, although there are shards to read.

        A shard whose page is still with slow handlers does not count.
        """
        if self.paused or not any(pipeline.reads for pipeline in self.running.values()):
            self._read_at = self.machine.clock.monotonic()
        return self.machine.clock.monotonic() - self._read_at

    def note_read(self) -> None:
        """Record that a page was read: the stream answers."""
        self._read_at = self.machine.clock.monotonic()

    # -- the life of a shard -------------------------------------------------------------------

    async def _begin(self, cursor: Cursor) -> None:
        try:
            async with self._takers:
                if self.stopping:
                    return
                me = self.view.me
                # If the process dies after this, `takes` has grown: when several owners in a row
                # vanish without a commit, the next one runs the changes one by one.
                taken = await self.store.take(cursor, me.name, me.generation)
                if is_over(taken):  # its previous owner has finished it, after the cursor was read
                    self.view.found(taken)
                    return
                pipeline = self._factory.build(taken)
                self.running[cursor.name] = pipeline
                keys = pipeline.stage.queued_keys
                holder = Holder(lambda: keys.queues, keys.forget, keys.begin)
                self.retries.watch(cursor.name, holder)
                log.info("shard.taken", shard=cursor.name, epoch=taken.epoch)
                self._tell("taken", cursor.name)
                pipeline.activity.start(pipeline.begin)
                if self.stopping:
                    pipeline.stop()
        except LeaseLost:
            self.view.lost(cursor.name)
        finally:
            del self._taking[cursor.name]
            self._emptied.set()

    def failed(self, pipeline: ShardPipeline, error: Exception) -> bool:
        """Drop the shard of a lost lease and return True; another error ends the worker."""
        if not isinstance(error, LeaseLost):
            return False
        if self.running.get(pipeline.shard) is pipeline:
            log.info("shard.lost", shard=pipeline.shard, reason=str(error))
            self._tell("lost", pipeline.shard)
            self._drop(pipeline)
            self.view.dropped(pipeline.shard)
        return True

    def _tell(self, what: Turn, shard: str) -> None:
        tell(self.hook, ShardEvent(what, self.dispatcher.meters.consumer, shard))

    def _drop(self, pipeline: ShardPipeline) -> None:
        del self.running[pipeline.shard]
        self.retries.unwatch(pipeline.shard)
        self.reading.budget.forget(pipeline.shard)
        pipeline.end()
        self._emptied.set()

    # -- how a shard closes --------------------------------------------------------------------

    async def released(self, pipeline: ShardPipeline) -> None:
        """Release a shard that was given up; its dispatched changes are committed."""
        cursor = pipeline.cursor
        # Everything dispatched is committed. After a death here the next owner waits for a lease,
        # and continues at the same position.
        await self.store.release(cursor)
        log.info("shard.released", shard=cursor.name)
        self._tell("released", cursor.name)
        self.view.found(replace(cursor, owner=None))
        self._drop(pipeline)
        if not self.stopping:
            self.view.heartbeat.tell()  # the claimant may not want it any more

    async def ended(self, pipeline: ShardPipeline) -> None:
        """Finish a shard that was read to its end, and take its children."""
        parent = pipeline.cursor
        children = [
            child_of(
                name,
                parent,
                generation=parent.generation,
                parent_name=parent.name,
                heir=not number,
            )
            for number, name in enumerate(await self._children(parent.name))
        ]
        # One transaction finishes the shard and creates its children's cursors. If children came
        # first, they would be read before their parent's last effects (model `lineage`, rule
        # `finish`); if the process dies here, the next owner reads the end again.
        created = await pipeline.checkpoints.end(children)
        log.info("shard.finished", shard=parent.name, children=len(children))
        self._tell("drained", parent.name)
        self.view.found(pipeline.cursor)
        if not created:
            self.view.await_children(parent.name)
        for child in created:
            self.view.found(child)
            self.take(child)
        if self.stopping or len(created) > 1:
            self.view.heartbeat.tell()
        self._drop(pipeline)

    async def _children(self, parent: str) -> list[str]:
        """Ask for the shard's children once, because its end must be written soon.

        The leader finds children that are listed later. In a large fleet, or when many shards end
        at once, it makes all these calls: ten a second are allowed for all readers together.
        """
        if not self.reading.asks.may_ask():
            return []
        try:
            listing = await self.reading.lineage.children(parent)
        except StreamSilent:
            return []
        self.enabled = listing.enabled
        return sorted(shard.id for shard in listing.shards)

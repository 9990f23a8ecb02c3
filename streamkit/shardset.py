"""The shards that this worker runs: one pipeline each, from taking the cursor to the shard's end.

In: cursors to run. Out: running pipelines; when a shard ends, its children run at once. On
failure: the first error of any pipeline ends them all; a lost lease is one of those.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import anyio.abc

from streamkit.aws import Aws
from streamkit.clock import Clock
from streamkit.commit import Committer
from streamkit.control import Cursor, child_of
from streamkit.cursor import CursorStore
from streamkit.dispatch import Dispatcher
from streamkit.observe.logger import get_logger
from streamkit.pacing import ByteBudget, Pace, Pacing
from streamkit.pipeline import ShardPipeline
from streamkit.planning import Planner
from streamkit.preflight import Surroundings
from streamkit.source.listing import list_children
from streamkit.source.reader import ShardReader

log = get_logger("streamkit.worker")

_AWAITED_SECONDS = 300.0
"""How long children are looked for often; a disabled stream's shards never get any."""


@dataclass
class ShardSet:
    """Runs pipelines in a task group that the worker owns."""

    aws: Aws
    around: Surroundings
    store: CursorStore
    dispatcher: Dispatcher
    budget: ByteBudget
    pace: Pace
    clock: Clock
    rng: random.Random
    owner: str
    generation: int
    group: anyio.abc.TaskGroup
    childless: anyio.Event = field(default_factory=anyio.Event)
    running: dict[str, ShardPipeline] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    stopping: bool = False
    listed: bool = False
    enabled: bool = True
    _begun: set[str] = field(default_factory=set)

    def start(self, cursors: Iterable[Cursor]) -> None:
        """Begin to run these shards, but for the finished ones and those that run already."""
        for cursor in cursors:
            if cursor.name in self._begun:
                continue  # what is known of it here is newer
            self.cursors[cursor.name] = cursor
            if not cursor.finished and not self.stopping:
                self._begun.add(cursor.name)
                self.group.start_soon(self._run, cursor)

    def stop(self) -> None:
        """Ask every pipeline to commit what it has, and end."""
        self.stopping = True
        for pipeline in self.running.values():
            pipeline.stop()

    def idle(self, pages: int) -> bool:
        """Say whether every shard has served so many pages in a row without a change.

        Not while one is being taken or finished, or its children may be listed late.
        """
        if not self.listed or self._begun - self.running.keys() or self.awaits_children():
            return False
        return all(
            pipeline.quiet_pages >= pages and not pipeline.works and not pipeline.reader.ended
            for pipeline in self.running.values()
        )

    def count_anew(self) -> None:
        """Count quiet pages from now on: somebody has written, and wants to see it processed."""
        for pipeline in self.running.values():
            pipeline.quiet_pages = 0

    def forget(self, names: Iterable[str]) -> None:
        """Forget cursors that were swept."""
        for name in names:
            self.cursors.pop(name, None)

    def awaits_children(self) -> bool:
        """Say whether a shard that finished lately has no child yet: it may be listed late."""
        if not self.enabled:
            return False  # its shards are closed, and never get any
        parents = {cursor.parent for cursor in self.cursors.values()}
        now = self.clock.time()
        return any(
            cursor.finished and cursor.name not in parents and now - cursor.ended < _AWAITED_SECONDS
            for cursor in self.cursors.values()
        )

    async def _run(self, cursor: Cursor) -> None:
        taken = await self.store.take(cursor, self.owner, self.generation)
        self.cursors[cursor.name] = taken
        if taken.finished:  # by an owner before, after the cursor was read: the lister goes on
            self._begun.discard(cursor.name)
            self.childless.set()
            return
        pipeline = self._pipeline(taken)
        self.running[cursor.name] = pipeline
        log.info("shard.taken", shard=cursor.name, epoch=taken.epoch)
        try:
            if self.stopping:
                pipeline.stop()
            ended = await pipeline.run()
            if ended:
                await self._finish(pipeline)
            else:
                await self.store.release(pipeline.cursor)
                log.info("shard.released", shard=cursor.name)
        finally:
            del self.running[cursor.name]
            self._begun.discard(cursor.name)
            self.budget.forget(cursor.name)

    def _pipeline(self, cursor: Cursor) -> ShardPipeline:
        space = self.store.space
        arn = self.around.table.stream_arn or ""
        return ShardPipeline(
            ShardReader(
                self.aws, arn, cursor.name, cursor.position, cursor.seen, self.clock, self.rng
            ),
            self.dispatcher,
            Planner(space, self.clock, cursor.name),
            Committer(self.aws.dynamodb, space, cursor, self.around.schemas, self.rng),
            self.store,
            Pacing(self.pace, self.rng),
            self.budget,
            self.clock,
        )

    async def _finish(self, pipeline: ShardPipeline) -> None:
        parent = pipeline.cursor
        names = await self._children(parent.name)
        children = [
            child_of(name, parent, generation=self.generation, parent_name=parent.name)
            for name in names
        ]
        finished = await pipeline.finish(children)
        self.cursors[parent.name] = pipeline.cursor
        log.info("shard.finished", shard=parent.name, children=len(children))
        if not children:
            self.childless.set()
        self.start(finished.children)

    async def _children(self, parent: str) -> list[str]:
        """Ask for the shard's children, once: that it is read to its end must be written soon.

        Children that are listed later are found by the lister, which looks every second then.
        """
        arn = self.around.table.stream_arn or ""
        listing = await list_children(self.aws, arn, parent)
        self.enabled = listing.enabled
        return [shard.id for shard in listing.shards]

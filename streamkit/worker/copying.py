"""Copying: the pipeline of a shard whose pages go to an archive.

It is the pipeline of every shard (`pipeline`), with three differences. A page is not dispatched: it
is added to the tail of the shard's chain. Before the position is written, the tail is stored: the
object is the commit, and the cursor follows it. When records were trimmed before they could be
copied, a hole says so.

In: a leased cursor. Out: links of the shard's chain. On failure: what the archive refuses ends the
worker; a lost lease is normal, and does no harm: a link is created only if there is none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from streamkit.archive.link import ORIGIN, Link
from streamkit.archive.reader import CopyReader
from streamkit.archive.tail import Tail
from streamkit.core.by_item import Run
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.outcome import PendingChange
from streamkit.core.stage import CommitStage
from streamkit.errors import RetentionLost
from streamkit.observe.logger import get_logger
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Page
from streamkit.stream.listing import StreamLineage
from streamkit.worker.pipeline import ShardPipeline

log = get_logger("streamkit.archive")

_MEMORY_BYTES = 64_000_000
"""About how many compressed bytes the tails of all shards of a worker may take together."""


class CopyStage(CommitStage):
    """Writes the position of a shard that is copied, after what was copied is stored.

    `lineage` is told of the shard's children. `shards` returns how many shards share the memory for
    tails.
    """

    def __init__(
        self, tail: Tail, lineage: StreamLineage, shards: Callable[[], int], *parts: Any
    ) -> None:
        super().__init__(*parts)
        self.tail, self.lineage = tail, lineage
        self._shards = shards
        self._storing = anyio.Lock()
        self.closed = False

    @property
    def persist_due(self) -> float:
        """Return the seconds until the tail must be stored, or the position written."""
        if self.tail.waits or self.closed:
            # The time of the last look would hide from the next owner that records are missing. So
            # nothing is written until the hole is. Nor is the position behind the end of a chain,
            # from which the next owner would not find the end: only `end` writes it.
            return self.pacing.quiet_seconds
        room = _MEMORY_BYTES // max(self._shards(), 1)
        return min(super().persist_due, self.tail.due(self.clock.monotonic(), room))

    def enqueue(self, pending: Sequence[PendingChange], *, traffic: bool) -> None:  # noqa: ARG002
        """Add the end of a page; the tail decides how soon it is written."""
        super().enqueue(pending, traffic=False)

    def keep(self, page: Page) -> int:
        """Add a page to the tail; return how many of its records are the application's."""
        return self.tail.add(page.records, self.clock.monotonic())

    async def store(self, *, end: bool = False) -> None:
        """Store what was read, behind the links that other workers have stored."""
        async with self._storing:
            if self.closed:
                return
            dated = int(self.tail.dated)
            reached = ""
            for part in self.tail.take("end" if end else "data"):
                if part.link.kind == "data" and part.link.last <= reached:
                    continue  # another worker has stored it, with what is a hole to this one
                rest = part.behind(reached)
                there = await self.tail.chain.extend(rest.link, rest.lines)
                reached = there.last
                ended = there.kind == "end"
                if part.link.kind == "hole" and not ended:
                    log.error("archive.hole", shard=self.shard, last=there.last)
                else:
                    log.info("archive.stored", shard=self.shard, records=part.lines.count)
                self._stand_behind(there, dated)
                if ended:
                    return  # another worker may have read the end: nothing follows it

    def follow(self, link: Link) -> None:
        """Continue behind a link that an earlier owner, or another worker, has stored."""
        self._stand_behind(link, int(link.until))

    def _stand_behind(self, link: Link, dated: int) -> None:
        self.tail.go_to(link.last)
        self.closed = link.kind == "end"
        if link.last > ORIGIN:
            self._position, self._dated = link.last, dated


@dataclass(frozen=True)
class CopyCheckpoints(Checkpoints):
    """Writes the cursor of a shard that is copied, after what was copied is stored."""

    stage: CopyStage

    async def position(self) -> None:
        """Store the tail, then write the position."""
        if self.stage.tail.waits:
            return
        await self.stage.store()
        if not self.stage.closed:
            await super().position()

    async def end(self, children: Sequence[Cursor]) -> list[Cursor]:
        """Close the chain, and then the shard.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        if self.stage.tail.waits:
            self.stage.tail.lose(gone=True)
        await self.stage.store(end=True)
        await self.stage.lineage.created(children)
        return await super().end(children)


class CopyPipeline(ShardPipeline):
    """Copies one shard to an archive."""

    reader: CopyReader
    stage: CopyStage

    async def begin(self) -> None:
        """Find where the chain ends, and begin to poll there."""
        tip = await self.stage.tail.chain.tip(self.cursor.position)
        if tip is not None:
            log.info("archive.followed", shard=self.shard, last=tip.last)
            self.stage.follow(tip)
            self.reader.go_to(tip)
        if not self.reader.ended:
            self.reading.pool.add(self.poll)

    async def _dispatch(self, page: Page) -> tuple[list[PendingChange], list[Run], int]:
        return [], [], self.stage.keep(page)

    async def _process_flawed(self, page: Page) -> None:
        """Copy records that cannot be read, too: readers of the archive set them aside."""
        pending, _, traffic = await self._dispatch(page)
        self.quiet.note(page, traffic)
        self._hand_over(page, pending, traffic)
        self._go_on(0.0)

    async def _settle(self, lost: RetentionLost) -> None:
        """Record a hole; this decides for all readers that the records are lost."""
        await self.stage.until_quiet()
        await self.stage.store()
        await self.reading.losses.settle(lost)
        self.stage.tail.lose(gone=lost.gone)
        self.reader.resume(lost)
        self._go_on(0.0)

"""Checkpoints: commits that move a shard's cursor without effects of handlers.

They write a position that no commit has carried, the change that is about to run, a loss, which
builds the shard counts live, and the end of the shard with the cursors of its children.

In: the commit stage of a shard. Out: the cursor in the table. On failure: `LeaseLost` (drop
everything, nothing is lost), or what the table refuses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio

from streamkit.core.stage import CommitStage
from streamkit.progress.actions import CHILD, Action
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import creation
from streamkit.progress.fold import fold
from streamkit.progress.verdicts import Again, RefusedCommit


@dataclass(frozen=True)
class Checkpoints:
    """Writes the cursor of one shard when there is nothing else to commit."""

    stage: CommitStage

    async def position(self) -> None:
        """Write the position up to which all is done."""
        await self._write(self.stage.here)

    async def trying(self, position: str) -> int:
        """Record that the change at a position is about to run; return how often that was recorded.

        Everything before it must be committed.
        """
        cursor, here = self.stage.cursor, self.stage.here
        tries = 1 + (cursor.tries if cursor.trying == position else 0)
        await self._write(lambda: here(trying=position, tries=tries), advance=False)
        return tries

    async def live(self, builds: frozenset[str]) -> None:
        """Record for which builds the shard is live; everything read must be committed."""
        await self._write(lambda: self.stage.here(live=builds))

    async def loss(self, seen: int) -> None:
        """Record that records before `seen` (epoch seconds) may have been lost.

        From now on it is known that the position is trimmed, and this no longer counts as a loss.
        """
        self.stage.note_lost_before(seen)
        now = int(self.stage.clock.time())
        await self._write(lambda: self.stage.here(lost=now))

    async def along(self, make: Callable[[], Cursor], actions: list[Action]) -> bool:
        """Write the cursor in one transaction with actions on items of another consumer.

        Returns:
            Whether all were written; none is if the condition of an action does not hold.
        """
        while True:
            batch = Batch(self.stage.advanced(make()), actions)
            verdict = await self._sent(batch)
            if isinstance(verdict, Applied) and verdict.batch is batch:
                return True
            if isinstance(verdict, RefusedCommit | Applied):
                return False

    async def end(self, children: Sequence[Cursor]) -> list[Cursor]:
        """Close the shard: one transaction finishes its cursor and creates its children's cursors.

        Returns:
            The children's cursors.

        Raises:
            LeaseLost: another worker owns the shard.
        """
        stage, now = self.stage, int(self.stage.clock.time())
        there: set[str] = set()
        while True:
            # Only this shard's owner adds queued keys to its chunks, so an empty chunk stays empty.
            chunks = frozenset(await stage.queued_keys.in_chunks(stage.cursor.chunks))
            finished = replace(
                stage.advanced(stage.start),
                state="finished",
                ended=now,
                seen=stage.seen,
                done=frozenset(),
                chunks=chunks,
                children=frozenset(child.name for child in children),
            )
            # Children inherit what the cursor says now: an adopted commit may have queued a key.
            seen, dated = finished.seen, finished.dates_children
            heirs = [replace(c, chunks=finished.chunks, seen=seen, dated=dated) for c in children]
            new = [child for child in heirs if child.name not in there]
            space = stage.queued_keys.store.space
            # One transaction: after a death the shard is finished with all its children, or not.
            actions = [action for child in new for action in creation(space, child)]
            batch = Batch(finished, fold(actions))
            verdict = await self._sent(batch)
            if isinstance(verdict, RefusedCommit):
                there |= {source.handler for source in verdict.sources if source.effect == CHILD}
            elif isinstance(verdict, Applied) and verdict.batch is batch:
                return heirs

    async def _write(self, make: Callable[[], Cursor], *, advance: bool = True) -> None:
        while True:
            then = make()
            batch = Batch(self.stage.advanced(then) if advance else then)
            verdict = await self._sent(batch)
            if isinstance(verdict, Applied) and verdict.batch is batch:
                return

    async def _sent(self, batch: Batch) -> Verdict:
        """Commit a batch, and adopt the one that won, which may be an earlier one."""
        stage = self.stage
        verdict = await stage.committer.commit(batch)
        if isinstance(verdict, Applied):
            await stage.loop.adopt(verdict.batch)
        elif not isinstance(verdict, RefusedCommit):
            pause = stage.pacing.contended(throttled=isinstance(verdict, Again))
            await anyio.sleep(pause)
        return verdict

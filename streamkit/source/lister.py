"""The lister: the one worker that lists the stream's shards and creates cursors for them.

It is a leased cursor itself, and what it creates commits with that cursor, so that a lister which
has lost its lease cannot act on an old listing. It goes on creating the late children of finished
parents for ever, and sweeps finished cursors whose shards can never be listed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio

from streamkit.actions import CHILD, Action
from streamkit.aws import Aws
from streamkit.clock import Clock
from streamkit.commit import Again, Applied, Batch, Committer, Refused
from streamkit.control import Cursor
from streamkit.cursor import CursorStore, creation
from streamkit.errors import InvariantError, LeaseLost
from streamkit.fold import fold
from streamkit.observe.logger import get_logger
from streamkit.pacing import Pacing
from streamkit.source.lineage import Shard, forgotten, next_step
from streamkit.source.listing import is_gone, list_shards

log = get_logger("streamkit.lister")

NAME = "lister"
"""The lister's cursor; no shard can be called so."""
_KEEP_SECONDS = 48 * 3600
"""Shards were seen listed for up to two days after they closed."""
_PER_COMMIT = 40
"""Cursors in one commit: two items each, and one for the lister."""


@dataclass
class Lister:
    """Lists, creates and sweeps, under its own lease."""

    aws: Aws
    stream_arn: str
    store: CursorStore
    committer: Committer
    clock: Clock
    pacing: Pacing
    gone: set[str] = field(default_factory=set)

    async def require_lease(self) -> None:
        """Look whether this worker still leads: on a quiet table no commit would tell it.

        Raises:
            LeaseLost: another worker has taken the lease.
        """
        mine = self.committer.cursor
        there = await self.store.read(NAME)
        if there is None or (there.owner, there.epoch) != (mine.owner, mine.epoch):
            raise LeaseLost("another worker leads")

    async def once(self, cursors: Mapping[str, Cursor]) -> tuple[list[Cursor], list[str]]:
        """List the stream, create every cursor that may exist now, and sweep what can go.

        Returns:
            The new cursors, and the names of those that were swept.

        Args:
            cursors: all cursors of the consumer, read under this lister's lease.

        Raises:
            LeaseLost: another worker is the lister.
        """
        known = dict(cursors)
        created: list[Cursor] = []
        while True:
            listing = await list_shards(self.aws, self.stream_arn)
            generation = self.committer.cursor.generation
            gone = frozenset(self.gone)
            step = next_step(listing.shards, known, gone=gone, generation=generation)
            await self._create(step.create)
            created += step.create
            known |= {cursor.name: cursor for cursor in step.create}
            probed = [shard for shard in step.probe if await self._is_gone(shard)]
            if not probed:
                break
            self.gone.update(probed)
        return created, await self._sweep(listing.shards, known)

    async def _is_gone(self, shard: str) -> bool:
        return await is_gone(self.aws, self.stream_arn, shard)

    async def _create(self, cursors: Sequence[Cursor]) -> None:
        for start in range(0, len(cursors), _PER_COMMIT):
            left = list(cursors[start : start + _PER_COMMIT])
            while left:
                actions = [a for cursor in left for a in creation(self.store.space, cursor)]
                there = await self._commit(fold(actions))
                if not there:
                    break
                left = [cursor for cursor in left if cursor.name not in there]
            log.info("lister.created", shards=len(left))

    async def _sweep(self, listed: Sequence[Shard], cursors: Mapping[str, Cursor]) -> list[str]:
        old = forgotten(listed, cursors, now=self.clock.time(), keep_seconds=_KEEP_SECONDS)
        space = self.store.space
        for start in range(0, len(old), _PER_COMMIT):
            some = old[start : start + _PER_COMMIT]
            removals = [space.delete("cursor", cursor.name) for cursor in some]
            await self._commit(fold([*removals, *(space.leave(c.name) for c in some)]))
            log.info("lister.swept", shards=len(some))
        return [cursor.name for cursor in old]

    async def _commit(self, actions: list[Action]) -> set[str]:
        """Commit with the lister's cursor; return the cursors that exist already, if any do."""
        while True:
            now = self.committer.cursor
            number = int(now.position) + 1 if now.position.isdecimal() else 1
            then = replace(now, position=f"{number:040d}", seen=int(self.clock.time()))
            verdict = await self.committer.commit(Batch(then, actions))
            if isinstance(verdict, Applied):
                return set()
            if isinstance(verdict, Refused):
                return {source.handler for source in verdict.sources if source.effect == CHILD}
            if not isinstance(verdict, Again):
                raise InvariantError(f"the lister's commit is invalid: {verdict}")
            await anyio.sleep(self.pacing.contended(throttled=verdict.throttled))

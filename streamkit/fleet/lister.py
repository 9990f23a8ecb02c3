"""The lister: the one worker that lists the stream's shards and creates cursors for them.

The lister has a leased cursor itself, and what it creates commits with that cursor, so that a
lister that lost its lease cannot act on an old listing. It creates late children of finished
parents whenever they appear, and sweeps finished cursors whose shards can never be listed again.

Finished cursors are in no directory. The lister finds them by the names that the stream lists, and
from child to parent.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from streamkit.errors import InvariantError, LeaseLost
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.taken import Births
from streamkit.model.builds import read_builds
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import CHILD, Action
from streamkit.progress.clock import Clock
from streamkit.progress.commit import Applied, Batch, Committer
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fold import fold
from streamkit.progress.pacing import Pacing
from streamkit.progress.verdicts import Again, RefusedCommit
from streamkit.stream.asking import AskRate
from streamkit.stream.lineage import Shard, forgotten, next_step
from streamkit.stream.listing import Listing, StreamLineage
from streamkit.stream.loss import mark_rebuild

log = get_logger("streamkit.lister")

_LONG_SECONDS = 2.0
"""After so many seconds a lister checks that it still leads before it asks the stream; no lease is
shorter.
"""
_KEEP_SECONDS = 48 * 3600
"""How long finished cursors are kept: shards were seen listed for up to two days after they
closed."""
_PER_COMMIT = 40
"""Cursors in one commit: two items each, and one for the lister."""
_ASKED_SINGLY = 5
"""The most parents whose children are asked for one by one; beyond that, the whole stream is
listed.
"""


@dataclass
class Lister:
    """Lists, creates and sweeps, under its own lease; `cursors` are all that it has read.

    `waiting` are shards that no worker can read, because neither they nor their parents have a
    cursor.
    """

    lineage: StreamLineage
    store: CursorStore
    committer: Committer
    clock: Clock
    pacing: Pacing
    asks: AskRate
    since: int = 0
    births: Births | None = None
    gone: set[str] = field(default_factory=set)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    enabled: bool = True
    waiting: frozenset[str] = frozenset()
    _sure_at: float = -math.inf
    _tidied: frozenset[str] = frozenset()

    async def require_lease(self) -> None:
        """Check that this worker still leads; on a quiet table no commit would reveal it.

        Raises:
            LeaseLost: another worker has taken the lease.
        """
        mine = self.committer.cursor
        there = await self.store.read(LISTER)
        if there is None or (there.owner, there.epoch) != (mine.owner, mine.epoch):
            raise LeaseLost("another worker leads")
        self._sure_at = self.clock.monotonic()

    async def once(self) -> list[Cursor]:
        """List the stream, create every cursor that may exist now, and delete old ones.

        Returns:
            The new cursors.

        Raises:
            LeaseLost: another worker is the lister.
        """
        # A death at any of these steps leaves a table that the next leader continues from: cursors
        # are created IF absent, and deleted only when no listing can show their shards again.
        listing = await self._list()
        created = await self._create_all(listing)
        await self._find_others(listing.shards)
        # While an app takes a handler over, its own lister says which shards have no reader.
        theirs = self.births is not None and self.births.handler
        self.waiting = frozenset(
            shard.id
            for shard in (() if theirs else listing.shards)
            if shard.id not in self.cursors and shard.parent not in self.cursors
        )
        await self._sweep(listing.shards)
        await self._tidy_directories()
        return created

    @property
    def unfinished(self) -> frozenset[str]:
        """Return the shards whose cursors were not finished when they were read."""
        return frozenset(name for name, cursor in self.cursors.items() if not cursor.finished)

    async def children_of(self, parents: Collection[str]) -> list[Cursor]:
        """Create cursors for the children of finished shards, as far as they are listed by now.

        Raises:
            LeaseLost: another worker is the lister.
        """
        if len(parents) > _ASKED_SINGLY:
            return await self._create_all(await self._list())
        shards: list[Shard] = []
        for parent in sorted(parents):
            await self._turn()
            listing = await self.lineage.children(parent)
            self.enabled = listing.enabled
            shards += listing.shards
        return await self._create_all(Listing(tuple(shards), self.enabled))

    async def _list(self) -> Listing:
        return await self.lineage.listed(self._turn)

    async def _turn(self) -> None:
        """Wait for a turn, if this worker still leads.

        While an answer took long, another worker may have begun to lead. If both call, together
        they exceed what the service answers.
        """
        if self.clock.monotonic() - self._sure_at > _LONG_SECONDS:
            await self.require_lease()
        await self.asks.turn()

    async def _create_all(self, listing: Listing) -> list[Cursor]:
        self.enabled = listing.enabled
        if self.lineage.reaches_back and not self.cursors:
            # This consumer may stand in shards that the stream lists no more. A listed descendant
            # would look like an orphan to a new leader, and be read before them.
            self.cursors |= await self.store.read_all()
        created: list[Cursor] = []
        while True:
            await self._learn(listing.shards)
            older = await self.lineage.older(listing.shards, self.cursors)
            await self._learn(older)
            step = next_step(
                (*listing.shards, *older),
                self.cursors,
                gone=frozenset(self.gone),
                generation=self.committer.cursor.generation,
                since=self.since,
            )
            made = await self._with_holds(step.create)
            if self.births is not None:
                made = await self.births.of(made, self.cursors.keys())
            await self._create(made)
            created += made
            self.cursors |= {cursor.name: cursor for cursor in made}
            # The service itself has to say that a parent is gone. That no listing shows it proves
            # nothing: records of a child would be read before its own (model `lineage`,
            # rule `unlisted`).
            probed = [shard for shard in step.probe if await self.lineage.is_gone(shard)]
            if not probed:
                return created
            self.gone.update(probed)

    async def _with_holds(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """Give new trees the queued keys of all shards: it is not known which shards came before.

        A shard's parent may have come and gone while no worker read, with the queued keys of its
        own parent. The parked queues are still in the table, and no later change may overtake them.
        """
        orphans = {c.name for c in cursors if c.parent is not None and c.parent not in self.cursors}
        if not orphans:
            return list(cursors)
        await self._mark_builds()
        there = (await self.store.read_all()).values()
        chunks = frozenset(chunk for cursor in there for chunk in cursor.chunks)
        return [replace(c, chunks=chunks) if c.name in orphans else c for c in cursors]

    async def _mark_builds(self) -> None:
        """Mark the aggregates whose build a shard with an unknown parent may have missed."""
        item = await self.store.item("consumer") or {}
        builds = read_builds(item["builds"]["S"]) if "builds" in item else {}
        missed = {name for name, build in builds.items() if build.state not in ("emptying", "live")}
        await mark_rebuild(self.store, frozenset(missed))

    async def _learn(self, listed: Iterable[Shard]) -> None:
        """Read the cursors of shards that are new here, and of the parents they wait for."""
        new = {shard.id for shard in listed} - self.cursors.keys()
        parents = {shard.parent for shard in listed if shard.id in new and shard.parent}
        running = {name for name in parents if name in self.cursors}
        unread = {name for name in running if not self.cursors[name].finished}
        self.cursors |= await self.store.read_many(new | (parents - running) | unread)

    async def _find_others(self, listed: Iterable[Shard]) -> None:
        """Read the cursors of shards that the stream lists no more, from child to parent."""
        ids = {shard.id for shard in listed}
        unlisted = [c for name, c in self.cursors.items() if name not in ids and not c.finished]
        missing = {cursor.name for cursor in unlisted}
        while True:
            parents = {cursor.parent for cursor in self.cursors.values() if cursor.parent}
            missing |= parents - self.cursors.keys() - self.gone
            found = await self.store.read_many(missing) if missing else {}
            self.cursors |= found
            if not found.keys() - {cursor.name for cursor in unlisted}:
                return
            missing = set()

    async def _tidy_directories(self) -> None:
        """Remove finished cursors from the directories, once their children lead to them."""
        parents = {cursor.parent for cursor in self.cursors.values()}
        finished = (cursor.name for cursor in self.cursors.values() if cursor.finished)
        over = frozenset(finished) & parents
        if over <= self._tidied:
            return
        names = await self.store.names()
        if over & names:
            leave = self.store.space.leave
            await self._commit(fold([leave(name) for name in sorted(over & names)]))
        self._tidied = over

    async def _create(self, cursors: Sequence[Cursor]) -> None:
        for start in range(0, len(cursors), _PER_COMMIT):
            left = list(cursors[start : start + _PER_COMMIT])
            # An archive records a shard before its cursor exists. After a death in between it is
            # recorded once more; in the other order readers of the archive would not find it.
            await self.lineage.created(left)
            while left:
                actions = [a for cursor in left for a in creation(self.store.space, cursor)]
                there = await self._commit(fold(actions))
                if not there:
                    break
                left = [cursor for cursor in left if cursor.name not in there]
            log.info("lister.created", shards=len(left))

    async def _sweep(self, listed: Sequence[Shard]) -> None:
        """Delete old cursors, the oldest first, so that the rest can be found after a crash."""
        space = self.store.space
        while some := self._oldest(listed):
            removals = [space.delete("cursor", cursor.name) for cursor in some]
            await self._commit(fold([*removals, *(space.leave(c.name) for c in some)]))
            log.info("lister.swept", shards=len(some))
            for cursor in some:
                del self.cursors[cursor.name]

    def _oldest(self, listed: Sequence[Shard]) -> list[Cursor]:
        """Return old cursors whose parents have no cursor.

        The archive still lists the children of a parent with a cursor: such a child would be read
        again.
        """
        now = self.clock.time()
        over = forgotten(listed, self.cursors, now=now, keep_seconds=_KEEP_SECONDS)
        first = [cursor for cursor in over if cursor.parent not in self.cursors]
        return sorted(first, key=lambda cursor: cursor.ended)[:_PER_COMMIT]

    async def _commit(self, actions: list[Action]) -> set[str]:
        """Commit with the lister's cursor; return the cursors that exist already, if any do."""
        while True:
            now = self.committer.cursor
            number = int(now.position) + 1 if now.position.isdecimal() else 1
            then = replace(now, position=f"{number:040d}", seen=int(self.clock.time()), takes=0)
            batch = Batch(then, actions)
            # Together with the lister's own cursor: if another worker leads by now, its epoch makes
            # this fail. Otherwise an old listing would create what was read and deleted already
            # (model `lineage`, rule `fenced`).
            verdict = await self.committer.commit(batch)
            # An abandoned plan whose fate was unknown may have won instead: it moved the cursor,
            # but these actions are not in the table yet.
            if isinstance(verdict, Applied) and verdict.batch is not batch:
                continue
            if isinstance(verdict, Applied):
                return set()
            if isinstance(verdict, RefusedCommit):
                return {source.handler for source in verdict.sources if source.effect == CHILD}
            if not isinstance(verdict, Again):
                raise InvariantError(f"the lister's commit is invalid: {verdict}")
            await anyio.sleep(self.pacing.contended(throttled=verdict.throttled))

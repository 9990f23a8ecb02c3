"""Sharing: which shards a worker takes, and which it claims from other workers.

    take    a shard that is assigned to this worker, and that no worker reads
    claim   one that is assigned to it, and that another worker reads, if it holds less than its
            share

The owner of a shard follows from which workers are active in the newest generation, see
`assignment`. Where a process runs several consumers of one stream, the shards are co-located: the
first consumer shares as above, and the others (the *followers*) want the shards that it holds in
this process, independent of their share. So one process reads a shard for all of them. Shards that
no first consumer holds are assigned as usual, after a lease. A worker that follows none claims
nothing from a worker that follows one.

In: the members alive, what is known of the shards, the shards of this worker. Out: takes, claims.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.fleet.assignment import assign
from streamkit.fleet.balance import Balance
from streamkit.fleet.claims import Claims, token
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Member
from streamkit.fleet.shards import Shards
from streamkit.fleet.unread import UnreadShards
from streamkit.fleet.view import FleetView
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor

log = get_logger("streamkit.fleet")

CoLocation = Callable[[], Collection[str] | None]
"""Returns the shards that the process's first consumer holds; None if it does not run."""

_SELDOM = 10
"""The directories are read once in so many looks at the shards."""


def not_co_located() -> None:
    """Return None: this is the only consumer of the stream in this process, or the first."""


@dataclass
class Sharing:
    """Takes and claims shards.

    `refresh_seconds` is the seconds between looks at this worker's shards that other workers read.
    `unread` is what the leader does for shards that no worker reads.
    """

    view: FleetView
    shards: Shards
    claims: Claims
    lease_seconds: float
    refresh_seconds: float
    clock: Clock
    co_location: CoLocation = not_co_located
    deciding: bool = False
    _co_located: frozenset[str] | None = None
    _shared: Any = None
    _news: Any = None
    _refresh_at: float = 0.0
    _directories_at: float = 0.0
    _surveyed_at: float = -math.inf
    _settled_at: float = 0.0
    _targets: dict[str, str] = field(default_factory=dict)
    _free_since: dict[tuple[str, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with no look of the leader."""
        self.unread = UnreadShards(self.view, self.shards, self.lease_seconds, self.clock)

    @property
    def me(self) -> Member:
        """Return what this worker reports about itself."""
        return self.view.me

    @property
    def known(self) -> KnownShards:
        """Return the known shards."""
        return self.view.known

    @property
    def undecided(self) -> bool:
        """Return whether a shard is about to be taken here."""
        return bool(self.deciding or self.view.uncertain or self.claims.pending)

    def may_take(self, now: float) -> bool:
        """Return whether the next look may take a shard, although nothing has changed."""
        held = self.shards.held
        return now >= self._refresh_at and any(name not in held for name in self.known.open)

    async def share(self, everyone: Collection[str]) -> None:
        """Take and claim the shards of this worker.

        Args:
            everyone: the members, dead ones too, as they were read before this call.
        """
        held_by_first = self.co_location()
        self._co_located = None if held_by_first is None else frozenset(held_by_first)
        self.view.heartbeat.say(follows=self._co_located is not None)
        before = dict(self.known.open)  # `everyone` was read after this
        changed = await self._update_view()
        held = self.shards.held
        wanted = {
            name
            for name, cursor in self.known.open.items()
            if name not in held and self._assigned(cursor) == self.me.name
        }
        gone = self.claims.pending - self.known.open.keys()
        if self._co_located is not None:
            gone |= self.claims.pending - self._co_located
        for name in gone:
            self.claims.settle(name)
        # A claimed or uncertain shard is looked at each time. The other shards are looked at now
        # and then: the workers that read them would report a change.
        pending = self.claims.pending - held.keys()
        look_at = pending | (wanted if changed else wanted & self.view.uncertain)
        self.view.uncertain.clear()
        if look_at:
            self.deciding = True
            await self.known.read(look_at)
            self.view.uncertain.update(self.known.open.keys() - before.keys())
            self._decide(look_at, before, everyone)
            self.deciding = False
        if self._co_located is not None:
            await self._follow(self._co_located)
        elif not self.view.uncertain:
            await self._claim()

    def _assigned(self, cursor: Cursor) -> str | None:
        """Return the worker assigned to a shard; a child prefers its parent's last owner.

        A shard that this process's first consumer holds always belongs to this worker.
        """
        if cursor.name in (self._co_located or ()):
            return self.me.name
        heir = self.known.heir(cursor)
        peer = self.view.members.get(heir or "")
        if peer is not None and (peer.state, peer.generation) == ("active", self.me.generation):
            return heir
        return self._targets.get(cursor.root)

    async def _update_view(self) -> bool:
        """Compute the assignment again after a change; return whether to look at all shards."""
        peers = {
            member.name: member.weight
            for member in self.view.members.values()
            if member.state == "active" and member.generation == self.me.generation
        }
        news = {(member.name, member.news) for member in self.view.members.values()}
        told, now = news != self._news, self.clock.monotonic()
        refresh = told or now >= self._refresh_at
        if refresh:
            self._news, self._refresh_at = news, now + self.refresh_seconds
        if told or now >= self._directories_at:
            # The worker that creates shards tells of them; for a worker that has died, the leader
            # does. This only limits how long a mistake lasts.
            self._directories_at = now + _SELDOM * self.refresh_seconds
            await self.known.refresh(fresh=told)
        peers[self.me.name] = self.me.weight
        leaving = frozenset(m.name for m in self.view.members.values() if m.state == "leaving")
        shared = (frozenset(peers.items()), leaving, self.known.roots, self._co_located)
        if shared == self._shared:
            return refresh
        if self._shared is None or self._shared[0] != shared[0]:
            self.claims.new_view()
        self._shared = shared
        self._targets = assign(self.known.roots, peers)
        return True

    def _decide(
        self, names: Collection[str], before: Mapping[str, Cursor], everyone: Collection[str]
    ) -> None:
        """Take shards that no worker reads.

        Args:
            names: shards of this worker that it does not hold.
            before: their cursors as known before they were read now.
            everyone: the members, including dead ones, as read before these cursors were.
        """
        now, claimants = self.clock.monotonic(), self._claimants()
        for name in names:
            cursor = self.known.open.get(name)
            if cursor is None:
                continue  # finished: its children are known now, and the next look takes them
            if name not in self.claims.pending and self._assigned(cursor) != self.me.name:
                continue  # the worker that read its parent is alive
            self.view.rollout.hear(cursor.generation)
            free = self._is_free(cursor, before.get(name), everyone)
            first = claimants.get(token(cursor), self.me.name)
            left = free and (
                self.claims.is_reserved(cursor, now)
                or (first != self.me.name and not self.claims.is_late(cursor, now))
                or not self._may_take(cursor, now)
            )
            if cursor.generation > self.me.generation or left:
                self.view.uncertain.add(name)
            elif free or self.claims.is_overdue(cursor, now):
                self.claims.settle(name)
                self.shards.take(cursor)
            elif not self._is_alive(cursor.owner):
                self.view.uncertain.add(name)

    def _may_take(self, cursor: Cursor, now: float) -> bool:
        """Return whether a free shard may be taken.

        A follower takes at once what the first consumer holds here, and children of what it read.
        """
        here = self._co_located
        if here is None or cursor.name in here or self.known.heir(cursor) == self.me.name:
            return True
        place = (cursor.name, cursor.epoch)
        return now - self._free_since.setdefault(place, now) >= self.lease_seconds

    def _claimants(self) -> dict[str, str]:
        """Return the worker that claims each claimed lease; if several do, the first by name."""
        found: dict[str, str] = {}
        for member in (*self.view.members.values(), replace(self.me, claims=self.claims.tokens)):
            for lease in member.claims:
                found[lease] = min(member.name, found.get(lease, member.name))
        return found

    def _is_free(self, cursor: Cursor, before: Cursor | None, everyone: Collection[str]) -> bool:
        """Return whether no worker reads a shard.

        An owner that is not in the member list has left or was swept, because a worker joins before
        it takes anything. This holds only if the list is younger than what is known of the owner,
        so the cursor must have named the same owner before.
        """
        owner = cursor.owner
        if owner is None or owner == self.me.name:
            return True
        if owner in everyone:
            return owner not in self.view.members
        return before is not None and (before.owner, before.epoch) == (owner, cursor.epoch)

    def _is_alive(self, owner: str | None) -> bool:
        member = self.view.members.get(owner or "")
        return member is not None and member.state not in ("leaving", "unfit")

    async def _follow(self, co_located: frozenset[str]) -> None:
        """Claim shards that the first consumer holds here and another worker reads."""
        open_, before = self.known.open, self._free_since
        self._free_since = {place: at for place, at in before.items() if place[0] in open_}
        wanted = co_located & open_.keys() - self.shards.held.keys() - self.claims.pending
        if not wanted:
            return
        await self.known.read(wanted)
        now = self.clock.monotonic()
        for name in wanted & self.known.open.keys():
            cursor = self.known.open[name]
            if self._is_alive(cursor.owner):
                log.info("shard.claimed", shard=name, owner=cursor.owner)
                self.claims.claim(cursor, now)
                self.view.heartbeat.hurry()
            else:
                self.view.uncertain.add(name)

    async def _claim(self) -> None:
        """Claim the shards that this worker lacks from workers that hold more than their share.

        It claims only once it knows which shards are free, and has read the owners of all shards
        lately.
        """
        weights = {
            member.name: member.weight
            for member in self.view.members.values()
            if member.state == "active" or member.name == self.me.name
        }
        # A shard whose children are not listed yet is about to be held again.
        has = len(self.shards.held.keys() | self.claims.pending) + self.view.heartbeat.childless
        roots = len(self.known.roots) + self.view.heartbeat.childless
        loads = {n: m.held for n, m in self.view.members.items() if n in weights}
        balance = Balance(roots, weights, loads | {self.me.name: has}, self.me.name)
        now = self.clock.monotonic()
        if balance.settled:
            self._settled_at = now
        in_flux = now - self._settled_at < self.lease_seconds and not balance.settled
        if in_flux or not balance.lacking:
            return
        if now - self._surveyed_at > self.lease_seconds:
            self._surveyed_at = now
            await self.known.read(self.known.open)
        claimable = [
            cursor
            for name, cursor in self.known.open.items()
            if self._is_alive(cursor.owner)
            and self.claims.may_claim(name)
            and not self.view.members[cursor.owner or ""].follows
        ]
        mine = {root for root, worker in self._targets.items() if worker == self.me.name}
        for cursor in balance.choose(claimable, mine):
            log.info("shard.claimed", shard=cursor.name, owner=cursor.owner)
            self.claims.claim(cursor, now)
            self.view.heartbeat.hurry()

"""The coordinator: one worker's part in sharing a consumer's shards with the others.

      joining ──► active ──► leaving              every interval: a heartbeat
         │          ▲ │                           more often: a look at the others, then
         ▼          │ ▼                             give   what another worker claims
      waiting     unfit                             take   what is mine and nobody reads
                                                    claim  what is mine and another reads,
    waiting: of an older roll-out                          if I hold less than my share
    unfit: cannot read the stream

Whose a shard is follows from who is active in the newest generation, see `assignment`; workers of
an older one keep what they read until it is claimed, and take nothing.

In: the roster, what is known of the shards, and the shards of this worker. Out: takes and gives. On
failure: `LeaseLost`, when this worker was swept as dead; it comes back under a new name.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.clock import Clock
from streamkit.control import Cursor
from streamkit.errors import LeaseLost
from streamkit.fleet.assignment import assign
from streamkit.fleet.balance import Balance
from streamkit.fleet.claims import Claims, token
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Member, Pulse, Roster
from streamkit.fleet.presence import Presence
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.shards import Shards
from streamkit.observe.logger import get_logger
from streamkit.source.asking import asks_a_second

log = get_logger("streamkit.fleet")

_EAGER = 0.4
"""Part of the time between two looks that passes while a shard is about to change hands."""

_LARGE = 20
"""Workers from which on each looks less often."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often, in seconds: a look at the others, and one at what there is to share."""

    look: float
    refresh: float


@dataclass
class Coordinator:
    """Takes, claims and gives shards. `members` are all that are alive, this one included."""

    roster: Roster
    known: KnownShards
    shards: Shards
    rollout: Rollout
    pulse: Pulse
    claims: Claims
    rhythm: Rhythm
    clock: Clock
    presence: Presence
    members: dict[str, Member] = field(default_factory=dict)
    looked: bool = False
    _deciding: bool = False
    _when_idle: dict[str, int] = field(default_factory=dict)
    _look_now: anyio.Event = field(default_factory=anyio.Event)
    _looked_again: anyio.Event = field(default_factory=anyio.Event)
    _view: Any = None
    _news: Any = None
    _refresh_at: float = 0.0
    _verify_at: float = 0.0
    _surveyed_at: float = -math.inf
    _settled_at: float = 0.0
    _looked_at: float = 0.0
    _targets: dict[str, str] = field(default_factory=dict)
    _unread: dict[tuple[str, int], float] = field(default_factory=dict)
    _uncertain: set[str] = field(default_factory=set)

    # -- what others ask, and tell -------------------------------------------------------------

    @property
    def me(self) -> Member:
        """What this worker says of itself."""
        return self.presence.me

    def lost(self, name: str) -> None:
        """A shard could not be taken, or was lost: look again whose it is."""
        self._uncertain.add(name)

    def found(self, cursor: Cursor) -> None:
        """A cursor was created, or changed, by this worker: look whose it is."""
        self.known.learn(cursor)
        if not cursor.finished:
            self._uncertain.add(cursor.name)
        self.look_soon()

    def await_children(self, shard: str) -> None:
        """A shard was read to its end before any child was listed: the leader has to look."""
        self.presence.await_children(shard)
        self.look_soon()

    @property
    def is_current(self) -> bool:
        """Whether this worker runs the newest roll-out that it knows of."""
        return self.me.generation >= self.rollout.newest

    @property
    def asks(self) -> int:
        """How many calls of DescribeStream a second are this worker's."""
        return asks_a_second(len(self.members), leads=self.me.leads)

    @property
    def settled(self) -> bool:
        """Whether everybody knows of a leader, and no shard is about to be taken here."""
        led = any(member.leads for member in self.members.values())
        undecided = self._deciding or self._uncertain or self.claims.pending
        return self.looked and led and not undecided

    def all_idle(self, *, idle: bool) -> bool:
        """Say whether the others have nothing to read either, and let them know about this worker.

        Each must have said so in a heartbeat that is younger than this worker's own quiet: one that
        has died says nothing any more, and its shards are taken first.
        """
        self.presence.say(idle=idle)
        others = [m for name, m in self.members.items() if name != self.me.name]
        if not idle:
            self._when_idle.clear()
            return False
        for member in others:
            self._when_idle.setdefault(member.name, member.beats)
        return all(m.idle and m.beats > self._when_idle[m.name] for m in others)

    # -- what it does about the others ---------------------------------------------------------

    def look_soon(self) -> None:
        """Look again without waiting."""
        self._look_now.set()

    async def next_look(self) -> None:
        """Wait until this worker has looked at the others again."""
        await self._looked_again.wait()

    async def look_for_ever(self) -> None:
        """Look at the others, again and again.

        Raises:
            LeaseLost: others swept this worker as dead.
        """
        while True:
            await self.look()
            waiting = self._uncertain or self.claims.pending or self.me.childless
            with anyio.move_on_after(self._rest(eager=bool(waiting))):
                await self._look_now.wait()
            self._look_now = anyio.Event()

    def _rest(self, *, eager: bool) -> float:
        """Return the seconds until the next look.

        Each look reads all members, so a large fleet looks less often; a worker that is alone has
        nothing to see but others that come.
        """
        longest = max(self.rhythm.look, self.pulse.lease_seconds / 4)
        if self.me.state == "active" and len(self.members) == 1 and not eager:
            return longest
        seconds = min(self.rhythm.look * max(1.0, len(self.members) / _LARGE), longest)
        return seconds * _EAGER if eager else seconds

    async def look(self) -> None:
        """Look once, and take, claim and give accordingly."""
        asked = self.clock.monotonic()
        everyone = await self.roster.read()
        if self.me.name not in everyone:
            raise LeaseLost("this worker's heartbeat was swept")
        answered = self.clock.monotonic()
        well = self.presence.is_well(self.pulse.lease_seconds)
        self.pulse.observe(everyone.values(), asked=asked, answered=answered, well=well)
        self.members = {
            name: member
            for name, member in everyone.items()
            if name == self.me.name or not self.pulse.is_dead(name)
        }
        await self._verify(asked)
        self._give()
        if self.me.state in ("joining", "waiting", "active"):
            self.presence.say(**await self.rollout.position(self.me, self.members))
        self.presence.note_parents(self.known.parents)
        if self.me.state == "active" and self.is_current:
            await self._share(everyone)
        else:
            self._uncertain.clear()
        self.looked = True
        self._looked_again.set()
        self._looked_again = anyio.Event()

    async def _verify(self, asked: float) -> None:
        """Look whether this worker still owns its shards.

        At once when it stood still for so long that others may have taken them, and now and then
        in any case: on a quiet shard no commit would tell it.
        """
        now = self.clock.monotonic()  # the reading of the roster may be what took so long
        stalled = now - self._looked_at > self.pulse.lease_seconds / 2
        self._looked_at = now
        if stalled:
            self._verify_at = 0.0
        if asked < self._verify_at:
            return
        self._verify_at = asked + self.rhythm.refresh
        for cursor in (await self.roster.store.read_many(self.shards.held)).values():
            self.shards.lose(cursor)

    def _give(self) -> None:
        others = [
            member
            for member in self.members.values()
            if member.name != self.me.name and member.generation >= self.me.generation
        ]
        for name in self.claims.granted(self.shards.held, others, self.clock.monotonic()):
            log.info("shard.given", shard=name)
            self.shards.give(name)

    async def _share(self, everyone: Collection[str]) -> None:
        before = dict(self.known.open)  # the roster, `everyone`, is younger than this
        changed = await self._update_view()
        held = self.shards.held
        wanted = {
            name
            for name, cursor in self.known.open.items()
            if name not in held and self._whose(cursor) == self.me.name
        }
        for name in self.claims.pending - self.known.open.keys():
            self.claims.settle(name)
        # A claimed shard, or one of which nobody knows, is looked at each time; the rest now and
        # then, because it is read by somebody who would say so.
        pending = self.claims.pending - held.keys()
        look_at = pending | (wanted if changed else wanted & self._uncertain)
        self._uncertain.clear()
        if look_at:
            self._deciding = True
            await self.known.read(look_at)
            self._uncertain |= self.known.open.keys() - before.keys()
            self._decide(look_at, before, everyone)
            self._deciding = False
        if not self._uncertain:
            await self._claim()

    def _whose(self, cursor: Cursor) -> str | None:
        """Return whose a shard is: a child is left to who read its parent, others as assigned."""
        heir = self.known.heir(cursor)
        peer = self.members.get(heir or "")
        if peer is not None and (peer.state, peer.generation) == ("active", self.me.generation):
            return heir
        return self._targets.get(cursor.seat)

    async def _update_view(self) -> bool:
        """Find out anew what there is to share, if the fleet or its shards have changed."""
        peers = {
            member.name: member.weight
            for member in self.members.values()
            if member.state == "active" and member.generation == self.me.generation
        }
        news = {(member.name, member.news) for member in self.members.values()}
        refresh = news != self._news or self.clock.monotonic() >= self._refresh_at
        if refresh:
            self._news, self._refresh_at = news, self.clock.monotonic() + self.rhythm.refresh
            await self.known.refresh()
        peers[self.me.name] = self.me.weight
        leaving = frozenset(m.name for m in self.members.values() if m.state == "leaving")
        view = (frozenset(peers.items()), leaving, self.known.seats)
        if view == self._view:
            return refresh
        if self._view is None or self._view[0] != view[0]:
            self.claims.new_view()
        self._view = view
        self._targets = assign(self.known.seats, peers)
        return True

    def _decide(
        self, names: Collection[str], before: Mapping[str, Cursor], everyone: Collection[str]
    ) -> None:
        """Take what nobody reads.

        Args:
            names: shards of this worker that it does not hold.
            before: their cursors as known before they were read now.
            everyone: the members, dead ones too, as read before these cursors were.
        """
        now = self.clock.monotonic()
        claimants = self._claimants()
        for name in names:
            cursor = self.known.open.get(name)
            if cursor is None:
                continue  # finished: its children were learnt, and are looked at next
            if name not in self.claims.pending and self._whose(cursor) != self.me.name:
                continue  # who read its parent is there
            self.rollout.newest = max(self.rollout.newest, cursor.generation)
            free = self._is_free(cursor, before.get(name), everyone)
            first = claimants.get(token(cursor), self.me.name)
            kept = self.claims.is_reserved(name, now) or (
                first != self.me.name and not self.claims.is_late(cursor, now)
            )
            if cursor.generation > self.me.generation or (free and kept):
                self._uncertain.add(name)
            elif free or self.claims.is_overdue(cursor, now):
                self.claims.settle(name)
                self.shards.take(cursor)
            elif not self._is_alive(cursor.owner):
                self._uncertain.add(name)

    def _claimants(self) -> dict[str, str]:
        """Return who claims each lease that is claimed; of several the first by name."""
        found: dict[str, str] = {}
        for member in (*self.members.values(), replace(self.me, claims=self.claims.tokens)):
            for lease in member.claims:
                found[lease] = min(member.name, found.get(lease, member.name))
        return found

    def _is_free(self, cursor: Cursor, before: Cursor | None, everyone: Collection[str]) -> bool:
        """Say whether nobody reads a shard.

        An owner that is nowhere in the roster has left, or was swept: a worker joins before it
        takes anything. So that the roster is younger than what is known of the owner, it counts
        only if the cursor said the same before.
        """
        owner = cursor.owner
        if owner is None or owner == self.me.name:
            return True
        if owner in everyone:
            return owner not in self.members
        return before is not None and (before.owner, before.epoch) == (owner, cursor.epoch)

    def _is_alive(self, owner: str | None) -> bool:
        member = self.members.get(owner or "")
        return member is not None and member.state not in ("leaving", "unfit")

    async def _claim(self) -> None:
        """Claim what this worker lacks from those who hold more than their share.

        Once it is certain about what nobody reads, and has looked lately who reads what.
        """
        weights = {
            member.name: member.weight
            for member in self.members.values()
            if member.state == "active" or member.name == self.me.name
        }
        # A shard whose children are not listed yet is about to be held again.
        has = len(self.shards.held.keys() | self.claims.pending) + self.presence.childless
        seats = len(self.known.seats) + self.presence.childless
        loads = {n: m.held for n, m in self.members.items() if n in weights} | {self.me.name: has}
        balance = Balance(seats, weights, loads, self.me.name)
        now = self.clock.monotonic()
        if balance.settled:
            self._settled_at = now
        in_flux = now - self._settled_at < self.pulse.lease_seconds and not balance.settled
        if in_flux or not balance.lacking:
            return
        if now - self._surveyed_at > self.pulse.lease_seconds:
            self._surveyed_at = now
            await self.known.read(self.known.open)
        claimable = [
            cursor
            for name, cursor in self.known.open.items()
            if self._is_alive(cursor.owner) and self.claims.may_claim(name)
        ]
        mine = {seat for seat, worker in self._targets.items() if worker == self.me.name}
        for cursor in balance.choose(claimable, mine):
            log.info("shard.claimed", shard=cursor.name, owner=cursor.owner)
            self.claims.claim(cursor, now)
            self.presence.hurry()

    # -- for the leader ------------------------------------------------------------------------

    async def audit(self) -> None:
        """Look at every shard, and take those that nobody has read for a while.

        Whoever they are assigned to did not come: it may see the fleet differently, or hang.
        """
        await self.known.refresh()
        await self.known.read(self.known.open)
        now, unread = self.clock.monotonic(), {}
        for name, cursor in self.known.open.items():
            if name in self.shards.held or cursor.owner in self.members:
                continue
            place = (name, cursor.epoch)
            unread[place] = self._unread.get(place, now)
            if now - unread[place] < self.pulse.lease_seconds:
                continue
            log.warning("shard.unread", shard=name, seconds=round(now - unread[place]))
            if cursor.generation <= self.me.generation:
                self.shards.take(cursor)
        self._unread = unread

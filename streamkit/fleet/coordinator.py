"""The coordinator: one worker's part in sharing a consumer's shards with other workers.

      joining ──► active ──► leaving              every interval: a heartbeat
         │          ▲ │                           more often: a look at the members, then
         ▼          │ ▼                             give   what another worker claims
      waiting     unfit                             take   my shards that no worker reads
                                                    claim  my shards that another worker reads,
    waiting: of an older roll-out                          if I hold less than my share
    unfit: cannot read the stream

The owner of a shard follows from which workers are active in the newest generation, see
`assignment`. Workers of an older one keep the shards they read until these are claimed, and take
nothing.

In: the member list, what is known of the shards, and the shards of this worker. Out: takes and
gives. On failure: `LeaseLost`, when this worker was swept as dead; it comes back under a new name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import msgspec

from streamkit.errors import LeaseLost
from streamkit.fleet.claims import Claims
from streamkit.fleet.heartbeat import Heartbeat, late_after
from streamkit.fleet.members import Attendance, Member, MemberList
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.shards import Shards
from streamkit.fleet.sharing import CoLocation, Sharing, not_co_located
from streamkit.fleet.starvation import Starvation
from streamkit.fleet.view import FleetView
from streamkit.observe.logger import get_logger
from streamkit.observe.pricing import ALONE_LOOKS, ALONE_SECONDS
from streamkit.progress.clock import Clock
from streamkit.progress.lease import LeaseWatch

log = get_logger("streamkit.fleet")

_EAGER = 0.4
"""The factor on the time between two looks while a shard is about to change hands."""

_LARGE = 20
"""From this number of workers on, each looks less often."""

_SELDOM = 10
"""A look may be put off by at most so many configured intervals, however long the lease is: a
worker that joins waits for it.
"""


class Rhythm(msgspec.Struct, frozen=True):
    """The seconds between looks: at the members, and at the shards to share."""

    look: float
    refresh: float


@dataclass
class Coordinator:
    """Looks at the other members, shares the shards with them, and gives what they claim.

    `paused` is since when this consumer reads nothing (epoch seconds, 0: it reads).
    """

    view: FleetView
    shards: Shards
    leases: LeaseWatch
    claims: Claims
    rhythm: Rhythm
    clock: Clock
    co_location: CoLocation = not_co_located
    looked: bool = False
    paused: int = 0
    _when_idle: dict[str, int] = field(default_factory=dict)
    _looked_again: anyio.Event = field(default_factory=anyio.Event)
    _verify_at: float = 0.0
    _ran_at: float = 0.0
    _fresh: Attendance = field(default_factory=lambda: Attendance({}))

    def __post_init__(self) -> None:
        """Build the parts that use this coordinator's settings."""
        lease = self.leases.lease_seconds
        self.starvation = Starvation(lease, late_after(lease, self.heartbeat.beat_seconds))
        self.sharing = Sharing(
            self.view,
            self.shards,
            self.claims,
            lease,
            self.rhythm.refresh,
            self.clock,
            self.co_location,
        )

    # -- what callers ask, and tell ----------------------------------------------------------------

    @property
    def me(self) -> Member:
        """Return what this worker reports about itself."""
        return self.view.me

    @property
    def _late(self) -> float:
        """Return the part of a lease after which a heartbeat is late."""
        return self.starvation.late_seconds / self.leases.lease_seconds

    @property
    def heartbeat(self) -> Heartbeat:
        """Return this worker's heartbeat item."""
        return self.view.heartbeat

    @property
    def member_list(self) -> MemberList:
        """Return the member list."""
        return self.view.heartbeat.member_list

    @property
    def rollout(self) -> Rollout:
        """Return the roll-out: which generation of handlers this worker runs in."""
        return self.view.rollout

    @property
    def members(self) -> dict[str, Member]:
        """Return all workers that are alive, including this one."""
        return self.view.members

    @property
    def is_current(self) -> bool:
        """Return whether this worker runs the newest roll-out that it knows of."""
        return self.me.generation >= self.rollout.newest

    @property
    def settled(self) -> bool:
        """Return whether a leader is known, and no shard is about to be taken here."""
        led = any(member.leads for member in self.members.values())
        return self.looked and led and not self.sharing.undecided

    def all_idle(self, *, idle: bool) -> bool:
        """Return whether the other workers are idle too, and report whether this one is.

        Each must have reported so in a heartbeat that is younger than this worker's own idleness. A
        dead worker sends none, so its shards are taken first.
        """
        self.heartbeat.say(idle=idle)
        others = [m for name, m in self.members.items() if name != self.me.name]
        if not idle:
            self._when_idle.clear()
            return False
        for member in others:
            self._when_idle.setdefault(member.name, member.beats)
        return all(m.idle and m.beats > self._when_idle[m.name] for m in others)

    # -- what it does about other members ----------------------------------------------------------

    async def next_look(self) -> None:
        """Wait until this worker has looked at the members again."""
        await self._looked_again.wait()

    async def look_for_ever(self) -> None:
        """Look at the members, again and again.

        Raises:
            LeaseLost: another worker swept this worker as dead.
        """
        while True:
            await self.look()
            silences = self.leases.silences(self.clock.monotonic())
            waiting = self.view.uncertain or self.claims.pending or self.me.childless
            eager = bool(waiting) or any(self._late <= silence < 1 for silence in silences)
            await self._pause(self._rest(eager=eager))

    async def _pause(self, seconds: float) -> None:
        """Wait for the next look, in steps so short that a stall of this process is noticed."""
        part, until = self.leases.lease_seconds / 4, self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            self._ran_at = self.clock.monotonic()
            if await self.view.news(min(left, part)):
                return

    def _rest(self, *, eager: bool) -> float:
        """Return the seconds until the next look.

        Each look reads all members, so a large fleet looks less often. A worker that is alone looks
        less often too: only a new worker could change anything, and it can wait.
        """
        look = self.rhythm.look
        if self.me.state == "active" and len(self._fresh.members) == 1 and not eager:
            return max(look, min(ALONE_SECONDS, ALONE_LOOKS * look))
        longest = max(look, min(self.leases.lease_seconds / 4, _SELDOM * look))
        seconds = min(look * max(1.0, len(self.members) / _LARGE), longest)
        return seconds * _EAGER if eager else seconds

    async def look(self) -> None:
        """Look at the members once, and take, claim and give shards accordingly."""
        asked = self.clock.monotonic()
        seen = await self._read_members(asked)
        everyone, self.paused = seen.members, seen.paused
        if self.me.name not in everyone:
            raise LeaseLost(
                "this worker's heartbeat was deleted, because it was silent for too long"
            )
        answered = self.clock.monotonic()
        self._note_lateness(everyone.values(), asked, answered)
        well = self.heartbeat.is_well(self.leases.times * self.leases.lease_seconds)
        others = {name: member for name, member in everyone.items() if name != self.me.name}
        beats = {name: member.beats for name, member in others.items()}
        leases = {name: member.lease for name, member in others.items()}
        self.leases.observe(beats, asked=asked, answered=answered, well=well, leases=leases)
        self.view.see(
            {
                name: member
                for name, member in everyone.items()
                if name == self.me.name or not self.leases.is_abandoned(name)
            }
        )
        self.shards.pause(paused=bool(self.paused))
        await self._verify(asked)
        await self.rollout.refresh(self.rhythm.refresh, leads=self.me.leads)
        self._give()
        if self.me.state in ("joining", "waiting", "active"):
            self.heartbeat.say(**await self.rollout.position(self.me, self.members))
        self.heartbeat.note_parents(self.view.known.parents)
        if self.me.state == "active" and self.is_current:
            await self.sharing.share(everyone)
        else:
            self.view.uncertain.clear()
        self.looked = True
        self._looked_again.set()
        self._looked_again = anyio.Event()

    async def _read_members(self, now: float) -> Attendance:
        """Read the members, at half the price while nothing happens.

        An eventually consistent reading may be older than the last one. So it may only show that
        nothing has changed: if it shows anything but new heartbeats, all is read again before this
        worker acts on it. Until then this worker behaves as if it had looked a little earlier. Such
        a reading is not used where even that could be wrong: to judge a silence, to find out that a
        worker is *not* a member (a worker may have joined), or to wait for all to be idle.
        """
        cheap = (
            self.me.state == "active"
            and any(member.leads for member in self.members.values())
            and not (self.sharing.undecided or self._when_idle or self.sharing.may_take(now))
            and max(self.leases.silences(now), default=0.0) < self._late
        )
        if cheap:
            seen = await self.member_list.look(fresh=False)
            if seen.is_like(self._fresh):
                return seen
        self._fresh = await self.member_list.look()
        return self._fresh

    def _note_lateness(self, everyone: Iterable[Member], asked: float, answered: float) -> None:
        """Lengthen leases and claims while all workers are late."""
        self.starvation.note(everyone, asked=asked, answered=answered)
        times = self.starvation.times
        if times > self.leases.times:
            log.warning("fleet.starved", lease_seconds=times * self.leases.lease_seconds)
        self.leases.stretch(times)
        self.claims.stretch(times)

    async def _verify(self, asked: float) -> None:
        """Check that this worker still owns its shards.

        It checks at once after a stall so long that other workers may have taken the shards, and
        now and then in any case: on a quiet shard no commit would reveal a loss.
        """
        now = self.clock.monotonic()  # reading the member list may have taken so long
        stalled = now - self._ran_at > self.leases.lease_seconds / 2
        self._ran_at = now
        if stalled:
            self._verify_at = 0.0
        if asked < self._verify_at:
            return
        self._verify_at = asked + self.rhythm.refresh
        # Epochs only grow, so an old reading never makes a worker lose a shard that it owns. But
        # after a stall, what happened a moment ago counts too.
        store, held = self.member_list.store, self.shards.held
        for cursor in (await store.read_many(held, fresh=stalled)).values():
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

    async def audit(self, listed: frozenset[str]) -> None:
        """Look at every shard, as the leader; take those that no worker has read for a while.

        Args:
            listed: the shards that have a cursor, as far as the lister knows.
        """
        await self.sharing.unread.take(listed)

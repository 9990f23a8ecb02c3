"""Liveness: whether any worker of a consumer is alive, for processes that run none of them.

In: a consumer's control items. Out: the names of workers that send heartbeats, or none after
watching for a lease. A worker that left in order is gone at once; one that was killed is watched
until its silence has lasted a lease, on this process's own clock.
"""

from dataclasses import dataclass, field

import anyio

from streamkit.fleet.members import Member, MemberList
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.lease import LeaseWatch


@dataclass
class Liveness:
    """Looks now and then whether workers of a consumer are alive.

    `store` has the consumer's control items, `clock` measures the silence, and `lease_seconds` is
    the lease of workers that do not report theirs. `members` are those of the last look.
    """

    store: CursorStore
    clock: Clock
    lease_seconds: float
    members: dict[str, Member] = field(default_factory=dict)
    _beats: dict[str, int] | None = None
    _none_since: float | None = None
    _watch: LeaseWatch = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no reading."""
        self._watch = LeaseWatch(self.lease_seconds)

    async def alive(self) -> list[str] | None:
        """Return which workers have sent a heartbeat since the last look that found any alive.

        None means that it is not known yet: some were not silent for their own lease.
        """
        beats = await self._look()
        first = self._beats = beats if self._beats is None else self._beats
        alive = [name for name, count in beats.items() if first.get(name) != count]
        if alive:
            self._beats = beats
            return sorted(alive)
        leases = {name: m.lease or self.lease_seconds for name, m in self.members.items()}
        over = all(self._watch.silence(name) >= lease for name, lease in leases.items())
        return [] if over else None

    async def heard_within(self, seconds: float) -> set[str]:
        """Return the members that were not seen to be silent for so long; at first that is all."""
        await self._look()
        return self.members.keys() - self._watch.silent(seconds)

    async def _look(self) -> dict[str, int]:
        asked = self.clock.monotonic()
        self.members = await MemberList(self.store).read()
        beats = {name: member.beats for name, member in self.members.items()}
        self._watch.observe(beats, asked=asked, answered=self.clock.monotonic())
        return beats

    async def is_over(self) -> bool:
        """Return whether no worker was alive at any look of this process for two leases.

        One lease is not enough: a worker may only just begin, or be replaced.
        """
        now = self.clock.monotonic()
        if await self.alive() != []:
            self._none_since = None
            return False
        self._none_since = now if self._none_since is None else self._none_since
        return now - self._none_since >= 2 * self.lease_seconds


async def live_workers(store: CursorStore, clock: Clock, lease_seconds: float) -> list[str]:
    """Watch until a worker sends a heartbeat, or each was silent for its own lease.

    Args:
        store: the consumer's control items.
        clock: measures the silence.
        lease_seconds: the lease of workers that do not report theirs.
    """
    liveness = Liveness(store, clock, lease_seconds)
    while True:
        if (alive := await liveness.alive()) is not None:
            return alive
        await anyio.sleep(min(1.0, lease_seconds / 4))

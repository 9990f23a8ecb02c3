"""Presence: what this worker lets the others know of itself, in its heartbeat.

In: facts, as they become known, and those that each beat asks for. Out: one write an interval, and
one at once when something is new that others wait for. On failure: `LeaseLost`, when the heartbeat
item is gone: others swept this worker as dead.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.clock import Clock
from streamkit.fleet.members import Member, Roster
from streamkit.fleet.starvation import LONGEST

_AWAITED_SECONDS = 300.0
"""How long children are looked for often; a disabled stream's shards never get any."""
_NAMED_MAX = 20
"""Shards named in a member's item; for more than a few the leader lists everything anyway, and
nobody reads on."""


def late_after(lease_seconds: float, beat_seconds: float) -> float:
    """Return how many seconds after the one before a heartbeat is late."""
    return max(lease_seconds / 2, 1.5 * beat_seconds)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a beat says of the moment.

    `held` is how many shards the worker holds, `claims` are the tokens of leases that it claims,
    `idle` says that its shards have nothing to read. `used` is what its calls have used, `waits`
    names which handlers hold up which shards, `(handler, shard)`.
    """

    held: int
    claims: frozenset[str]
    idle: bool
    used: str = ""
    waits: Collection[tuple[str, str]] = ()


Ask = Callable[[], Facts]


@dataclass
class Presence:
    """This worker's member item. What is not said at once is asked for at each beat.

    It says that it was *late* for four leases of `lease_seconds` after a heartbeat that was.
    """

    roster: Roster
    me: Member
    beat_seconds: float
    clock: Clock
    lease_seconds: float = math.inf
    _childless: dict[str, float] = field(default_factory=dict)
    _beat_at: float = 0.0
    _late_at: float = -math.inf
    _urgent: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Let the member say after which silence it counts as dead."""
        if math.isfinite(self.lease_seconds):
            self.me = replace(self.me, lease=self.lease_seconds)

    async def join(self, ask: Ask) -> None:
        """Make this worker's heartbeat item."""
        await self.roster.add(self._beaten(ask()))
        self._beat_at = self.clock.monotonic()

    async def leave(self) -> None:
        """Take it away, after everything is released."""
        await self.roster.remove(self.me.name)

    async def beat_for_ever(self, ask: Ask) -> None:
        """Raise the counter every interval, and write at once what is new.

        Args:
            ask: returns the facts of the moment; each beat calls it.

        Raises:
            LeaseLost: others swept this worker as dead.
        """
        while True:
            with anyio.move_on_after(self.beat_seconds):
                await self._urgent.wait()
            self._urgent = anyio.Event()
            await self.roster.write(self._beaten(ask()))
            before, self._beat_at = self._beat_at, self.clock.monotonic()
            if self._beat_at - before > late_after(self.lease_seconds, self.beat_seconds):
                self._late_at = self._beat_at

    def _beaten(self, facts: Facts) -> Member:
        self.me = replace(
            self.me,
            beats=self.me.beats + 1,
            at=int(self.clock.time()),
            idle=facts.idle,
            held=facts.held,
            claims=facts.claims,
            late=self.clock.monotonic() - self._late_at <= LONGEST * self.lease_seconds,
            used=facts.used,
            waits=frozenset(
                [f"{shard} {name}" for name, shard in sorted(facts.waits)[:_NAMED_MAX]]
            ),
        )
        return self.me

    def is_well(self, lease_seconds: float) -> bool:
        """Say whether this worker's own heartbeats get through."""
        return self.clock.monotonic() - self._beat_at <= late_after(
            lease_seconds, self.beat_seconds
        )

    def say(self, **changes: Any) -> None:
        """Let the others know something of this worker at once."""
        changed = replace(self.me, **changes)
        if changed != self.me:
            self.me = changed
            self.hurry()

    def hurry(self) -> None:
        """Beat without waiting for the interval."""
        self._urgent.set()

    def tell(self) -> None:
        """Let the others look for shards that this worker made or will not take."""
        self.say(news=self.me.news + 1)

    # -- shards that wait for children ---------------------------------------------------------

    @property
    def childless(self) -> int:
        """How many shards ended here before any child of them was listed."""
        return len(self._childless)

    def await_children(self, shard: str) -> None:
        """A shard was read to its end before any child was listed: ask the leader to look."""
        self._childless[shard] = self.clock.monotonic() + _AWAITED_SECONDS
        self._say_childless()

    def note_parents(self, parents: Collection[str | None]) -> None:
        """Await no children of these shards any more."""
        if self._childless:
            now = self.clock.monotonic()
            waiting = self._childless.items()
            self._childless = {n: t for n, t in waiting if t > now and n not in parents}
            self._say_childless()

    def _say_childless(self) -> None:
        self.say(childless=frozenset(sorted(self._childless)[:_NAMED_MAX]))

"""Presence: what this worker lets the others know of itself, in its heartbeat.

In: facts, as they become known. Out: one write an interval, and one at once when something is new
that others wait for. On failure: `LeaseLost`, when the heartbeat item is gone: others swept this
worker as dead.
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


@dataclass
class Presence:
    """This worker's member item. What is not said at once is asked for at each beat.

    `held`, `claims` and `is_idle` are asked: how many shards it holds, the tokens of leases that it
    claims, and whether its shards have nothing to read; `used` what its calls have used, `waits`
    which handlers hold up which shards, `(handler, shard)`.

    It says that it was *late* for four leases of `lease_seconds` after a heartbeat that was.
    """

    roster: Roster
    me: Member
    beat_seconds: float
    clock: Clock
    held: Callable[[], int]
    claims: Callable[[], frozenset[str]]
    is_idle: Callable[[], bool]
    used: Callable[[], str] = str
    waits: Callable[[], Collection[tuple[str, str]]] = tuple
    lease_seconds: float = math.inf
    _childless: dict[str, float] = field(default_factory=dict)
    _beat_at: float = 0.0
    _late_at: float = -math.inf
    _urgent: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Let the member say after which silence it counts as dead."""
        if math.isfinite(self.lease_seconds):
            self.me = replace(self.me, lease=self.lease_seconds)

    async def join(self) -> None:
        """Make this worker's heartbeat item."""
        await self.roster.add(self._beaten())
        self._beat_at = self.clock.monotonic()

    async def leave(self) -> None:
        """Take it away, after everything is released."""
        await self.roster.remove(self.me.name)

    async def beat_for_ever(self) -> None:
        """Raise the counter every interval, and write at once what is new.

        Raises:
            LeaseLost: others swept this worker as dead.
        """
        while True:
            with anyio.move_on_after(self.beat_seconds):
                await self._urgent.wait()
            self._urgent = anyio.Event()
            await self.roster.write(self._beaten())
            before, self._beat_at = self._beat_at, self.clock.monotonic()
            if self._beat_at - before > late_after(self.lease_seconds, self.beat_seconds):
                self._late_at = self._beat_at

    def _beaten(self) -> Member:
        self.me = replace(
            self.me,
            beats=self.me.beats + 1,
            at=int(self.clock.time()),
            idle=self.is_idle(),
            held=self.held(),
            claims=self.claims(),
            late=self.clock.monotonic() - self._late_at <= LONGEST * self.lease_seconds,
            used=self.used(),
            waits=frozenset(
                [f"{shard} {name}" for name, shard in sorted(self.waits())[:_NAMED_MAX]]
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

"""The heartbeat: what this worker tells the other workers about itself.

In: facts as they become known, and facts that each heartbeat asks for. Out: one write per interval,
and one at once when something is new that other workers wait for. On failure: `LeaseLost`, when the
heartbeat item is gone, because another worker swept this worker as dead.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec

from streamkit.errors import LeaseLost
from streamkit.fleet.members import Member, MemberList
from streamkit.fleet.starvation import longest
from streamkit.progress.clock import Clock

_AWAITED_SECONDS = 300.0
"""How long children are looked for often; the shards of a disabled stream never get children."""
_NAMED_MAX = 20
"""The most shards named in a member's item; for more the leader lists everything anyway, and people
do not read on."""
_TEXT_LENGTH = 500
_WRONG_SECONDS = 5.0
"""From here on a clock counts as wrong: a reply tells whole seconds, and takes some itself."""


def late_after(lease_seconds: float, beat_seconds: float) -> float:
    """Return how many seconds after the previous one a heartbeat is late."""
    return max(lease_seconds / 2, 1.5 * beat_seconds)


class Facts(msgspec.Struct, frozen=True):
    """The state of a worker at one heartbeat.

    `held` is how many shards the worker holds. `claims` are the tokens of leases that it claims.
    `idle` says that its shards have nothing to read. `used` is the capacity that its calls have
    used, and `lately` what that was a while ago. `waits` names which handlers hold up which shards,
    as `(handler, shard)`. `refused` is what its archive refuses it.
    """

    held: int
    claims: frozenset[str]
    idle: bool
    used: str = ""
    lately: str = ""
    waits: Collection[tuple[str, str]] = ()
    refused: str = ""


Ask = Callable[[], Facts]


@dataclass
class Heartbeat:
    """This worker's member item; each heartbeat collects the facts that are not written at once.

    After a late heartbeat, the item says *late* for as long as a lease of `lease_seconds` becomes
    in a starved fleet.
    """

    member_list: MemberList
    me: Member
    beat_seconds: float
    clock: Clock
    lease_seconds: float = math.inf
    _childless: dict[str, float] = field(default_factory=dict)
    _beat_at: float = 0.0
    _behind: float = 0.0
    _late_at: float = -math.inf
    _urgent: anyio.Event = field(default_factory=anyio.Event)
    _left: bool = False

    def __post_init__(self) -> None:
        """Set for how long the item says *late*, and the lease that it reports."""
        self._starved_seconds = longest(self.lease_seconds) * self.lease_seconds
        if math.isfinite(self.lease_seconds):
            self.me = replace(self.me, lease=self.lease_seconds)

    async def join(self, ask: Ask) -> None:
        """Create this worker's heartbeat item."""
        self._correct(await self.member_list.add(self._beaten(ask())))
        self._beat_at = self.clock.monotonic()

    async def leave(self) -> None:
        """Delete the heartbeat item, after everything is released."""
        self._left = True  # a heartbeat under way will find no item: this worker was not swept
        await self.member_list.remove(self.me.name)

    async def beat_for_ever(self, ask: Ask) -> None:
        """Raise the counter every interval, and write new facts at once, until this worker leaves.

        Args:
            ask: returns the facts of the moment; each heartbeat calls it.

        Raises:
            LeaseLost: another worker swept this worker as dead.
        """
        while not self._left:
            with anyio.move_on_after(self.beat_seconds):
                await self._urgent.wait()
            self._urgent = anyio.Event()
            try:
                self._correct(await self.member_list.write(self._beaten(ask())))
            except LeaseLost:
                if self._left:
                    return
                raise
            before, self._beat_at = self._beat_at, self.clock.monotonic()
            if self._beat_at - before > late_after(self.lease_seconds, self.beat_seconds):
                self._late_at = self._beat_at

    def _correct(self, time: float | None) -> None:
        """Learn how wrong this machine's clock is, so that people see when a heartbeat came."""
        wrong = 0.0 if time is None else time - self.clock.time()
        self._behind = wrong if abs(wrong) > _WRONG_SECONDS else 0.0

    def _beaten(self, facts: Facts) -> Member:
        self.me = replace(
            self.me,
            beats=self.me.beats + 1,
            at=int(self.clock.time() + self._behind),
            idle=facts.idle,
            held=facts.held,
            claims=facts.claims,
            late=self.clock.monotonic() - self._late_at <= self._starved_seconds,
            used=facts.used,
            lately=facts.lately,
            refused=facts.refused[:_TEXT_LENGTH],
            waits=frozenset(
                [f"{shard} {name}" for name, shard in sorted(facts.waits)[:_NAMED_MAX]]
            ),
        )
        return self.me

    def is_well(self, lease_seconds: float) -> bool:
        """Return whether this worker's own heartbeats reach the table in time."""
        return self.clock.monotonic() - self._beat_at <= late_after(
            lease_seconds, self.beat_seconds
        )

    def say(self, **changes: Any) -> None:
        """Tell the other workers something about this worker at once."""
        if any(getattr(self.me, name) != value for name, value in changes.items()):
            self.me = replace(self.me, **changes)
            self.hurry()

    def hurry(self) -> None:
        """Send a heartbeat without waiting for the interval."""
        self._urgent.set()

    def tell(self) -> None:
        """Ask the other workers to look for shards that this worker created or will not take."""
        self.say(news=self.me.news + 1)

    # -- shards that wait for children ---------------------------------------------------------

    @property
    def childless(self) -> int:
        """Return how many shards ended here before any child of them was listed."""
        return len(self._childless)

    def await_children(self, shard: str) -> None:
        """Ask the leader for the children of a shard that ended before any child was listed."""
        self._childless[shard] = self.clock.monotonic() + _AWAITED_SECONDS
        self._say_childless()

    def note_parents(self, parents: Collection[str | None]) -> None:
        """Stop waiting for children of these shards."""
        if self._childless:
            now = self.clock.monotonic()
            waiting = self._childless.items()
            self._childless = {n: t for n, t in waiting if t > now and n not in parents}
            self._say_childless()

    def _say_childless(self) -> None:
        self.say(childless=frozenset(sorted(self._childless)[:_NAMED_MAX]))

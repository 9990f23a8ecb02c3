"""Starvation: detect that all workers of a fleet are late, so that none counts as dead. Pure.

A fleet that is short of CPU sends late heartbeats, each worker in turn. A worker that has the CPU
for a while would take the other workers' shards, be starved by the added load, and lose them again.
So if *every* worker was late lately, this one included, leases are `longest` times as long. One
worker with heartbeats in time is enough for the normal lease; a worker that dies in such a fleet is
replaced as fast as ever.

`tests/models/starved_fleet.py` shows what simpler rules break: longer leases because of one
worker's lateness, because of its own, because of this moment's alone, or for as long as the silence
lasts.

A member reports that it was late itself. A member that stands still cannot report; the readers of
its heartbeat see it.

In: readings of the member list, on this process's own clock. Out: how many times longer a lease is.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from streamkit.fleet.members import Member

_LEAST, _MOST = 4, 7
"""How many times longer a lease may become: even in a starved fleet a dead worker is replaced."""

_STARVED_SECONDS = 28.0
"""How long a lease becomes in a starved fleet, within these limits. A worker without CPU may stand
still for as long, also if its lease is shorter; and a worker that looks so seldom must not judge
other workers by a shorter lease."""


def longest(lease_seconds: float) -> int:
    """Return how many times longer a lease becomes in a starved fleet."""
    return min(max(math.ceil(_STARVED_SECONDS / lease_seconds), _LEAST), _MOST)


@dataclass(frozen=True, slots=True)
class _Beats:
    """A member's counter: when it last changed, was first read, and was last seen late."""

    count: int
    at: float
    first: float
    late_at: float | None = None


@dataclass
class Starvation:
    """Watches the heartbeats of a fleet; one is late after `late_seconds`.

    For a member with another lease, this time is longer or shorter in proportion.
    """

    lease_seconds: float
    late_seconds: float
    _seen: dict[str, _Beats] = field(default_factory=dict)
    _now: float = 0.0

    def note(self, members: Iterable[Member], *, asked: float, answered: float) -> None:
        """Add a reading of the member list, with the times before and after it.

        If n heartbeats came between two readings, there was a pause of at least the time divided by
        n + 1, however seldom this worker itself has read.
        """
        seen: dict[str, _Beats] = {}
        for member in members:
            before = self._seen.get(member.name) or _Beats(member.beats, answered, answered)
            # A heartbeat that arrives late sets the counter back; the member still sent it.
            beats = abs(member.beats - before.count)
            late = self.late_seconds * (member.lease or self.lease_seconds) / self.lease_seconds
            if member.late or (asked - before.at) / (beats + 1) > late:
                before = replace(before, late_at=asked)
            if beats:
                before = replace(before, count=member.beats, at=answered)
            seen[member.name] = before
        self._seen = seen
        self._now = asked

    @property
    def times(self) -> int:
        """Return how many times longer a lease is now: 1, or the most.

        A member counts once it was watched for long enough to be seen as late.
        """
        known = [b for b in self._seen.values() if self._now - b.first > 2 * self.late_seconds]
        most = longest(self.lease_seconds)
        window = most * self.lease_seconds
        late = [b.late_at is not None and self._now - b.late_at <= window for b in known]
        return most if late and all(late) else 1

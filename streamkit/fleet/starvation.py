"""Starvation: whether all workers of a fleet are late, so that none is dead for being so. Pure.

A fleet that is short of CPU beats late, each worker in turn; whoever has the CPU for a while would
take the others' shards, be starved in turn by the work, and lose them again. So if *every* worker
was late lately, this one included, leases are `LONGEST` times as long. One worker that beats in
time is enough for the normal lease, and one that died among such is replaced as fast as ever.

What simpler rules break is in `tests/models/starved_fleet.py`: to lengthen by one worker's
lateness, by one's own, by this moment's alone, or by as much as the silence takes.

A member says of itself that it was late; one that stands still cannot, and is seen to.

In: readings of the roster, on this process's own clock. Out: how many times longer a lease is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from streamkit.fleet.members import Member

LONGEST = 4
"""How many times longer a lease may be: a dead worker is replaced even in a starved fleet."""


@dataclass(frozen=True, slots=True)
class _Beats:
    """A member's counter and when it was first read; when it was ever read, and last seen late."""

    count: int
    at: float
    first: float
    late_at: float | None = None


@dataclass
class Starvation:
    """Watches the heartbeats of a fleet. `late_seconds` is when one is late."""

    lease_seconds: float
    late_seconds: float
    _seen: dict[str, _Beats] = field(default_factory=dict)
    _now: float = 0.0

    def note(self, members: Iterable[Member], *, asked: float, answered: float) -> None:
        """Note a reading of the roster, with the times before and after it.

        Between two readings with so many beats there was a pause of at least the time divided by
        one more, however seldom this worker itself has looked.
        """
        seen: dict[str, _Beats] = {}
        for member in members:
            before = self._seen.get(member.name) or _Beats(member.beats, answered, answered)
            # A heartbeat that arrives late sets the counter back; it came from there all the same.
            beats = abs(member.beats - before.count)
            if member.late or (asked - before.at) / (beats + 1) > self.late_seconds:
                before = replace(before, late_at=asked)
            if beats:
                before = replace(before, count=member.beats, at=answered)
            seen[member.name] = before
        self._seen = seen
        self._now = asked

    @property
    def times(self) -> int:
        """How many times longer a lease is now: 1, or `LONGEST`.

        A member counts once it was watched for long enough to be seen to be late.
        """
        known = [b for b in self._seen.values() if self._now - b.first > 2 * self.late_seconds]
        window = LONGEST * self.lease_seconds
        late = [b.late_at is not None and self._now - b.late_at <= window for b in known]
        return LONGEST if late and all(late) else 1

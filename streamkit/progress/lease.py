"""Leases: whether an owner has abandoned what it holds. Every lease of streamkit is judged here.

An owner shows that it is alive by a counter that it moves in the table: a worker's heartbeats, or
the commits of a scan's segment. It has abandoned its lease once two fresh readings, a lease apart
on the clock of the process that judges, show the same counter. Wall clocks are never compared.

In: readings of counters, with the times before and after each. Out: how long each stands still.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass
class LeaseWatch:
    """Watches counters, by name, on this process's monotonic clock.

    Silence counts from when a counter was first *answered* to when it was last *asked* for, so that
    a slow reading makes no owner look dead.

    An owner that says how long its lease is (`leases`, in seconds) is judged by that: it sends its
    heartbeats accordingly, so that processes with different settings may watch each other.

    A process that could not look for `blind_seconds` forgets its readings: it does not know what
    the owners did meanwhile. In a starved fleet both durations are `times` as long, see
    `fleet.starvation`.
    """

    lease_seconds: float
    blind_seconds: float = math.inf
    times: int = 1
    leases: Mapping[str, float] = field(default_factory=dict)
    _seen: dict[str, tuple[Hashable, float, float]] = field(default_factory=dict)
    _answered: float = 0.0

    def stretch(self, times: int) -> None:
        """Let leases last so many times as long from now on."""
        self.times = times

    def observe(
        self,
        counters: Mapping[str, Hashable],
        *,
        asked: float,
        answered: float,
        well: bool = True,
        leases: Mapping[str, float] | None = None,
    ) -> None:
        """Add a reading of all counters; the times are those before and after it.

        If this process's own heartbeats do not reach the table (not `well`), no owner counts as
        silent: their heartbeats may fail for the same reason. `leases` are those that owners say.
        """
        self.leases = leases or {}
        blind = answered - self._answered > self.times * self.blind_seconds or not well
        self._answered = answered
        before, self._seen = {} if blind else self._seen, {}
        for name, counter in counters.items():
            self._note(name, counter, before.get(name), asked=asked, answered=answered)

    def note(self, name: str, counter: Hashable, *, asked: float, answered: float) -> None:
        """Add a reading of one counter alone, with the times before and after the reading."""
        self._note(name, counter, self._seen.get(name), asked=asked, answered=answered)

    def _note(
        self,
        name: str,
        counter: Hashable,
        before: tuple[Hashable, float, float] | None,
        *,
        asked: float,
        answered: float,
    ) -> None:
        stands = before is not None and before[0] == counter
        since = before[1] if before is not None and stands else answered
        self._seen[name] = (counter, since, asked)

    def silence(self, name: str) -> float:
        """Return the seconds for which a counter was seen to stand still."""
        _, since, asked = self._seen.get(name, (0, 0.0, 0.0))
        return asked - since

    def lease_of(self, name: str) -> float:
        """Return the seconds of silence after which an owner has abandoned what it holds."""
        return self.times * (self.leases.get(name) or self.lease_seconds)

    def silences(self, now: float) -> list[float]:
        """Return each silence that a reading would show now, as a part of its owner's lease.

        A reading that completes a silence must be strongly consistent: an older one may lack the
        last heartbeat. The reading that begins it need not be: the counter has moved before it.
        """
        return [(now - since) / self.lease_of(name) for name, (_, since, _) in self._seen.items()]

    def silent(self, seconds: float) -> list[str]:
        """Return the names whose counters stood still for so long."""
        return [name for name in self._seen if self.silence(name) >= seconds]

    def is_abandoned(self, name: str) -> bool:
        """Return whether a counter has stood still for a lease."""
        return self.silence(name) >= self.lease_of(name)

"""Liveness: whether any worker of a consumer is alive, for operators who must be alone.

In: a consumer's control items. Out: the names of workers that beat, or none after watching for a
lease. A worker that left politely is gone at once; one that was killed is watched until its
silence has lasted a lease, on this process's own clock.
"""

import anyio

from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.fleet.members import Pulse, Roster


async def live_workers(store: CursorStore, clock: Clock, lease_seconds: float) -> list[str]:
    """Watch until somebody beats, or everybody has been silent for a lease."""
    roster, pulse = Roster(store), Pulse(lease_seconds)
    first: dict[str, int] | None = None
    while True:
        asked = clock.monotonic()
        members = await roster.read()
        pulse.observe(members.values(), asked=asked, answered=clock.monotonic())
        first = {m.name: m.beats for m in members.values()} if first is None else first
        alive = [m.name for m in members.values() if first.get(m.name) != m.beats]
        if alive or all(pulse.is_dead(name) for name in members):
            return sorted(alive)
        await anyio.sleep(min(1.0, lease_seconds / 4))

"""Liveness: whether any worker of a consumer is alive, for operators who must be alone.

In: a consumer's control items. Out: the names of workers that beat, or none after watching for a
lease. A worker that left politely is gone at once; one that was killed is watched until its
silence has lasted a lease, on this process's own clock.
"""

import anyio

from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.fleet.members import Roster
from streamkit.lease import LeaseWatch


async def live_workers(store: CursorStore, clock: Clock, lease_seconds: float) -> list[str]:
    """Watch until somebody beats, or everybody has been silent for a lease."""
    roster, watch = Roster(store), LeaseWatch(lease_seconds)
    first: dict[str, int] | None = None
    while True:
        asked = clock.monotonic()
        members = await roster.read()
        beats = {name: member.beats for name, member in members.items()}
        watch.observe(beats, asked=asked, answered=clock.monotonic())
        first = beats if first is None else first
        alive = [name for name, count in beats.items() if first.get(name) != count]
        if alive or all(watch.is_abandoned(name) for name in members):
            return sorted(alive)
        await anyio.sleep(min(1.0, lease_seconds / 4))

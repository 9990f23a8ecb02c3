"""Liveness: whether any worker of a consumer is alive, for operators whose command needs none.

In: a consumer's control items. Out: the names of workers that send heartbeats, or none after
watching for a lease. A worker that left in order is gone at once; one that was killed is watched
until its silence has lasted a lease, on this process's own clock.
"""

import anyio

from streamkit.fleet.members import MemberList
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.lease import LeaseWatch


async def live_workers(store: CursorStore, clock: Clock, lease_seconds: float) -> list[str]:
    """Watch until a worker sends a heartbeat, or each was silent for its own lease.

    Args:
        store: the consumer's control items.
        clock: measures the silence.
        lease_seconds: the lease of workers that do not report theirs.
    """
    member_list, watch = MemberList(store), LeaseWatch(lease_seconds)
    first: dict[str, int] | None = None
    while True:
        asked = clock.monotonic()
        members = await member_list.read()
        beats = {name: member.beats for name, member in members.items()}
        watch.observe(beats, asked=asked, answered=clock.monotonic())
        first = beats if first is None else first
        alive = [name for name, count in beats.items() if first.get(name) != count]
        leases = {name: member.lease or lease_seconds for name, member in members.items()}
        if alive or all(watch.silence(name) >= lease for name, lease in leases.items()):
            return sorted(alive)
        await anyio.sleep(min(1.0, lease_seconds / 4))

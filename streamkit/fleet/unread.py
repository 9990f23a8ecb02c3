"""Unread shards: the leader takes what no worker has read for a lease.

The worker that such a shard is assigned to did not take it: it may see the fleet differently, or
hang. In: the shards that have a cursor. Out: takes, and which shards no worker had read for a while
at the last look.
"""

from dataclasses import dataclass, field

from streamkit.fleet.shards import Shards
from streamkit.fleet.view import FleetView
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor

log = get_logger("streamkit.fleet")


@dataclass
class UnreadShards:
    """Looks for the shards that no worker reads; `late` are those that the last look found."""

    view: FleetView
    shards: Shards
    lease_seconds: float
    clock: Clock
    late: tuple[Cursor, ...] = ()
    _listed: frozenset[str] = frozenset()
    _since: dict[tuple[str, int], float] = field(default_factory=dict)

    async def take(self, listed: frozenset[str]) -> None:
        """Look at every shard, and take those that no worker has read for a while.

        If a shard is new to the leader, its maker may have died before it told of it.

        Args:
            listed: the shards that have a cursor, as far as the lister knows.
        """
        known = self.view.known
        before, held = set(known.open), self.shards.held
        await known.read((listed - self._listed | before) - held.keys())
        self._listed = listed
        if known.open.keys() - before:
            self.view.heartbeat.tell()
        now, since, held = self.clock.monotonic(), {}, self.shards.held
        late: list[Cursor] = []
        for name, cursor in known.open.items():
            if name in held or cursor.owner in self.view.members:
                continue
            place = (name, cursor.epoch)
            since[place] = self._since.get(place, now)
            if now - since[place] < self.lease_seconds:
                continue
            late.append(cursor)
            log.warning("shard.unread", shard=name, seconds=round(now - since[place]))
            if cursor.generation <= self.view.me.generation:
                self.shards.take(cursor)
        self._since, self.late = since, tuple(late)

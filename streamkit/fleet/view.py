"""The fleet as one worker sees it: members, shards, its generation, and its own heartbeat item.

The view is made before the worker's shards and its coordinator, which share it: the shards record
what happened to them, and the coordinator reads that at its next look.
"""

from dataclasses import dataclass, field

import anyio

from streamkit.fleet.heartbeat import Heartbeat
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Member
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.taken import is_over
from streamkit.progress.control import Cursor
from streamkit.stream.asking import asks_a_second


@dataclass
class FleetView:
    """What one worker knows of its fleet.

    `members` are all that are alive, including this worker. `uncertain` are shards to look at
    again. `consumers` counts the consumers of the same stream in this process.
    """

    heartbeat: Heartbeat
    known: KnownShards
    rollout: Rollout
    consumers: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    _look_now: anyio.Event = field(default_factory=anyio.Event)

    @property
    def me(self) -> Member:
        """Return what this worker reports about itself."""
        return self.heartbeat.me

    @property
    def asks(self) -> int:
        """Return how many DescribeStream calls this worker may make per second."""
        return asks_a_second(len(self.members), leads=self.me.leads, consumers=self.consumers)

    def see(self, members: dict[str, Member]) -> None:
        """Set which workers are alive."""
        self.members = members

    def lost(self, name: str) -> None:
        """Look again at a shard that could not be taken."""
        self.uncertain.add(name)

    def dropped(self, name: str) -> None:
        """Look at once why a shard was lost: to another worker, or to a new generation.

        A step of a rebuild raises all cursors. Without this, the worker that lost one would notice
        when the leader next reads the consumer, after up to a listing interval: the shard may by
        now be assigned to a worker that has nothing to lose, and that sees no reason to look.
        """
        self.uncertain.add(name)
        self.rollout.doubt()
        self.look_soon()

    def found(self, cursor: Cursor) -> None:
        """Add a cursor that this worker created or changed, and look soon which worker owns it."""
        self.known.learn(cursor)
        if not is_over(cursor):
            self.uncertain.add(cursor.name)
        self.look_soon()

    def await_children(self, shard: str) -> None:
        """Ask the leader for the children of a shard that ended before any was listed."""
        self.heartbeat.await_children(shard)
        self.look_soon()

    def look_soon(self) -> None:
        """Make the coordinator look again without waiting."""
        self._look_now.set()

    async def news(self, seconds: float) -> bool:
        """Wait until there is something to look at, or so many seconds; return whether there is."""
        with anyio.move_on_after(seconds) as waiting:
            await self._look_now.wait()
        self._look_now = anyio.Event()
        return not waiting.cancelled_caught

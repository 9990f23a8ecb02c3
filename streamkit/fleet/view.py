"""The fleet as one worker sees it: members, shards, its generation, and what it says itself.

It is made before the worker's shards and its coordinator, which meet here: the shards tell what
became of them, and the coordinator looks at that with its next look.
"""

from dataclasses import dataclass, field

import anyio

from streamkit.control import Cursor
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Member
from streamkit.fleet.presence import Presence
from streamkit.fleet.rollout import Rollout
from streamkit.source.asking import asks_a_second


@dataclass
class FleetView:
    """What one worker knows of its fleet.

    `members` are all that are alive, this worker included. `uncertain` are shards to look at again.
    `consumers` counts those of the same stream in this process.
    """

    presence: Presence
    known: KnownShards
    rollout: Rollout
    consumers: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    _look_now: anyio.Event = field(default_factory=anyio.Event)

    @property
    def me(self) -> Member:
        """What this worker says of itself."""
        return self.presence.me

    @property
    def asks(self) -> int:
        """How many calls of DescribeStream a second are this worker's."""
        return asks_a_second(len(self.members), leads=self.me.leads, consumers=self.consumers)

    def see(self, members: dict[str, Member]) -> None:
        """Note which workers are alive."""
        self.members = members

    def lost(self, name: str) -> None:
        """Note a shard that could not be taken, or was lost: look again whose it is."""
        self.uncertain.add(name)

    def found(self, cursor: Cursor) -> None:
        """Note a cursor that this worker created or changed, and look soon whose it is."""
        self.known.learn(cursor)
        if not cursor.finished:
            self.uncertain.add(cursor.name)
        self.look_soon()

    def await_children(self, shard: str) -> None:
        """Ask the leader for the children of a shard that ended before any was listed."""
        self.presence.await_children(shard)
        self.look_soon()

    def look_soon(self) -> None:
        """Let the coordinator look again without waiting."""
        self._look_now.set()

    async def news(self, seconds: float) -> None:
        """Wait until something is to be looked at, or so many seconds."""
        with anyio.move_on_after(seconds):
            await self._look_now.wait()
        self._look_now = anyio.Event()

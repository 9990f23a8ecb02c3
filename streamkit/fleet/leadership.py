"""Leadership: one worker at a time holds the lister's lease, and with it the consumer's shards.

A free lease is taken at once; one whose owner is silent for a lease duration is taken with the
next epoch. Who waits says so, once.
"""

from dataclasses import dataclass

import anyio

from streamkit.actions import OURS
from streamkit.conditions import absent
from streamkit.control import Cursor, cursor_attributes
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.fleet.members import Watch
from streamkit.observe.logger import get_logger
from streamkit.source.lister import NAME

log = get_logger("streamkit.fleet")


@dataclass
class Leadership:
    """The way to the lister's lease."""

    store: CursorStore
    watch: Watch
    owner: str
    interval_seconds: float

    async def free_or_abandoned(self) -> Cursor:
        """Wait until nobody alive holds the lease; return its cursor as read."""
        told: str | None = None
        while True:
            cursor = await self.store.read(NAME) or await self._create()
            holder = cursor.owner
            if holder is None or holder == self.owner:
                return cursor
            if await self.watch.is_abandoned(holder):
                log.info("worker.abandoned", owner=holder)
                self.watch.forget(holder)
                return cursor
            if holder != told:
                told = holder
                log.info("worker.waiting", owner=holder, lease_seconds=self.watch.lease_seconds)
            await anyio.sleep(min(self.interval_seconds, 1.0))

    async def take(self, cursor: Cursor, generation: int) -> Cursor | None:
        """Take the lease as it was read; None if another worker was faster."""
        try:
            return await self.store.take(cursor, self.owner, generation)
        except LeaseLost:
            return None

    async def _create(self) -> Cursor:
        cursor = Cursor(NAME)
        space = self.store.space
        action = space.update("cursor", NAME)
        action.sets |= cursor_attributes(cursor)
        action.guards.append((Guard(absent), OURS))
        try:
            await self.store.write(action)
        except LeaseLost:
            return await self.store.read(NAME) or cursor
        return cursor

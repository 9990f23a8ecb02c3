"""Membership: one heartbeat item a worker, and how others tell that a worker is gone.

A worker is *abandoned* when two fresh reads of its heartbeat, a lease duration apart on the
reader's own monotonic clock, show the same counter. Clocks of two machines are never compared
(the algorithm is the DynamoDB Lock Client's). A worker's name is new with every start, and its
item is never made again after its end, so an old process cannot come back to life under it.
"""

import os
import socket
import uuid
from dataclasses import dataclass, field

import anyio

from streamkit.actions import OURS, Action
from streamkit.aws import patiently
from streamkit.clock import Clock
from streamkit.conditions import present
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.observe.logger import get_logger

log = get_logger("streamkit.fleet")


def new_worker_name() -> str:
    """Name one start of one worker process: where it runs, for people, and a unique part."""
    return f"{socket.gethostname()[:40]}/{os.getpid()}/{uuid.uuid4().hex[:12]}"


@dataclass
class Member:
    """This worker, as the others see it."""

    store: CursorStore
    name: str
    interval_seconds: float
    clock: Clock
    fingerprint: str = ""
    beats: int = 0

    async def join(self) -> None:
        """Make the heartbeat item, and list it."""
        space = self.store.space
        roster = space.update("members")
        roster.unions["names"] = {"SS": [self.name]}
        await self.store.write(self._beat(created=True))
        await self.store.write(roster)

    async def beat_for_ever(self) -> None:
        """Raise the counter every interval.

        A beat that the table refuses for the moment is repeated: throttling is no reason to stop,
        and if others take over meanwhile the commits say so.

        Raises:
            LeaseLost: the item is gone; somebody swept this worker as dead.
        """
        while True:
            await anyio.sleep(self.interval_seconds)
            self.beats += 1
            await self.store.write(self._beat(created=False))

    async def leave(self) -> None:
        """Take the heartbeat item away, after everything is released."""
        await _remove(self.store, self.name)

    def _beat(self, *, created: bool) -> Action:
        action = self.store.space.update("member", self.name)
        action.sets |= {
            "counter": {"N": str(self.beats)},
            "at": {"N": str(int(self.clock.time()))},
            "fingerprint": {"S": self.fingerprint},
        }
        if not created:
            action.guards.append((Guard(present), OURS))
        return action


@dataclass
class Watch:
    """Watches the heartbeats of others, on this process's own clock."""

    store: CursorStore
    clock: Clock
    lease_seconds: float
    _seen: dict[str, tuple[str | None, float]] = field(default_factory=dict)

    async def is_abandoned(self, owner: str) -> bool:
        """Read a worker's heartbeat, and say whether it has stood still for a lease duration."""
        asked = self.clock.monotonic()  # a reply that took long must not make the silence longer
        item = await self.store.item("member", owner)
        counter = None if item is None else item["counter"]["N"]
        before = self._seen.get(owner)
        if before is None or before[0] != counter:
            self._seen[owner] = (counter, self.clock.monotonic())
            return False
        return asked - before[1] >= self.lease_seconds

    def forget(self, owner: str) -> None:
        """Stop watching a worker."""
        self._seen.pop(owner, None)


async def runs_somewhere(store: CursorStore, watch: Watch, fingerprint: str, me: str) -> bool:
    """Say whether another worker that is not known to be dead runs the handlers of a roll-out."""
    roster = await store.item("members") or {}
    for name in roster.get("names", {"SS": []})["SS"]:
        item = await store.item("member", name) if name != me else None
        if item is None or item.get("fingerprint") != {"S": fingerprint}:
            continue
        if not await watch.is_abandoned(name):
            return True
    return False


async def sweep_members(store: CursorStore, watch: Watch, me: str) -> None:
    """Remove the heartbeat items of workers that `watch` takes for dead.

    A worker that was only paused finds its item gone at its next beat, and joins under a new name.
    """
    roster = await store.item("members") or {}
    for name in roster.get("names", {"SS": []})["SS"]:
        if name != me and await watch.is_abandoned(name):
            await _remove(store, name)
            watch.forget(name)
            log.info("member.swept", worker=name)


async def _remove(store: CursorStore, name: str) -> None:
    space = store.space
    key, table = space.key("member", name), space.schema.name
    await patiently(lambda: store.dynamodb.delete_item(TableName=table, Key=key))
    roster = space.update("members")
    roster.subtractions["names"] = {"SS": [name]}
    await store.write(roster)

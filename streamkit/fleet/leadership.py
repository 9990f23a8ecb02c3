"""Leadership: one worker of a consumer holds the lister's lease and does the common tasks.

The leader lists the stream and creates cursors. It looks for the children of shards that ended
before any was listed, takes shards that no worker reads, and sweeps the heartbeats of dead workers.
A free lease is taken at once; a dead worker's lease as soon as that worker is known to be dead.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import anyio

from streamkit.errors import LeaseLost, StreamSilent
from streamkit.fleet.coordinator import Coordinator
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.lister import Lister
from streamkit.model.conditions import absent
from streamkit.observe.logger import get_logger
from streamkit.progress.control import Cursor, cursor_attributes
from streamkit.progress.cursor import CursorStore

log = get_logger("streamkit.fleet")

_LATE_SECONDS = 1.0
"""The pause between questions for the children of shards that ended."""
_ABSTAIN_SECONDS = 60.0
"""How long a leader that cannot reach the stream leaves the lead to other workers."""
_SWEEP_LEASES = 10
"""A worker is swept only so many leases after its death, long after its shards were taken: it may
only have been paused.
"""


@dataclass
class Leadership:
    """Takes the lister's lease and does the leader's tasks; `listed` after the first listing.

    `tidy` is called now and then, for other tasks of a single worker. `on_disabled` is called after
    each listing that finds the stream disabled.
    """

    coordinator: Coordinator
    store: CursorStore
    make_lister: Callable[[Cursor], Lister]
    interval_seconds: float
    tidy: Callable[[], Awaitable[None]]
    on_disabled: Callable[[], Awaitable[None]]
    lister: Lister | None = None
    listed: bool = False
    _stranger: tuple[str | None, int] | None = None
    _abstains_until: float = 0.0

    async def lead_for_ever(self) -> None:
        """Lead whenever no other worker leads."""
        while True:
            taken = await self._take() if self._may_lead() else None
            if taken is None:
                await self.coordinator.next_look()
                continue
            log.info("lister.taken", epoch=taken.epoch)
            self.lister = self.make_lister(taken)
            if taken.epoch > 1:
                self.lister.asks.hold()
            self.coordinator.heartbeat.say(leads=True)
            try:
                await self._lead(self.lister)
                await self.store.release(self.lister.committer.cursor)
            except LeaseLost as error:
                log.info("lister.lost", reason=str(error))
            except StreamSilent:
                log.warning("lister.cut_off")
                self._abstains_until = self.coordinator.clock.monotonic() + _ABSTAIN_SECONDS
                await self.store.release(self.lister.committer.cursor)
            self.lister = None
            self.coordinator.heartbeat.say(leads=False)

    async def resign(self) -> None:
        """Give the lease back, after `lead_for_ever` was cancelled."""
        if self.lister is not None:
            # A death before this costs a lease, in which no cursor is created.
            await self.store.release(self.lister.committer.cursor)

    # -- the lease -----------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        coordinator = self.coordinator
        others = [m for name, m in coordinator.members.items() if name != coordinator.me.name]
        abstains = coordinator.clock.monotonic() < self._abstains_until
        return (
            coordinator.looked
            and not (abstains and any(member.state == "active" for member in others))
            and coordinator.me.state == "active"
            and coordinator.is_current
            and not any(member.leads for member in others)
        )

    async def _take(self) -> Cursor | None:
        cursor = await self.store.read(LISTER) or await self._create()
        # A generation may have begun after the leader's death, and perhaps no shard is left whose
        # cursor names it.
        self.coordinator.rollout.hear(cursor.generation)
        place = (cursor.owner, cursor.epoch)
        members = self.coordinator.members
        mine = cursor.owner == self.coordinator.me.name
        if cursor.owner in members and not mine:
            return None  # that worker has only just taken it
        if cursor.owner is not None and not mine and self._stranger != place:
            self._stranger = place  # the owner may have joined after the members were read
            return None
        try:
            me = self.coordinator.me
            # If this worker dies with the lease, another one takes it when this worker's heartbeat
            # has been silent for a lease; until then shards are read, but none is created.
            return await self.store.take(cursor, me.name, me.generation)
        except LeaseLost:
            return None

    async def _create(self) -> Cursor:
        cursor = Cursor(LISTER)
        action = self.store.space.update("cursor", LISTER)
        action.sets |= cursor_attributes(cursor)
        try:
            await self.store.write(action.only_if(absent))
        except LeaseLost:
            return await self.store.read(LISTER) or cursor
        return cursor

    # -- what the leader does ------------------------------------------------------------------

    async def _lead(self, lister: Lister) -> None:
        """List now and then, and ask for awaited children, until there is a newer roll-out."""
        while self.coordinator.is_current:
            await lister.require_lease()
            self._spread(await lister.once())
            self.listed = True
            if not lister.enabled:
                await self.on_disabled()
            await self.coordinator.audit(lister.unfinished)
            await self._sweep_members()
            await self.tidy()
            await self._ask_for_children(lister)

    async def _ask_for_children(self, lister: Lister) -> None:
        """Wait for the next listing, and ask for the children of shards that ended meanwhile."""
        with anyio.move_on_after(self.interval_seconds):
            while True:
                awaited = self._awaited()
                if awaited:
                    self._spread(await lister.children_of(awaited))
                    await anyio.sleep(_LATE_SECONDS)
                else:
                    await self.coordinator.next_look()

    def _awaited(self) -> Collection[str]:
        coordinator = self.coordinator
        awaited = set(coordinator.me.childless)
        for name, member in coordinator.members.items():
            if name != coordinator.me.name:
                awaited |= member.childless
        return awaited - coordinator.view.known.parents

    def _spread(self, created: Collection[Cursor]) -> None:
        for cursor in created:
            self.coordinator.view.found(cursor)
        if created:
            self.coordinator.heartbeat.tell()

    async def _sweep_members(self) -> None:
        """Remove the heartbeats of workers that have been dead for long.

        A worker that was only paused finds its item gone, and joins under a new name.
        """
        coordinator = self.coordinator
        longest = max(_SWEEP_LEASES * coordinator.leases.lease_seconds, 60.0)
        for name in coordinator.leases.silent(longest):
            await coordinator.member_list.remove(name)
            log.info("member.swept", worker=name)

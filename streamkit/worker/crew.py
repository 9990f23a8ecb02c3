"""A worker's crew: everything that runs under one name of a worker. `assembly` builds it.

    view ◄── shards ◄── coordinator ◄── leadership       which workers live, read which shards, lead
    retries ◄── shards                                   parked changes of the shards held here

In: the parts, connected. Out: they run, until `leave` has given everything back. On failure: an
error ends the task group, and with it the worker; a name that was swept as dead is `over`.
"""

from dataclasses import dataclass, field

import anyio
import anyio.abc

from streamkit.fleet.claims import Claims
from streamkit.fleet.coordinator import Coordinator
from streamkit.fleet.heartbeat import Facts
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.members import new_worker_name
from streamkit.fleet.sharing import CoLocation, not_co_located
from streamkit.observe.metrics import Metrics
from streamkit.settings import Settings
from streamkit.stream.sharing import SharedReads
from streamkit.worker.shardset import ShardSet
from streamkit.worker.watchdog import watch_stream

IDLE_PAGES = 5
"""Quiet pages in a row, on every shard, after which `until_idle` ends; see `stream.reader`."""


@dataclass(frozen=True)
class ProcessPlace:
    """A worker's place among those of its process.

    `reads` are shared by the `consumers` of the same stream, None if there is only one.
    `co_location` returns the shards that the first consumer holds. `metrics` receives the counts
    of all workers of the process. `hurried`: positions are written at once, because the app that
    takes the handler over waits for them.
    """

    name: str = field(default_factory=new_worker_name)
    reads: SharedReads | None = None
    co_location: CoLocation = not_co_located
    consumers: int = 1
    metrics: Metrics | None = None
    hurried: bool = False


@dataclass(eq=False)
class Crew:
    """Everything that runs under one name of a worker; `over` is set when that has to end."""

    coordinator: Coordinator
    shards: ShardSet
    leadership: Leadership
    claims: Claims
    settings: Settings
    over: anyio.Event
    _leading: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _led: anyio.Event = field(default_factory=anyio.Event)
    _pages: int = IDLE_PAGES
    """The count with which it was last asked whether all are idle: heartbeats say the same."""

    async def join(self) -> None:
        """Announce this worker to the other workers."""
        await self.coordinator.heartbeat.join(self._facts)

    def start(self) -> None:
        """Start the tasks of the crew."""
        start, shards = self.shards.group.start_soon, self.shards
        machine, dispatcher = shards.machine, shards.dispatcher
        start(self.coordinator.heartbeat.beat_for_ever, self._facts)
        start(self.coordinator.look_for_ever)
        start(shards.reading.pool.run)
        start(shards.retries.run_for_ever)
        compare = dispatcher.shadows.compare_for_ever
        start(compare, machine.aws.dynamodb, shards.tables.schemas)
        start(self._lead)
        silence = 3 * max(self.settings.lease, self.settings.poll_ceiling)
        start(watch_stream, shards, self.coordinator, machine.aws, silence)

    async def _lead(self) -> None:
        with self._leading:
            await self.leadership.lead_for_ever()
        self._led.set()

    async def leave(self) -> None:
        """Drain, give everything back, and delete the heartbeat item."""
        self.coordinator.heartbeat.say(state="leaving")
        self._leading.cancel()
        await self._led.wait()
        await self.shards.drain()
        await self.leadership.resign()
        await self.coordinator.heartbeat.leave()

    def all_idle(self, pages: int) -> bool:
        """Return whether no worker of the fleet has anything to do."""
        self._pages = pages
        return self.coordinator.all_idle(idle=self.is_idle(pages))

    def is_idle(self, pages: int) -> bool:
        """Return whether there is nothing to do here, as far as this worker knows.

        This is false while a shard is about to be taken, or has ended without a listed child, and
        while there may be a newer generation: that one reads again what this one has passed over.
        """
        coordinator, lister = self.coordinator, self.leadership.lister
        enabled = self.shards.enabled and (lister is None or lister.enabled)
        if not coordinator.settled or (coordinator.me.childless and enabled):
            return False
        if coordinator.rollout.doubted or coordinator.rollout.superseded:
            return False
        if coordinator.me.leads and not self.leadership.listed:
            return False
        return self.shards.idle(pages) and not self.shards.retries.busy

    def _facts(self) -> Facts:
        dispatcher = self.shards.dispatcher
        used, archive = dispatcher.meters.used, self.shards.reading.archive
        return Facts(
            held=len(self.shards.held),
            claims=self.claims.tokens,
            idle=self.is_idle(self._pages),
            used=used.text,
            lately=used.lately(int(self.coordinator.clock.time())),
            waits=dispatcher.failures.waiting,
            refused=archive.objects.refused if archive is not None else "",
        )

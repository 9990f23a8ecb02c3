"""Take the steps of a rebuild, from the state of the build in the table to the next one.

    emptying ──► building ──► scanning ──► counting                          (see `builds`)
       │            │            │            └ the aggregate is right; shards go live one by one
       │            │            └ the table is scanned, in segments, by all processes that help
       │            └ every shard counts by the ledger
       └ no shard counts; the old contents are deleted (reset)

In: an aggregate, and the consumer's generation, which has the build. Out: the build, counted.
Workers continue; they take each step when they see it, and from the moment it is taken their
earlier commits are refused. The table stores the state: if the process is killed at any instant,
the same command continues, on any machine, and several share the scan. Where Lambda functions run
the consumer they take each step with their next batch; invocations that began before the first step
are outlasted, and later ones check whether the ledger is used already.

On failure: `ConfigurationError`, if another build has begun or other handlers were deployed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio

from streamkit.core.consumer import Consumer
from streamkit.core.tables import AppTables
from streamkit.errors import ConfigurationError
from streamkit.fleet.capture import capture
from streamkit.fleet.generation import (
    Generation,
    consumer_operation,
    same_builds,
    stepped,
    write_generation,
)
from streamkit.fleet.hosting import LAMBDA, WORKERS, check_host
from streamkit.fleet.members import MemberList, new_worker_name
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.backfill import Backfill, BackfillCounts, left_out
from streamkit.kinds.aggregate.reset import Reset
from streamkit.model.builds import Build, BuildState, next_build, pass_name, reset_name
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action
from streamkit.progress.activity import task_group
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import TOGETHER, Fenced
from streamkit.progress.machine import Machine
from streamkit.progress.operation import AuditEntry, Operation, Step, said_of
from streamkit.progress.scan.pages import ScanPages, Visit
from streamkit.progress.scan.scan import TableScan
from streamkit.progress.scan.segment import LeasedSegment

log = get_logger("streamkit.rebuild")

_MARGIN_SECONDS = 60.0
"""The extra wait for invocations to end: another machine, with another clock, may continue."""
_REJOINS_SECONDS = 10.0
"""Seconds in which a worker that releases everything for a new generation is a member again."""
_REJOINS_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Width:
    """The size of a rebuild's scan: segments in all, segments at once here, and two waits.

    A segment whose process has stopped is taken over after `lease_seconds`. `in_flight` is how many
    seconds a transaction that was sent before a step may still be under way.
    """

    segments: int
    at_once: int
    lease_seconds: float
    in_flight: float


@dataclass
class RebuildSteps:
    """Takes the steps of one rebuild, together with all processes that run the same command."""

    app: Consumer
    machine: Machine
    tables: AppTables
    store: CursorStore
    aggregate: type[Aggregate[Any]]
    stopping: anyio.Event
    progress: Callable[[BuildState, BackfillCounts], object]
    width: Width
    counts: BackfillCounts = field(default_factory=BackfillCounts)
    seen: tuple[int, str] = (0, "")
    """The number and the state of the build, as this process has last seen it."""

    @property
    def name(self) -> str:
        """Return the aggregate's name."""
        return self.aggregate.__name__

    @property
    def _operation(self) -> Operation[Generation | None]:
        return consumer_operation(self.store, f"rebuild {self.name}")

    async def run(self) -> tuple[Build, int]:
        """Take step after step, from the state in the table.

        Returns:
            The build as it is now, and how many items all processes have left out of it.

        Raises:
            ConfigurationError: the aggregate cannot be rebuilt with this code, or any more.
        """
        await consumer_operation(self.store).change(self._begun)
        last = await self._operation.run(self._act, self.stopping)
        build = self._required(last).builds[self.name]
        left = await left_out(self.store, {self.name: build})
        return build, left.get(self.name, 0)

    def _required(self, newest: Generation | None) -> Generation:
        if newest is None:
            raise ConfigurationError(
                f"{self.app.name} has never run on this stream; start a worker"
            )
        if newest.fingerprint != self.app.fingerprint():
            raise ConfigurationError(
                f"{self.app.name} is deployed with other handlers; rebuild with the code that is"
                " deployed"
            )
        return newest

    async def _begun(self, found: Generation | None) -> Step[Generation | None] | None:
        """Decide on a new build, unless one is under way that has missed no changes."""
        newest = self._required(found)
        before = newest.builds.get(self.name)
        if before is not None and before.under_way and self.name not in newest.rebuild:
            return None
        await self._check_host(newest)
        now = int(self.machine.clock.time()) + 1
        build = next_build(before, newest.number + 1, self.width.segments, now)
        builds, said = {**newest.builds, self.name: build}, self._said(build)
        return Step(stepped(newest, builds, right=[self.name], advance=True, said=said))

    def _said(self, build: Build) -> AuditEntry:
        return said_of(self.machine.clock, f"rebuild {self.name}: {build.state}")

    async def _check_host(self, newest: Generation) -> None:
        """Refuse a rebuild if no host would count the changes that are made meanwhile.

        Raises:
            ConfigurationError: no worker runs, or the consumer is being moved.
        """
        if newest.host == LAMBDA:
            return
        check_host(self.app.name, newest.host, WORKERS)
        # A worker that takes a step leaves, and comes back under another name.
        until = self.machine.clock.monotonic() + _REJOINS_SECONDS
        while not await MemberList(self.store).read():
            if self.machine.clock.monotonic() < until:
                await anyio.sleep(_REJOINS_PAUSE)
                continue
            raise ConfigurationError(
                f"no worker of {self.app.name} is running; start one: shards have to be read"
                " while an aggregate is rebuilt"
            )

    # -- the steps -----------------------------------------------------------------------------

    async def _act(self, found: Generation | None) -> bool:
        """Do what the state requires and take the next step; return False if nothing is left."""
        generation = self._required(found)
        build = generation.builds.get(self.name)
        number, state = self.seen
        if build is None or (number and build.number != number):
            raise ConfigurationError(f"{self.name}: another rebuild has begun")
        if build.state != state:
            log.info("build.state", aggregate=self.name, build=build.number, state=build.state)
            self.progress(build.state, self.counts)
        self.seen = build.number, build.state
        if not build.under_way or self.stopping.is_set():
            return False
        if self.name in generation.rebuild:
            raise ConfigurationError(
                f"{self.name} has missed changes meanwhile, and needs to be rebuilt again"
            )
        await self._step(generation, build)
        return True

    async def _step(self, generation: Generation, build: Build) -> None:
        if build.state == "emptying":
            if not await self._captured(generation, build):
                return
            await self._empty(generation, build)
        elif build.state == "building":
            if generation.host != LAMBDA:  # functions count what earlier ones have passed over
                await capture(self.store, generation)
            await self._take(generation, replace(build, state="scanning"))
        elif await self._count(generation, build):
            # Not earlier than the last read; the margin covers the difference between clocks.
            scanned = int(self.machine.clock.time()) + 1
            await self._take(generation, replace(build, state="counting", scanned=scanned))

    async def _empty(self, generation: Generation, build: Build) -> None:
        """Delete what is stored and parked, and the segments of builds before this one."""
        # If another aggregate's rebuild takes a step, the operation reads again, and comes back.
        async with task_group() as group:
            for number, segments in build.past:
                for naming in (pass_name, reset_name):
                    past = self._table_scan(generation, naming(self.name, number), segments)
                    group.start_soon(past.delete)
        machine, schemas = self.machine, self.tables.schemas
        place = (machine.aws, self.store, schemas, machine.rng, machine.clock)
        reset = Reset(self.aggregate, generation, *place)
        await reset.drop()
        name, total = reset_name(self.name, build.number), min(build.segments, TOGETHER)
        scan = self._table_scan(generation, name, total)
        if await self._share(scan, reset.pages, reset.visit, build):
            then = replace(build, state="building")
            await self._take(generation, then, advance=True, along=scan.deletions())

    async def _captured(self, generation: Generation, build: Build) -> bool:
        """Wait until all that count changes know of the build; return False if stopped before."""
        if generation.host != LAMBDA:
            await capture(self.store, generation)
            return True
        left = build.begun + self.width.in_flight + _MARGIN_SECONDS - self.machine.clock.time()
        if left > 0:
            with anyio.move_on_after(left):
                await self.stopping.wait()
        return not self.stopping.is_set()

    async def _take(
        self,
        generation: Generation,
        build: Build,
        *,
        advance: bool = False,
        along: Sequence[Action] = (),
    ) -> None:
        builds, said = {**generation.builds, self.name: build}, self._said(build)
        after = stepped(generation, builds, advance=advance, said=said)
        # If the process dies here, the table has the state before or after: the same command goes
        # on from either, and what the state before had done is done once more.
        await write_generation(self.store, generation, after, along)

    def _table_scan(self, generation: Generation, name: str, total: int) -> TableScan:
        return TableScan(
            self.store,
            name,
            total,
            self.machine.clock,
            self.machine.rng,
            self.tables.schemas,
            self.width.lease_seconds,
            fence=Fenced(self.store, same_builds(generation), self.machine.rng),
        )

    async def _count(self, generation: Generation, build: Build) -> bool:
        """Count what the table holds; return whether all is counted."""
        backfill = Backfill(
            self.aggregate,
            build.number,
            self.machine.aws,
            self.store,
            self.tables.schemas,
            self.machine.clock,
            self.machine.rng,
            counts=self.counts,
        )
        scan = self._table_scan(generation, pass_name(self.name, build.number), build.segments)
        return await self._share(scan, backfill.pages, backfill.visit, build)

    async def _share(
        self, scan: TableScan, pages: ScanPages, visit: Visit[LeasedSegment], build: Build
    ) -> bool:
        """Scan with all processes that help; return whether every segment is finished."""
        ending, finished = anyio.Event(), False
        async with task_group() as group:
            group.start_soon(
                self._operation.watch, ending, partial(self._goes_on, build), self.stopping
            )
            owner = new_worker_name()
            finished = await scan.run(
                pages, visit, owner, at_once=self.width.at_once, stopping=ending
            )
            group.cancel_scope.cancel()
        return finished

    def _goes_on(self, build: Build, newest: Generation | None) -> bool:
        """Tell how far the scan is, and return whether it is still the build's scan."""
        self.progress(build.state, self.counts)
        return newest is not None and newest.builds.get(self.name) == build

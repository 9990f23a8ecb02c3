"""Compare a table with a migration, item by item; nothing is written, unless a repair is asked for.

In: an app, one of its migrations, and how much of the table. Out: a `Verified`: items that are not
in the new shape, targets that are missing or not right, and copies without a source. Reads are
strongly consistent. The table may be written to meanwhile: what differs is looked at again after
the migration's own consumer, if it runs, has caught up; an item that still differs, and has not
changed since, is wrong, and one that changes all the time is *unsettled*.

With `repair` what differs is brought into the new shape, as the migration itself would do it. In a
sample, copies without a source are not looked for: their sources may be in another part.

The memory does not grow with the table: a key and a digest is kept of each difference, up to the
limit of `findings`, and nothing of items that are right (see `orphans`).
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import Surroundings
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.agreement import image_digest
from streamkit.migrate.capturing import Capturing
from streamkit.migrate.differences import Difference, Inspection
from streamkit.migrate.errors import ErrorBook
from streamkit.migrate.findings import Found, Verified
from streamkit.migrate.in_place import Tally
from streamkit.migrate.mending import open_work
from streamkit.migrate.orphans import BUCKETS, Search
from streamkit.migrate.passing import Pace
from streamkit.migrate.rate import Limits
from streamkit.migrate.sampling import Wanted
from streamkit.migrate.state import State
from streamkit.migrate.work import Schemas, Work
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.scan.pages import Pages, Reply
from streamkit.progress.scan.places import strided
from streamkit.progress.scan.segment import Segment

_SEGMENTS = 16
_SEGMENTS_AT_ONCE = 4
_LOOKS = 3
"""How often a difference is looked at again."""
_PAUSE_SECONDS = 2.0
_PATIENCE_SECONDS = 30.0
_READS_AT_ONCE = 16
_PAGE = Pace().page

Item = dict[str, Wire]
Visit = Callable[[str, Item], Awaitable[None]]
"""Looks at an item of a table."""


async def verify_migration(
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    sample: Wanted | None = None,
    repair: bool = False,
    max_reads: float | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Verified:
    """Compare a table with a migration.

    Args:
        app: the app that declares the migration.
        aws: open clients.
        migration: the migration to verify.
        sample: a share of the table, chosen at random; without it, all of it.
        repair: bring what differs into the new shape.
        max_reads: read units a second that it uses at most, of the migration's limit, which it
            shares with the processes that run it.
        clock: time, for simulations.
        rng: chooses the sample.

    Raises:
        ConfigurationError: it was never begun, or the sample is not a share.
    """
    if sample is not None and sample.share is None:
        raise ConfigurationError("of a verification the sample is a share, as in 5%")
    clock = clock or SystemClock()
    most = Limits(reads=max_reads)
    async with open_work(app, aws, migration, clock, most=most) as (opened, work):
        checking = _Checking(
            app,
            opened.aws,
            opened.around,
            migration,
            work,
            opened.errors,
            clock,
            rng or random.Random(),
        )
        return await checking.run(sample.share if sample else None, repair=repair)


@dataclass
class _Checking:
    app: App
    aws: Aws
    around: Surroundings
    migration: Migration
    work: Work
    book: ErrorBook
    clock: Clock
    rng: random.Random
    looked_at: int = 0
    all_orphans: bool = True
    unsettled: dict[str, Difference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inspection = Inspection(self.migration, self.work, self.work.calls)

    @property
    def state(self) -> State:
        return self.work.state

    async def run(self, share: float | None, *, repair: bool) -> Verified:
        total = _SEGMENTS if share is None else max(_SEGMENTS, round(_SEGMENTS / share))
        chosen = strided(total)
        if share is not None:
            chosen = self.rng.sample(range(total), max(1, round(total * share)))
        known = Found(frozenset(e.id for e in await self.book.all() if e.waived))
        await self._scan(known, chosen, total, whole=share is None)
        matching, looked_at = self.inspection.matching, self.looked_at
        orphans = await self._orphans(known) if share is None else {}
        found = await self._settle(known.kept, orphans)
        waived = {error.id for error in await self.book.all() if error.waived}
        different = [one for one in found.values() if one.id not in waived]
        repaired = 0
        if repair and different:
            different, repaired = await self._repair(different)
        return Verified(
            migration=self.migration.id,
            phase=self.state.phase,
            sampled=len(chosen) / total,
            looked_at=looked_at,
            matching=matching,
            different=tuple(different),
            unsettled=tuple(self.unsettled.values()),
            waived=len(found) - len([one for one in found.values() if one.id not in waived]),
            repaired=repaired,
            orphans=self.all_orphans and share is None if self.migration.is_pairs else None,
            beyond=known.beyond,
        )

    # -- reading -------------------------------------------------------------------------------

    async def _scan(self, found: Found, chosen: Iterable[int], total: int, *, whole: bool) -> None:
        """Read segments, and find what differs."""
        self.inspection.begin()

        async def visit(table: str, item: Item) -> None:
            difference = await self.inspection.of(table, item)
            if difference is not None:
                found.add(difference)

        both = whole and self.inspection.knows_orphans
        self.looked_at += await self._read(visit, chosen, total, both=both)

    async def _orphans(self, found: Found) -> dict[int, Difference]:
        """Read everything again as often as buckets are unequal; return copies without a source.

        They are returned by the digests of their pairs; those that are kept are added to `found`.
        """
        orphans: dict[int, Difference] = {}
        self.all_orphans = self.inspection.knows_orphans
        for buckets in self.inspection.balance.rounds() if self.all_orphans else ():
            if found.is_full:
                self.all_orphans = False
                break
            for pair, one in (await self._search(partial(_falls_in, buckets))).items():
                found.add(one)
                if one.id in found.kept:
                    orphans[pair] = one
        return orphans

    async def _search(self, wanted: Callable[[int], bool]) -> dict[int, Difference]:
        """Read everything; return copies whose source was not read."""
        search = Search[Difference](wanted)

        async def visit(table: str, item: Item) -> None:
            self.inspection.trace(table, item, search)

        await self._read(visit, strided(_SEGMENTS), _SEGMENTS, both=True)
        return search.left

    async def _read(self, visit: Visit, chosen: Iterable[int], total: int, *, both: bool) -> int:
        """Visit every item of these segments; return how many there are.

        With `both`, the items of a target in another table are visited, too.
        """
        target, limiter = self.work.transform.target.name, anyio.Semaphore(_READS_AT_ONCE)
        tables = dict.fromkeys((self.work.schema.name, *((target,) if both else ())))
        read, numbers = 0, list(chosen)

        async def one(table: str, item: Item) -> None:
            async with limiter:
                await visit(table, item)

        for table in tables:

            async def page(segment: Segment, reply: Reply, table: str = table) -> None:
                nonlocal read
                read += int(reply["ScannedCount"])
                async with anyio.create_task_group() as group:
                    for item in reply["Items"]:
                        group.start_soon(one, table, item)
                await segment.advance(reply.get("LastEvaluatedKey"))

            pages = Pages(self.inspection.calls.scan, table, _PAGE)
            await pages.visit_all(numbers, total, page, at_once=_SEGMENTS_AT_ONCE)
        return read

    # -- settling ------------------------------------------------------------------------------

    async def _settle(
        self, found: Mapping[str, Difference], orphans: Mapping[int, Difference]
    ) -> dict[str, Difference]:
        """Look at what differs until it is right, or stays as it is."""
        pairs = {one.id: pair for pair, one in orphans.items()}
        open_, settled = dict(found), dict[str, Difference]()
        for _ in range(_LOOKS):
            if not open_:
                break
            captured = await self._catch_up()
            again: dict[str, Difference] = {}
            if wanted := {pairs[name] for name in open_.keys() & pairs.keys()}:
                left = await self._search(wanted.__contains__)
                again |= {one.id: one for one in left.values()}
            for name in open_.keys() - pairs.keys():
                now = await self._look(open_[name].key)
                if now is not None:
                    again[name] = now
            for name, one in again.items():
                certain = captured == "in step" or one.kind in ("late", "deleted")
                unchanged = certain and one.image == open_[name].image
                if captured == "nobody" or unchanged:
                    settled[name] = one
            open_ = {name: one for name, one in again.items() if name not in settled}
        self.unsettled = open_
        return settled

    async def _look(self, key: Mapping[str, Wire]) -> Difference | None:
        item = await self.inspection.calls.get(self.work.schema.name, key)
        return None if item is None else await self.inspection.of(self.work.schema.name, item)

    async def _catch_up(self) -> Literal["in step", "behind", "nobody"]:
        """Let the migration's consumer catch up; return whether it has, or whether none runs."""

        async def nothing(_change: Any) -> None: ...

        capturing = Capturing(
            self.app,
            self.aws,
            self.migration,
            Schemas(self.around.table, self.work.transform.target),
            self.around.control,
            nothing,
            nothing,
            self.clock,
        )
        if self.around.table.stream_arn is None or not await capturing.processes(self.state):
            await anyio.sleep(_PAUSE_SECONDS)
            return "nobody"
        if await capturing.caught_up(self.state, _PATIENCE_SECONDS):
            return "in step"
        # The heartbeat of a process that was killed after the end stays for a while.
        return "nobody" if self.state.phase in ("done", "rolled back") else "behind"

    # -- repairing -----------------------------------------------------------------------------

    async def _repair(self, different: list[Difference]) -> tuple[list[Difference], int]:
        """Bring items into the new shape; return those that still differ, and how many do not."""
        left: list[Difference] = []
        for one in different:
            if not one.can_be_repaired:
                left.append(one)
                continue
            tally = Tally()
            if one.kind == "orphan":
                if not await self._drop(one, tally):
                    left.append(one)
                continue
            await self.work.retry(one.key, tally)
            still = await self._look(one.key)
            if still is not None:
                left.append(still)
            else:
                await self.book.clear(one.key)
        return left, len(different) - len(left)

    async def _drop(self, orphan: Difference, tally: Tally) -> bool:
        """Delete a copy that is still as it was found; return False if it is another by now."""
        item = await self.inspection.calls.get(self.work.transform.target.name, orphan.key)
        if item is None:
            return True
        if image_digest(item) != orphan.image:
            return False
        await self.work.switched.drop(item, tally)
        return True


def _falls_in(buckets: frozenset[int], pair: int) -> bool:
    return pair % BUCKETS in buckets

"""Verifying: a table is held against a migration, item by item; nothing is written, unless asked.

In: an app, one of its migrations, and how much of the table. Out: a `Verified`: items that are not
in the new shape, targets that are not there or not right, and copies without a source. It reads
strongly consistent. The table may be written to all the while: what differs is looked at again
after the migration's own consumer, if it runs, has caught up; an item that still differs, and has
not changed since, is wrong, and one that changes all the time is *unsettled*.

With `repair` what differs is brought into the new shape, as the migration itself would do it. Of a
sample, copies without a source are not looked for: their sources may be in another part.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from streamkit.actions import Wire
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.calls import Calls
from streamkit.migrate.capturing import Capturing
from streamkit.migrate.differences import Difference, Inspection
from streamkit.migrate.errors import ErrorBook
from streamkit.migrate.in_place import Tally
from streamkit.migrate.mending import open_work
from streamkit.migrate.rate import Limits, Rate
from streamkit.migrate.sampling import Wanted
from streamkit.migrate.segments import strided
from streamkit.migrate.state import State
from streamkit.migrate.work import Work
from streamkit.surroundings import Surroundings, survey

_SEGMENTS = 16
_SEGMENTS_AT_ONCE = 4
_LOOKS = 3
"""Times that what differs is looked at again."""
_PAUSE_SECONDS = 2.0
_PATIENCE_SECONDS = 30.0
_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification has found.

    `looked_at` items were read, `matching` of them are the migration's. `waived` differ, and a
    person has said that they may. `repaired` are right now. `orphans` says whether copies without a
    source were looked for; None where nothing is copied.
    """

    migration: str
    phase: str
    sampled: float
    looked_at: int
    matching: int
    different: tuple[Difference, ...]
    unsettled: tuple[Difference, ...]
    waived: int
    repaired: int
    orphans: bool | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that nobody has waived."""
        return not self.different

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "migration": self.migration,
            "phase": self.phase,
            "ok": self.ok,
            "sampled": self.sampled,
            "looked_at": self.looked_at,
            "matching": self.matching,
            "different": [one.to_dict() for one in self.different],
            "unsettled": [one.to_dict() for one in self.unsettled],
            "waived": self.waived,
            "repaired": self.repaired,
            "orphans": self.orphans,
        }


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
    """Hold a table against a migration.

    Args:
        app: whose migration.
        aws: open clients.
        migration: the one.
        sample: a share of the table, chosen by chance; without it, all of it.
        repair: bring what differs into the new shape.
        max_reads: read units a second; by default the migration's own limit.
        clock: tells when.
        rng: chooses the sample.

    Raises:
        ConfigurationError: it was never begun, or the sample is not a share.
    """
    if sample is not None and sample.share is None:
        raise ConfigurationError("of a verification the sample is a share, as in 5%")
    clock = clock or SystemClock()
    around = await survey(app, aws)
    work, book = await open_work(app, aws, migration, clock)
    rate = Rate(clock, Limits(reads=max_reads or work.state.max_reads))
    checking = _Checking(
        app,
        aws,
        around,
        migration,
        work,
        book,
        Inspection(migration, work, Calls(aws.dynamodb, rate)),
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
    inspection: Inspection
    clock: Clock
    rng: random.Random
    looked_at: int = 0
    unsettled: dict[str, Difference] = field(default_factory=dict)

    @property
    def state(self) -> State:
        return self.work.state

    async def run(self, share: float | None, *, repair: bool) -> Verified:
        total = _SEGMENTS if share is None else max(_SEGMENTS, round(_SEGMENTS / share))
        chosen = strided(total)
        if share is not None:
            chosen = self.rng.sample(range(total), max(1, round(total * share)))
        found = await self._scan(chosen, total, whole=share is None)
        matching, looked_at = self.inspection.matching, self.looked_at
        found = await self._settle(found, whole=share is None)
        waived = {error.id for error in await self.book.all() if error.waived}
        different = [one for one in found.values() if one.id not in waived]
        repaired = 0
        if repair and different:
            different, repaired = await self._repair(different)
        return Verified(
            self.migration.id,
            self.state.phase,
            len(chosen) / total,
            looked_at,
            matching,
            tuple(different),
            tuple(self.unsettled.values()),
            len(found) - len([one for one in found.values() if one.id not in waived]),
            repaired,
            share is None and self.inspection.knows_orphans if self.migration.is_pairs else None,
        )

    # -- reading -------------------------------------------------------------------------------

    async def _scan(
        self, chosen: Iterable[int], total: int, *, whole: bool
    ) -> dict[str, Difference]:
        """Read segments, and return what differs, by the hash of the key."""
        self.inspection.begin()
        found: dict[str, Difference] = {}
        limiter = anyio.Semaphore(_SEGMENTS_AT_ONCE)
        tables = {self.work.schema.name: True}
        if whole and self.inspection.knows_orphans:
            tables.setdefault(self.work.transform.target.name, False)

        async def read(table: str, number: int) -> None:
            async with limiter:
                await self._segment(table, number, total, found)

        async with anyio.create_task_group() as group:
            for table in tables:
                for number in chosen:
                    group.start_soon(read, table, number)
        if whole:
            found |= {one.id: one for one in self.inspection.orphans()}
        return found

    async def _segment(
        self, table: str, number: int, total: int, found: dict[str, Difference]
    ) -> None:
        request: dict[str, Any] = {
            "TableName": table,
            "Segment": number,
            "TotalSegments": total,
            "ConsistentRead": True,
        }
        limiter = anyio.Semaphore(_READS_AT_ONCE)

        async def one(item: dict[str, Wire]) -> None:
            async with limiter:
                difference = await self.inspection.of(table, item)
            if difference is not None:
                found[difference.id] = difference

        while True:
            reply = await self.inspection.calls.scan(**request)
            self.looked_at += reply["ScannedCount"]
            async with anyio.create_task_group() as group:
                for item in reply["Items"]:
                    group.start_soon(one, item)
            if "LastEvaluatedKey" not in reply:
                return
            request["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    # -- settling ------------------------------------------------------------------------------

    async def _settle(self, found: dict[str, Difference], *, whole: bool) -> dict[str, Difference]:
        """Look at what differs until it is right, or stays as it is."""
        orphans = {name for name, one in found.items() if one.kind == "orphan"}
        open_, settled = dict(found), dict[str, Difference]()
        for _ in range(_LOOKS):
            if not open_:
                break
            captured = await self._catch_up()
            again: dict[str, Difference] = {}
            if orphans & open_.keys() and whole:
                rest = await self._scan(strided(_SEGMENTS), _SEGMENTS, whole=True)
                again |= {name: rest[name] for name in orphans if name in rest}
            for name in open_.keys() - orphans:
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
        """Let the migration's consumer catch up; say whether it has, or whether none runs."""

        async def nothing(_change: Any) -> None: ...

        capturing = Capturing(
            self.app,
            self.aws,
            self.migration,
            self.around.table,
            self.work.transform.target,
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
                await self.work.switched.drop(one.image, tally)
                continue
            await self.work.retry(one.key, tally)
            still = await self._look(one.key)
            if still is not None:
                left.append(still)
            else:
                await self.book.clear(one.key)
        return left, len(different) - len(left)

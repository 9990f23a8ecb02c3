"""Compare a table with a migration, item by item; nothing is written, unless a repair is asked for.

In: an app, one of its migrations, and how much of the table. Out: a `Verified`: items that are not
in the new shape, targets that are missing or not right, and copies without a source. Reads are
strongly consistent. The table may be written to meanwhile: what differs is looked at again after
the migration's own consumer, if it runs, has caught up; an item that still differs, and has not
changed since, is wrong, and one that changes all the time is *unsettled*.

Any number of processes share a verification, and each returns its report; if all of them stop,
the next verification continues at the pages that they have left: see `verification_book`. One that
was begun in another phase of the migration is given up, and begun again, because what is right in
one phase may be wrong in the next.

With `repair` what differs is brought into the new shape, as the migration itself would do it. In a
sample, copies without a source are not looked for: their sources may be in another part.

The memory does not grow with the table: a key and a digest is kept of each difference, up to the
limit of `findings`, and nothing of items that are right (see `orphans`).
"""

import random
from dataclasses import dataclass, field, replace
from functools import partial

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.refusals import beside, require_latest
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.run.chosen import reading
from streamkit.migrate.run.opening import Opened
from streamkit.migrate.run.passing import PAGE_WRITES, PassPace
from streamkit.migrate.run.sampling import Wanted, random_segments
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.verify.differences import ItemDifference, ItemInspection
from streamkit.migrate.verify.findings import Findings, Found, Verified
from streamkit.migrate.verify.known import Known, Wants, known_of
from streamkit.migrate.verify.mending import open_work
from streamkit.migrate.verify.orphans import PairSearch, everything
from streamkit.migrate.verify.settling import LOOKS, Settling
from streamkit.migrate.verify.verification_book import Stage, VerificationBook, VerificationState
from streamkit.progress.actions import Wire
from streamkit.progress.activity import each_of
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.scan.pages import Reply
from streamkit.progress.scan.places import strided
from streamkit.progress.scan.segment import LeasedSegment

_SEGMENTS = 16
_SEGMENTS_MAX = 64
"""Segments of a large table: more processes can share it, and one transaction makes them all."""
_READS_AT_ONCE = 16
_PAGE = PassPace().page

Item = dict[str, Wire]


async def verify_migration(  # noqa: PLR0913 - each says one thing of the verification
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    sample: Wanted | None = None,
    repair: bool = False,
    again: bool = False,
    max_reads: float | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Verified:
    """Compare a table with a migration, together with all processes that do the same.

    A verification with the same `sample` (a share of the table, chosen at random) and `repair` that
    is under way is joined, or continued if its processes have stopped; `again` gives it up, and
    begins at the first page. A repair brings what differs into the new shape. `max_reads` is in
    units a second, of the migration's limit, which it shares with the processes that run it.

    Raises:
        ConfigurationError: never begun, the sample is no share, or a repair would undo a later one.
    """
    share = None if sample is None else sample.share
    if sample is not None and share is None:
        raise ConfigurationError("the sample of a verification is a share, as in 5%")
    if repair:
        await require_latest(app, await open_book(app, aws), migration)
    asked = [
        migration.id,
        *(("repair",) if repair else ()),
        *(() if share is None else (f"{share:g}",)),
    ]
    clock, rng = clock or SystemClock(), rng or random.Random()
    most, least = Limit(max_reads), None
    while True:
        async with open_work(app, aws, migration, clock, most=most) as (opened, work):
            parts = opened.book.store, "-".join(asked), opened.rate.paced, clock, rng
            book = VerificationBook(*parts)
            if least is None:
                seen = await book.read()
                least = seen.number + (again or not seen.is_under_way)
            checking = _Checking(opened, work, book, share, repair, least)
            if (found := await checking.run()) is not None:
                return replace(found, **await beside(app, opened.book, migration))


@dataclass
class _Checking:
    """One process's part of a verification, as long as the phase of the migration lasts.

    It takes part in the verification with the number `least`, or a later one.
    """

    opened: Opened
    work: MigrationWork
    book: VerificationBook
    share: float | None
    repair: bool
    least: int
    owner: str = field(default_factory=new_worker_name)
    found: Found = field(default_factory=lambda: Found(frozenset()))
    verified: Verified | None = None

    def __post_init__(self) -> None:
        """Look at items as the phase of the migration requires."""
        self.settling = Settling(self.opened, self.work)

    async def run(self) -> Verified | None:
        """Take step after step; return what was found, None if the migration is elsewhere now."""
        self.found = Found(await self._waived())
        await self.book.operation.run(self._act)
        return self.verified

    async def _act(self, now: VerificationState) -> bool:
        """Do what the state requires, and take the next step; return False if nothing is left."""
        if await self._is_elsewhere():
            return False
        if now.is_under_way and (now.number < self.least or now.course != self.work.state.course):
            await self.book.step(now, stage="over", report=None)
        elif now.stage == "reading":
            await self._pass(now)
        elif now.stage == "mending":
            await self._mend(now)
        else:
            await self.book.clear(now)
            if now.number < self.least or now.report is None:
                await self._begin(now)
            else:
                self.verified = await self.book.reported(now)
                return self.verified is None
        return True

    async def _is_elsewhere(self) -> bool:
        """Return whether the migration has left the phase for which items are looked at here."""
        state = await self.opened.book.read(self.work.migration.id)
        return state.course != self.work.state.course

    async def _begin(self, last: VerificationState) -> None:
        total = max(_SEGMENTS, min(self.work.state.segments, _SEGMENTS_MAX))
        chosen = strided(total)
        if self.share is not None and not self.work.state.in_order:
            total, chosen = random_segments(self.share, _SEGMENTS, self.book.rng)
        await self.book.step(
            last,
            self.book.forgetting(last),
            number=last.number + 1,
            stage="reading",
            course=self.work.state.course,
            total=total,
            chosen=tuple(chosen),
            rounds=0,
            looks=(),
            report=None,
            parts=0,
        )

    # -- passes --------------------------------------------------------------------------------

    async def _pass(self, now: VerificationState) -> None:
        """Read the table together with other processes; then decide on another pass, or settle."""
        known = await self._known(now)
        tables = [self.work.schema.name]
        if self._looks_for_orphans and self.work.transform.target.name not in tables:
            tables.append(self.work.transform.target.name)
        for number, table in enumerate(tables):
            visit = partial(self._visit, table, known.wants)
            async with reading(self.work, table, _PAGE, {}) as pages:
                await self.book.scan(now, now.turn, number).run(pages, visit, self.owner)
        known = await self._known(now)
        if known.more and not known.found.is_full:
            await self.book.step(now, rounds=now.rounds + 1)
        elif known.doubt and len(now.looks) < LOOKS:
            await self.book.step(now, looks=(*now.looks, await self.settling.catch_up()))
        else:
            await self._settle(now, known)

    async def _visit(
        self, table: str, wants: Wants | None, segment: LeasedSegment, reply: Reply
    ) -> None:
        """Look at the items of a page, and move its segment together with what was found."""
        inspection = ItemInspection(self.work)
        search, different = PairSearch[ItemDifference](wants or everything), list[ItemDifference]()

        async def one(item: Item) -> None:
            if wants is not None:
                inspection.trace(table, item, search)
            elif (found := await inspection.of(table, item)) is not None:
                different.append(found)

        await each_of(_READS_AT_ONCE, reply["Items"], one)
        kept = [one for one in different if self.found.add(one)]
        looked_at = int(reply["ScannedCount"])
        page = Findings(
            looked_at,
            inspection.matching,
            len(different) - len(kept),
            looked_at - len(reply["Items"]),
            inspection.balance,
            kept,
            search,
        )
        actions = await self.book.adding(segment.cursor.name, page)
        async with self.work.calls.rate.paced(PAGE_WRITES):
            await segment.advance(reply.get("LastEvaluatedKey"), actions)

    async def _known(self, now: VerificationState) -> Known:
        """Return what is known by now; what a pass wants depends only on the passes before it."""
        found = await self.book.found(now)
        return known_of(found, now, self.found.waived, orphans=self._looks_for_orphans)

    # -- settling ------------------------------------------------------------------------------

    async def _settle(self, now: VerificationState, known: Known) -> None:
        """Look again at what differs, and write the report, unless the phase has changed."""
        kept, copies = known.found.kept, {**known.orphans, **known.doubt}.values()
        others = {name: kept[name] for name in kept.keys() - {one.id for one in copies}}
        settled, unsettled = await self.settling.look_at(others)
        settled += [one for one in known.orphans.values() if one.id in kept]
        unsettled += [one for one in known.doubt.values() if one.id in kept]
        waived = await self._waived()
        different = tuple(one for one in settled if one.id not in waived)
        whole = self._looks_for_orphans and not known.more
        verified = Verified(
            migration=self.work.migration.id,
            phase=self.work.state.phase,
            sampled=len(now.chosen) / now.total,
            looked_at=known.first.looked_at,
            matching=known.first.matching,
            different=different,
            unsettled=tuple(unsettled),
            waived=len(settled) - len(different),
            repaired=0,
            orphans=whole if ItemInspection(self.work).has_copies else None,
            beyond=known.found.beyond,
            missing=known.first.missing,
        )
        if not await self._is_elsewhere():
            stage: Stage = "mending" if self.repair and different else "over"
            await self.book.report(now, verified, stage)

    async def _mend(self, now: VerificationState) -> None:
        """Bring items into the new shape; report those that still differ, and how many do not."""
        verified, known = await self.book.reported(now), await self._known(now)
        if verified is None:
            return
        kept = known.found.kept
        mended = [await self.settling.mend(one, kept.get(one.id)) for one in verified.different]
        left = tuple(one for one in mended if one is not None)
        verified = replace(verified, different=left, repaired=len(mended) - len(left))
        await self.book.report(now, verified, "over")

    # -- small things --------------------------------------------------------------------------

    @property
    def _looks_for_orphans(self) -> bool:
        chosen = self.share is not None or self.work.state.reads_keys
        return not chosen and ItemInspection(self.work).knows_orphans

    async def _waived(self) -> frozenset[str]:
        return frozenset(error.id for error in await self.opened.errors.all() if error.waived)

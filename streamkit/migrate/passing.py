"""Passing: the pages of a segment, and the items of a page.

In: a segment under lease. Out: every item is visited as the phase asks for, and its page is added
to the tally of the pass in the commit that moves the segment. A crash repeats a page. On failure:
an item's failure is counted; too many of them end the pass.
"""

import random
from dataclasses import dataclass
from typing import Any

import anyio

from streamkit.activity import first_error
from streamkit.migrate.expenses import PAGE_WRITES
from streamkit.migrate.in_place import Tally
from streamkit.migrate.tallies import TallyBook
from streamkit.migrate.work import Work
from streamkit.scanning.pages import Pages, Reply
from streamkit.scanning.segment import LeasedSegment

ERRORS_MAX = 1000
"""Items that may fail in one process before the migration stops: something is wrong with it. Those
that are waived do not count, so that it ends however many there are."""


class TooManyErrors(Exception):
    """So many items failed that it is not about the items."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a process works: segments at once, items of a page, and of those at once."""

    segments: int = 4
    page: int = 200
    items: int = 16


@dataclass
class Passing:
    """One process's part of one pass. `errors` are the items that failed here and nobody waived."""

    work: Work
    tallies: TallyBook
    pace: Pace
    rng: random.Random
    errors: int = 0

    async def visit(self, segment: LeasedSegment, reply: Reply) -> None:
        """Bring the items of a page into the new shape, and move its segment afterwards.

        Raises:
            TooManyErrors: so many items failed that it is not about the items.
        """
        work = self.work
        tally = Tally(scanned=reply.get("ScannedCount", len(reply["Items"])))
        await self._items(reply["Items"], tally)
        self.errors += tally.errors - tally.waived
        action = self.tallies.adding(work.state.pass_name, segment.number, tally)
        async with work.calls.rate.paced(PAGE_WRITES):
            await segment.advance(reply.get("LastEvaluatedKey"), [action])
        if self.errors > ERRORS_MAX:
            raise TooManyErrors

    @property
    def pages(self) -> Pages:
        """How the pass reads the table, or the index that it sees keys of."""
        work = self.work
        request: dict[str, Any] = {}
        if self._is_blind:
            index = work.migration.index
            assert index is not None  # noqa: S101 - what blind means
            request |= {"IndexName": index.name, "ConsistentRead": False}
        return Pages(work.calls.scan, work.table.name, self.pace.page, request)

    @property
    def _is_blind(self) -> bool:
        """Whether the pass sees keys alone."""
        return self.work.migration.index is not None and self.work.state.phase == "scanning"

    async def _items(self, items: list[dict[str, Any]], tally: Tally) -> None:
        """Visit the items of a page, some at once, and add up."""
        work = self.work
        limiter = anyio.Semaphore(self.pace.items)
        blind = self._is_blind

        async def one(item: dict[str, Any]) -> None:
            async with limiter:
                own = Tally()
                if blind and work.transform.matches(item):
                    await work.touch(item, own, blind=True)
                elif not blind:
                    await work.visit(item, own)
                tally.add(own)

        try:
            async with anyio.create_task_group() as group:
                for item in self._shuffled(items):
                    group.start_soon(one, item)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def _shuffled(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Spread the writes of a page over partitions: a scan reads one after the other."""
        items = list(items)
        self.rng.shuffle(items)
        return items

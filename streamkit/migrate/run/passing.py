"""Visit the pages of a segment, and the items of a page.

In: a segment under lease. Out: every item is visited as the phase requires, and the numbers of its
page are added to the tally of the pass in the commit that moves the segment. A crash repeats a
page. On failure: an item's failure is counted; too many failures end the pass.
"""

import math
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from streamkit.entity import Index
from streamkit.migrate.book.state import State
from streamkit.migrate.book.tallies import Tally, TallyBook
from streamkit.migrate.run.chosen import reading
from streamkit.migrate.run.work import MigrationWork
from streamkit.progress.activity import each_of
from streamkit.progress.scan.pages import Reply, ScanPages
from streamkit.progress.scan.segment import LeasedSegment

PAGE_WRITES: Final = 4.0
"""Units of the commit after each page: the segment's cursor and a tally, in a transaction."""
ERRORS_MAX = 1000
"""Items that may fail in one process before the migration stops: something is wrong with it.

Waived items do not count, so that the pass ends however many there are.
"""


_FIRST_PAGES = 5
"""The first items are read in this many pages or more: the last page may have too many items."""


ATTEMPTS_MAX = 5
"""Passes of one phase, each of which still found something."""


class TooManyErrors(Exception):
    """So many items failed that the items cannot be the cause; the text says how many."""


class FirstDone(Exception):
    """The first items, which a person wants to look at, are done; the text says how many."""


@dataclass(frozen=True, slots=True)
class PassPace:
    """How a process works: segments at once, items of a page, and of those at once."""

    segments: int = 4
    page: int = 200
    items: int = 16


@dataclass
class Passing:
    """One process's part of one pass; `errors` counts items that failed here and are not waived.

    `present` returns the state of the migration as it is known now.
    """

    work: MigrationWork
    tallies: TallyBook
    pace: PassPace
    rng: random.Random
    present: Callable[[], State]
    errors: int = 0

    async def visit(self, segment: LeasedSegment, reply: Reply) -> None:
        """Bring the items of a page into the new shape, and then move its segment.

        Raises:
            TooManyErrors: so many items failed that the cause is not in the items.
            FirstDone: the first items are done.
        """
        work = self.work
        found = len(reply["Items"])
        scanned = reply.get("ScannedCount", found)
        tally = await self._items(reply["Items"])
        tally.add(Tally(scanned=scanned, missing=scanned - found))
        self.errors += tally.errors - tally.waived
        action = self.tallies.adding(work.state.pass_name, segment.number, tally)
        async with work.calls.rate.paced(PAGE_WRITES):
            await segment.advance(reply.get("LastEvaluatedKey"), [action])
        if self.errors > ERRORS_MAX:
            raise TooManyErrors(f"more than {ERRORS_MAX} items failed")
        await self._brake(tally)

    async def _brake(self, page: Tally) -> None:
        """End the pass early if a person's limit for all processes together is reached.

        One failure alone is not a share.
        """
        state, most = self.present(), self.present().max_errors
        counts = self.pauses_early or (most and page.errors)
        if not counts or state.phase not in ("scanning", "verifying"):
            return
        done = await self.tallies.read(self.work.state.pass_name)
        failed, seen = done.errors - done.waived, done.changed + done.skipped + done.errors
        allowed = most if most >= 1 else max(most * seen, 1) if most else math.inf
        if failed > allowed:
            raise TooManyErrors(f"{failed} of {seen} items failed, more than --max-errors allows")
        if self.pauses_early and seen >= state.first:
            raise FirstDone(
                f"the first {seen} items were visited: {done.changed} changed, {done.errors}"
                " failed; look at them, then `streamkit migrate resume`, or `rollback`"
            )

    @property
    def pauses_early(self) -> bool:
        """Whether the pass pauses after the first items, so that few more are to be under way."""
        return self.present().first > 0 and self.present().phase == "scanning"

    def pages(self) -> AbstractAsyncContextManager[ScanPages]:
        """Return how the pass reads pages: of the table, or of an index that shows only keys."""
        request: dict[str, Any] = {}
        if (index := self._index) is not None:
            request |= {"IndexName": index.name, "ConsistentRead": False}
        size = self.pace.page
        if self.pauses_early:
            size = max(1, min(size, self.present().first // _FIRST_PAGES))
        return reading(self.work, self.work.table.name, size, request)

    @property
    def _index(self) -> Index | None:
        """The index that the pass reads: it may show only keys."""
        return self.work.migration.index if self.work.state.phase == "scanning" else None

    async def _items(self, items: list[dict[str, Any]]) -> Tally:
        """Visit the items of a page, some at once, and add up."""
        work, table, tally = self.work, self.work.schema, Tally()
        blind = self._index is not None
        # Failures only show in whole items: they are read, where people want to know of failures.
        reads = blind and self.present().max_errors > 0

        async def one(shown: dict[str, Any]) -> None:
            item = await work.calls.get(table.name, table.key_of(shown)) if reads else shown
            if item is None:
                tally.gone += 1
            else:
                tally.add(await work.visit(item, blind=blind and not reads))

        await each_of(self.pace.items, self.rng.sample(items, len(items)), one)
        return tally

    def has_more(self, state: State) -> bool:
        """Return whether a phase has another table to read after that of this pass."""
        tables = len(self.work.tables)
        return state.attempt % tables < tables - 1

    async def must_repeat(self, state: State) -> bool:
        """Return whether items that a pass deletes or switches may have appeared behind it."""
        if self.has_more(state):
            return True
        if state.does in ("scanning", "comparing") or state.attempt >= ATTEMPTS_MAX:
            return False
        backs = range(len(self.work.tables))
        passes = [replace(state, attempt=state.attempt - back) for back in backs]
        return any([(await self.tallies.read(one.pass_name)).changed for one in passes])

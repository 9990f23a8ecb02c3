"""Run the backfill of a build: a scan that counts each item that no change has counted yet.

    page ─► entries of the ledger ─► those without: c(image) ─► segment + entries IF absent + adds

In: a segment of the source's table under lease. Out: its items are in the aggregate and in the
ledger, each once, whether the scan or a change reaches it first. Each commit moves the segment's
cursor, so that a crash leaves no item out and counts none twice, and a scanner that lost its
segment is refused; a new build deletes the segments of the one before. Extremes are not added up,
see `backfilled_extremes`.

On failure: an item that does not fit its entity, or that the aggregate's own code refuses, is left
out, and the number of these stays in the table with the build: the aggregate is not complete until
another build leaves out none. A change of such an item is parked for the same reason.
"""

import random
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from streamkit.aws import Aws
from streamkit.changes import ItemKey
from streamkit.core.draft import Draft
from streamkit.core.ledger import entry_ref, written
from streamkit.core.tables import Tables
from streamkit.effects import Guard
from streamkit.errors import USER_ERRORS, ConfigurationError, DecodeError
from streamkit.kinds.aggregate.aggregate import Aggregate, fields_read, source_of
from streamkit.kinds.aggregate.backfilled_extremes import BackfilledExtremes
from streamkit.kinds.aggregate.contributions import between, contributions, placed_by
from streamkit.kinds.aggregate.counting import entry_text
from streamkit.model.builds import Build
from streamkit.model.codec import decode
from streamkit.model.conditions import absent
from streamkit.model.copies import COPY
from streamkit.model.keys import Key
from streamkit.progress.actions import (
    Action,
    GuardSource,
    ItemRef,
    Verb,
    Wire,
    item_ref,
    own_attributes,
)
from streamkit.progress.clock import Clock, utc
from streamkit.progress.commit import Applied
from streamkit.progress.compile import compile_effect
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fetch import fetch_all
from streamkit.progress.pacing import Turn
from streamkit.progress.scan.pages import Reply, ScanPages, patient
from streamkit.progress.scan.segment import LeasedSegment
from streamkit.progress.verdicts import Invalid, RefusedCommit
from streamkit.table import Table

PAGE_ITEMS = 300
"""Items of one page; DynamoDB ends a page at 1 MB anyway."""
_ITEMS = "items"


def left_out_name(aggregate: str, build: int) -> tuple[str, ...]:
    """Return the name of the control item with the number of items that a build leaves out.

    There is no item for 0.
    """
    return "left", aggregate, str(build)


async def left_out(store: CursorStore, builds: Mapping[str, Build]) -> dict[str, int]:
    """Return how many items the last builds of aggregates have left out, if any."""
    found: dict[str, int] = {}
    for aggregate, build in builds.items():
        item = await store.item(*left_out_name(aggregate, build.number))
        if item is not None:
            found[aggregate] = int(item[_ITEMS]["N"])
    return found


@dataclass(slots=True)
class BackfillCounts:
    """What one process has counted.

    The `unreadable` do not fit, for the `reasons` given. `missing` counts items of `onto=` that do
    not exist: contributions to them were dropped.
    """

    items: int = 0
    counted: int = 0
    unreadable: int = 0
    missing: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Counted:
    """One item of a page: its index there, its entry in the ledger, and what it contributes."""

    at: int
    key: dict[str, Wire]
    entry: ItemRef
    text: str
    groups: Collection[Key[Any]]
    adds: Sequence[Action]


@dataclass(slots=True)
class _Page:
    """The items of one page that count, and the indexes of those that do not fit."""

    found: list[_Counted] = field(default_factory=list)
    unfit: list[int] = field(default_factory=list)


@dataclass
class Backfill:
    """Counts the segments of one build."""

    aggregate: type[Aggregate[Any]]
    build: int
    aws: Aws
    store: CursorStore
    tables: Tables
    clock: Clock
    rng: random.Random
    page_items: int = PAGE_ITEMS
    counts: BackfillCounts = field(default_factory=BackfillCounts)
    _turn: Turn = field(init=False)

    def __post_init__(self) -> None:
        """Open the source's table."""
        self._source, self._fields = source_of(self.aggregate), fields_read(self.aggregate)
        self._table = Table(self.aws.dynamodb, self.tables.own, tables=self.tables)
        self._turn = Turn(self.clock)
        place = (self.aws, self.store, self.tables, self.clock, self.rng)
        self._extremes = BackfilledExtremes(self.aggregate, *place)

    @property
    def pages(self) -> ScanPages:
        """How the source's table is read."""
        return ScanPages(patient(self.aws.dynamodb), self.tables.own.name, self.page_items)

    async def visit(self, segment: LeasedSegment, reply: Reply) -> None:
        """Count the items of a page, in the commits that move its segment.

        Raises:
            LeaseLost: another process has the segment, or another build has begun.
        """
        page = _Page()
        for at, raw in enumerate(reply["Items"]):
            await self._turn.give_way()
            self._read(at, raw, segment.cursor.name, page)
        await self._count(segment, page, reply.get("LastEvaluatedKey"))

    # -- what an item contributes --------------------------------------------------------------

    def _read(self, at: int, raw: dict[str, Wire], writer: str, page: _Page) -> None:
        """Add what an item contributes; an item that contributes nothing needs no entry."""
        if not self._table.is_of(self._source, raw) or COPY in raw:
            return
        self.counts.items += 1
        try:
            item = self._table.entity_of(self._source, raw, self._fields)
            groups, text = contributions(self.aggregate, item), entry_text(self.aggregate, item)
            adds = self._placed(groups, writer)
        except USER_ERRORS as error:  # the app's code raises it at a change, too
            self.counts.unreadable += 1
            # Messages of the app's own errors may contain data.
            told = str(error) if isinstance(error, DecodeError) else type(error).__name__
            self.counts.reasons[told] = self.counts.reasons.get(told, 0) + 1
            page.unfit.append(at)
            return
        if not groups:
            return
        schema = self.tables.own
        key = {name: raw[name] for name in (schema.pk, schema.sk) if name is not None}
        place = ItemKey(*(decode(value) for value in key.values()))
        ref = entry_ref(self.store.space, self.aggregate.__name__, self.build, place)
        page.found.append(_Counted(at, key, ref, text, groups.keys(), adds))

    def _placed(self, groups: Mapping[Key[Any], Mapping[str, Any]], writer: str) -> list[Action]:
        """Return the actions that add contributions to their groups."""
        adds, now = between({}, groups), utc(self.clock.time())
        effects = placed_by(self.aggregate, adds, writer, uuid.uuid4().hex, now)
        name = self.aggregate.__name__
        return [
            compile_effect(effect, self.tables.own, GuardSource("", name, number))
            for number, effect in enumerate(effects)
        ]

    # -- counting ------------------------------------------------------------------------------

    async def _count(
        self, segment: LeasedSegment, page: _Page, last: Mapping[str, Wire] | None
    ) -> None:
        """Count the items of a page, and move the segment behind it.

        The commits that move the segment also add up the items that are left out: so each counts
        once.
        """
        for key in self._extremes.due(one.groups for one in page.found):
            await self._extremes.compute(segment, key)
        left = await self._uncounted(page.found if self.aggregate.__measures__ else [])
        missing: set[ItemRef] = set()
        unfit, told = page.unfit, 0
        while left:
            tally = self._tally(0) if unfit or missing else None
            draft, taken = self._draft(left, missing, tally)
            done = taken == len(left)
            place = last if done else left[taken - 1].key
            behind = len(unfit) if done else bisect_left(unfit, left[taken - 1].at)
            if tally is not None:
                lost = sum(self._loses(one, missing) for one in left[:taken])
                draft.actions[tally.ref].adds[_ITEMS] = Decimal(behind - told + lost)
            if await self._commit(segment, place, draft, left[:taken], missing):
                self.counts.counted += taken
                if done:
                    return
                left, told = left[taken:], behind
            else:
                left = await self._uncounted(left)
        await segment.advance(last, [self._tally(len(unfit) - told)] if len(unfit) > told else [])

    def _tally(self, items: int) -> Action:
        """Return the action that adds to the number of items that this build leaves out."""
        action = self.store.space.update(*left_out_name(self.aggregate.__name__, self.build))
        action.adds[_ITEMS] = Decimal(items)
        return action

    def _loses(self, one: _Counted, missing: Collection[ItemRef]) -> bool:
        """Return whether a part of an item is left out, although a change of it would be parked."""
        parks = self.aggregate.__options__.missing == "park"
        return parks and any(action.ref in missing for action in one.adds)

    async def _uncounted(self, items: Sequence[_Counted]) -> list[_Counted]:
        """Leave out the items that have an entry: they are counted already."""
        schema = self.store.space.schema
        keys = [one.entry.key(schema) for one in items]
        there = await fetch_all(self.aws.dynamodb, schema.name, keys)
        counted = {item_ref(schema, item) for item in there if own_attributes(item)}
        return [one for one in items if one.entry not in counted]

    def _draft(
        self, items: Sequence[_Counted], missing: set[ItemRef], tally: Action | None
    ) -> tuple[Draft, int]:
        """Fold as many items into one commit as fit; return how many those are."""
        draft = Draft()
        if tally is not None:
            draft.offer([tally], [])
        for number, one in enumerate(items):
            entry = written(one.entry, one.text)
            entry.guards.append((Guard(absent), GuardSource("", one.entry.pk[1], number)))
            adds = [action for action in one.adds if action.ref not in missing]
            if not draft.offer([entry, *adds], []):
                if not number:
                    raise ConfigurationError(
                        f"{self.aggregate.__name__}: the contributions of one item do not fit in"
                        " one transaction"
                    )
                return draft, number
        return draft, len(items)

    async def _commit(
        self,
        segment: LeasedSegment,
        place: Mapping[str, Wire] | None,
        draft: Draft,
        items: Sequence[_Counted],
        missing: set[ItemRef],
    ) -> bool:
        """Commit; return False if something has changed and the commit has to be planned again."""
        actions = list(draft.actions.values())
        # If the process dies here, the segment stands before these items or behind them, with their
        # entries: the next scanner reads which of the two, and goes on from there.
        verdict = await segment.commit(place, actions)
        if isinstance(verdict, Applied):
            return True
        if isinstance(verdict, Invalid):
            raise ConfigurationError(
                f"{self.aggregate.__name__} cannot be counted: DynamoDB answers {verdict.code}"
            )
        if isinstance(verdict, RefusedCommit):
            entries = {one.entry.pk[1] for one in items}
            named = {source.handler for source in verdict.sources}
            if self.aggregate.__name__ in named - entries:
                await self._note_missing(actions, missing)
        return False

    async def _note_missing(self, actions: Iterable[Action], missing: set[ItemRef]) -> None:
        """Find the items of `onto=` that do not exist: nothing is added to them."""
        schema = self.tables.own
        refs = {a.ref for a in actions if a.verb is Verb.UPDATE and not a.is_control}
        keys = [ref.key(schema) for ref in refs]
        there = await fetch_all(self.aws.dynamodb, schema.name, keys)
        gone = refs - {item_ref(schema, item) for item in there}
        self.counts.missing += len(gone - missing)
        missing |= gone

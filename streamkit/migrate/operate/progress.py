"""Measure how far a migration is, how fast, what slows it down, and when its pass will end.

In: the states, tallies, segments and reports in the table. Out: a `Progress`. The progress of a
pass is computed from its finished segments, because AWS updates the number of items in a table only
every few hours. So the share has an error, and the remaining time has one, from how much the speed
has changed lately; below one percent there is no estimate.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables, describe, survey
from streamkit.fleet.lag import longest_lags
from streamkit.fleet.liveness import Liveness
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.state import ENDED, PASSES, State
from streamkit.migrate.book.state_book import TO_DO, StateBook, absent_migrations
from streamkit.migrate.book.tallies import Tally, TallyBook
from streamkit.migrate.operate.followed import parked_of
from streamkit.migrate.operate.remaining_time import eta_of, speed_of
from streamkit.migrate.operate.written import write_speed
from streamkit.migrate.run.capture import consumer_of
from streamkit.migrate.run.reports import Look, Report, ReportBook, fresh, longest
from streamkit.model.json_fields import JsonFields
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan.places import strided

SEGMENTS_SEEN = 256
"""Segments that are read; if there are more, a random choice of so many."""
_BEHIND_SECONDS = 60.0
"""A lag that is no pause of a moment."""
_FULL = 0.75
"""The share of a budget of which little is left: of a small one a process spends less than all."""
_BEATS_SECONDS = 5.0
"""Seconds in which a live worker beats once, by the default of its settings."""


@dataclass(frozen=True, slots=True)
class Progress(JsonFields):
    """The progress of a migration; shares are 0 to 1, speeds a second, errors and times in seconds.

    `share` is of the pass, None where there is none, `share_error` how far it may be off. `eta` is
    until the end of the pass, None while it is not known. `writes` are units by index, "" is the
    table. `lag` is how far its own consumer is behind, None if it was not read, or it has none.
    `written` is what the application writes, in items, where that consumer is behind; None if it is
    not known. `behind` is the consumer that lags, where `reason` is that.
    `held` has the segments of processes that do not report, by their owners. `parked` is how many
    changes of its own consumers are parked; of them, those in `stuck`, by the error of the last
    try, wait for people.
    """

    migration: str
    mode: str
    phase: str
    desired: str
    direction: str
    note: str
    share: float | None = None
    share_error: float = 0.0
    segments: int = 0
    finished: int = 0
    tally: Tally = field(default_factory=Tally)
    open_errors: int = 0
    waived: int = 0
    processes: int = 0
    items: float = 0.0
    reads: float = 0.0
    writes: dict[str, float] = field(default_factory=dict)
    max_reads: float | None = None
    max_writes: float | None = None
    reason: str = ""
    behind: str = ""
    lag: float | None = None
    written: float | None = None
    eta: float | None = None
    eta_error: float | None = None
    settle: str = ""
    keys_from: str = ""
    held: dict[str, int] = field(default_factory=dict)
    parked: int = 0
    stuck: dict[str, int] = field(default_factory=dict)

    @property
    def is_behind(self) -> bool:
        """Return whether its own consumer is further behind than a short pause explains."""
        return (self.lag or 0.0) >= _BEHIND_SECONDS

    @property
    def short_of(self) -> Literal["read", "write"] | None:
        """The units of which the budget has too few, if it is behind the application for that."""
        if not self.is_behind:
            return None
        if self.max_writes and max(self.writes.values(), default=0.0) >= _FULL * self.max_writes:
            return "write"
        return "read" if self.max_reads and self.reads >= _FULL * self.max_reads else None


class ProgressReader:
    """Reads the progress of an app's migrations; keep one for many reads, which are cheaper then.

    Raises, of its methods:
        ConfigurationError: the table is missing, or may not be described.
    """

    def __init__(self, app: App, aws: Aws, clock: Clock | None = None) -> None:
        self._app, self._aws, self._clock = app, aws, clock or SystemClock()
        self._tables: AppTables | None = None
        self._live: Liveness | None = None
        self._pass = ""
        self._finished: set[str] = set()

    async def read(self, migration: str, *, lag: bool = False) -> Progress:
        """Return how far a migration is; with `lag`, read the stream, too."""
        tables, book = await self._open()
        state = await book.read(migration)
        declared = self._app.migrations.get(migration)
        found = Progress(
            state.id,
            state.mode,
            state.phase,
            state.desired,
            state.direction,
            state.note,
            max_reads=state.max_reads,
            max_writes=state.max_writes,
            keys_from=state.keys_from,
            settle=declared.policy if declared is not None else "",
        )
        if state.phase == "new":
            return found
        capture = tables.named(consumer_of(self._app, state), tables.table, self._aws)
        errors = await ErrorBook(book.store, migration).all()
        waived = sum(bool(error.waived) for error in errors)
        workers = await self._workers(capture, wait=lag)
        reports = await ReportBook(book.store, migration).all()
        reports = fresh(reports, await book.store.time(self._clock), workers)
        found = with_reports(
            replace(found, open_errors=len(errors) - waived, waived=waived), reports
        )
        if state.phase not in ENDED:
            found = await self._with_parked(found, tables, state)
        if lag:
            found = replace(found, lag=await self._lag(tables.table, capture))
        if found.is_behind and declared is not None:
            about = state, tables.table, capture, self._clock
            written = await write_speed(self._app, self._aws, declared, *about)
            found = replace(found, written=written)
        if state.phase not in PASSES:
            return found
        tally = await TallyBook(book.store).read(state.pass_name)
        segments = await self._segments(book.store, state)
        found = replace(found, held=held_by_others(segments, {report.name for report in reports}))
        return with_pass(found, state, tally, segments, longest(reports, state.pass_name))

    async def read_absent(self, known: Collection[str]) -> list[Progress]:
        """Return how far migrations are that are not `known`, and what people do about them."""
        _, book = await self._open()
        found = [await self.read(state.id) for state in await absent_migrations(book, known)]
        return [replace(one, note="; ".join(filter(None, (TO_DO, one.note)))) for one in found]

    async def _open(self) -> tuple[AppTables, StateBook]:
        self._tables = self._tables or await survey(self._app, self._aws)
        return self._tables, StateBook(self._aws.dynamodb, self._tables.control, self._app.name)

    async def _segments(self, store: CursorStore, state: State) -> list[Cursor | None]:
        """Read the segments of a pass, or a random choice of them; None is one not made yet."""
        if self._pass != state.pass_name:
            self._pass, self._finished = state.pass_name, set()
        names = [f"{state.pass_name}.{number}" for number in strided(state.segments)]
        if len(names) > SEGMENTS_SEEN:
            names = random.Random(state.pass_name).sample(names, SEGMENTS_SEEN)
        left = [name for name in names if name not in self._finished]
        there = await store.read_many(left)
        self._finished |= {name for name, cursor in there.items() if cursor.finished}
        done = Cursor(name="", state="finished")
        return [done if name in self._finished else there.get(name) for name in names]

    async def _workers(self, capture: CursorStore, *, wait: bool) -> set[str]:
        """Return the workers that capture changes, without those that were seen not to beat.

        That takes two looks; with `wait` both are taken now, if there was none before.
        """
        live = self._live
        if live is None or live.store.space != capture.space:
            live = self._live = Liveness(capture, self._clock, _BEATS_SECONDS)
        first = not live.members
        heard = await live.heard_within(_BEATS_SECONDS - 1)
        if first and wait and heard:
            await anyio.sleep(_BEATS_SECONDS)
            heard = await live.heard_within(_BEATS_SECONDS - 1)
        return heard

    async def _with_parked(self, found: Progress, tables: AppTables, state: State) -> Progress:
        """Add what is parked in its own consumers."""
        declared = self._app.migrations.get(state.id)
        stores = [tables.named(consumer_of(self._app, state), tables.table, self._aws)]
        if declared is not None and declared.follows_target:
            to = await describe(self._aws, declared.to or self._app.table, type_attribute=None)
            stores.append(tables.named(consumer_of(self._app, state, target=True), to, self._aws))
        return replace(found, **await parked_of(stores))

    async def _lag(self, table: TableSchema, capture: CursorStore) -> float | None:
        """Return how far the migration's own consumer is behind."""
        if table.stream_arn is None:
            return None
        lags = await longest_lags(self._aws, table.stream_arn, capture, self._clock)
        return max((lag.seconds for lag in lags if lag.seconds is not None), default=None)


def with_reports(found: Progress, reports: Sequence[Report]) -> Progress:
    """Add what the processes report."""
    names = sorted({name for report in reports for name in report.writes})
    works = found.phase not in ENDED and found.desired != "pause"
    waits = [report.reason for report in reports if report.reason and works]
    reason, _, behind = next(iter(waits), "").partition(" of ")
    return replace(
        found,
        processes=len(reports),
        reads=sum(report.reads for report in reports),
        writes={name: sum(one.writes.get(name, 0.0) for one in reports) for name in names},
        reason=reason,
        behind=behind,
    )


def held_by_others(segments: Iterable[Cursor | None], live: Collection[str]) -> dict[str, int]:
    """Return how many segments each process holds that does not report: it may be dead."""
    owners = [one.owner for one in segments if one is not None and not one.finished]
    return dict(Counter(owner for owner in owners if owner is not None and owner not in live))


def with_pass(
    found: Progress,
    state: State,
    tally: Tally,
    segments: Sequence[Cursor | None],
    looks: Sequence[Look],
) -> Progress:
    """Add how far the pass is, and when it will end."""
    done = sum(cursor is not None and cursor.finished for cursor in segments)
    begun = sum(
        cursor is not None
        and not cursor.finished
        and (cursor.position != START or cursor.owner is not None)
        for cursor in segments
    )
    seen = max(1, len(segments))
    share = (done + begun / 2) / seen
    error = begun / 2 / seen
    if seen < state.segments:
        error += 1.96 * math.sqrt(share * (1 - share) / seen)
    found = replace(
        found,
        share=share,
        share_error=error,
        segments=state.segments,
        finished=round(done / seen * state.segments),
        tally=tally,
    )
    speed = speed_of(looks)
    if speed is None:
        return found
    found = replace(found, items=speed[0])
    if state.paused:
        return found
    eta = eta_of(share, error, tally.scanned, speed)
    return found if eta is None else replace(found, eta=eta[0], eta_error=eta[1])

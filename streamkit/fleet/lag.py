"""Lag: how far a shard's cursor is behind the stream, in seconds.

In: a cursor. Out: the age of the oldest change behind it that a handler waits for, 0 when there is
none; and the time that is left until that change is trimmed. A cursor's item alone gives only an
upper bound, because a quiet shard's position is written once an hour, so a few pages after the
position are read. That costs some `GetRecords` calls, and the service allows two readers per shard,
so it is for commands of people. A worker knows the lag of its own shards without calls: `Behind`.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
import msgspec

from streamkit.archive.long_pages import ArchiveWriter, LongPages
from streamkit.archive.objects import ArchiveRefused
from streamkit.archive.reader import LongReader
from streamkit.archive.shards import ArchivedShards
from streamkit.aws import Aws, AwsError
from streamkit.core.consumer import Consumer
from streamkit.core.handler import Handler
from streamkit.core.typed import TypedChanges
from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, RetentionLost
from streamkit.fleet.taken import is_over
from streamkit.model.origin import read_origin
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.clock import Clock, CorrectedClock
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record
from streamkit.stream.reader import ShardReader, StreamPages
from streamkit.stream.start import RETENTION_SECONDS

_FRESH_SECONDS = 2.0
"""A cursor written within this time needs no look: a page takes about as long to arrive."""
_EMPTY_MAX = 5
"""Empty pages in a row that are taken for the tip: as many as sparse shards were seen to need."""
_READS_MAX = 25
"""The most pages read; then the last record's own age is the answer."""
_PAUSE_SECONDS = 0.05
_SHARDS_MAX = 8
"""Shards of a consumer that are looked into for its longest lags: each look costs some reads."""
_FIRST_PAGE_SECONDS = 30.0
"""How long the first page of a shard that was taken may need."""


@dataclass(slots=True)
class Behind:
    """How far a shard that is being read is behind, computed from its pages without extra calls.

    `seen` (epoch seconds, 0 if unknown) is up to when its cursor says that all was read. It may be
    an hour behind the truth, so it counts only while no page comes. An empty page alone does not
    mean the tip: until several came in a row, the last known lag still counts.
    """

    clock: Clock
    seen: float
    _since: float = field(init=False)
    _read_at: float = 0.0
    _behind: float = 0.0
    _empty: int = 0

    def __post_init__(self) -> None:
        """Start the wait for the first page."""
        self._since = self.clock.time()

    def note(self, records: Sequence[Record]) -> None:
        """Update the lag from a page that was just read."""
        self._read_at = self.clock.time()
        if records:
            behind = self._read_at - records[-1].created_at
            self._empty, self._behind = 0, behind if behind > _FRESH_SECONDS else 0.0
        elif self._empty < _EMPTY_MAX:
            self._empty += 1
            if self._empty == _EMPTY_MAX:
                self._behind = 0.0

    def lag(self, oldest: float | None) -> float:
        """Return the lag in seconds; NaN if nothing is known yet.

        Args:
            oldest: when the oldest change was made that is read and not committed; None if there is
                none.
        """
        now = self.clock.time()
        if oldest is not None:
            return max(0.0, now - oldest)
        if self._read_at:
            return max(0.0, self._behind + now - self._read_at)
        waited = now - self._since > _FIRST_PAGE_SECONDS
        return max(0.0, now - self.seen) if waited and self.seen else math.nan


Measure = Literal["measured", "at most", "unread", "lost", "archived", "undecided"]


@dataclass(frozen=True)
class Archived:
    """An archive in which lags are measured, and what is asked about its writer."""

    shards: ArchivedShards
    writer: ArchiveWriter


class Lag(msgspec.Struct, frozen=True):
    """How far a consumer is behind in one shard, and how that is known.

    `measured` means in the stream; `at most`, from the cursor alone; `unread`, that nothing was
    ever read and the stream was not looked at; `lost`, that records after the position are gone;
    `archived`, that they are read from an archive, and measured there; `undecided`, that the
    archive has not decided yet whether they are lost.
    `ended` says that the shard has ended, and is read to its end.
    """

    seconds: float | None
    measure: Measure
    ended: bool = False


def listens(app: Consumer, schema: TableSchema) -> Callable[[Record], bool]:
    """Return a function that tells whether a handler waits for a record and its `when` holds."""
    wanting = listeners(app, schema)
    return lambda record: next(wanting(record), None) is not None


def listeners(app: Consumer, schema: TableSchema) -> Callable[[Record], Iterator[Handler]]:
    """Return a function that names the handlers which wait for a record, and whose `when` holds."""
    router, typed = app.router(schema), TypedChanges(app.handlers, schema)
    raw = any(handler.raw for handler in app.handlers)

    def wanting(record: Record) -> Iterator[Handler]:
        written = record if raw else record.counting()
        origin = read_origin(record.old_image, record.new_image)
        if written is None or (origin is None and not raw):
            return
        copied = origin is not None and origin.writer == "migration"
        sides = router.sides(written)
        for handler in app.handlers:
            hears = handler.hears_migrations or not copied
            for entity, side in sides:
                heard = handler.entity is entity and side.kind in handler.kinds
                if heard and hears and _holds(typed, side, entity, handler):
                    yield handler

    return wanting


def _holds(typed: TypedChanges, record: Record, entity: type[Entity], handler: Handler) -> bool:
    try:
        return typed.wanted(record, entity, handler)
    except USER_ERRORS:  # two values may not be comparable: the change is parked
        return True


def bound(cursor: Cursor, now: float, founded: float = 0.0) -> Lag:
    """Return the lag by the cursor alone; `founded` is when its consumer began, 0 if unknown."""
    if is_over(cursor):
        return Lag(0.0, "measured")
    read = max(cursor.seen, cursor.since)
    if cursor.position == START:
        read = max(read, int(founded))
    if not read:
        return Lag(None, "unread")
    return Lag(max(0.0, now - read), "at most")


def time_to_loss(lag: Lag) -> float | None:
    """Return the seconds until the oldest unread change is trimmed; None if nothing is known.

    If nothing is unread it is the whole retention: a change could come now.
    """
    if lag.measure == "lost":
        return 0.0
    if lag.measure == "archived":
        return None  # a lifecycle rule says when
    return None if lag.seconds is None else max(0.0, RETENTION_SECONDS - lag.seconds)


async def measure(
    aws: Aws,
    stream_arn: str,
    cursor: Cursor,
    wants: Callable[[Record], bool],
    clock: Clock,
    founded: float = 0.0,
    archive: Archived | None = None,
) -> Lag:
    """Measure the lag by reading after a cursor; `founded` is its consumer's start.

    The stream is read, and where that does not reach back far enough an `archive`, if there is one.
    """
    now = clock.time()
    known = bound(cursor, now)
    if known.seconds is not None and known.seconds <= _FRESH_SECONDS:
        return Lag(0.0, "measured")
    parts = stream_arn, cursor, clock, random.Random(), founded
    reader = ShardReader(StreamPages(aws), *parts)
    if archive is not None:
        chain = archive.shards.chain(cursor.name)
        long = LongPages(StreamPages(aws), chain, stream_arn, archive.writer)
        reader = LongReader(long, *parts)
    try:
        unread = await _first_unread(reader, wants)
    except RetentionLost:
        return Lag(None, "lost")
    except ArchiveRefused:  # what the stream does not have any more cannot be looked at
        return Lag(None, "undecided")
    except AwsError:
        return known  # one reader too many, or it may not read: the cursor's bound remains
    if reader.apart == "undecided":
        return Lag(None, "undecided")
    age = 0.0 if unread.created_at is None else max(0.0, now - unread.created_at)
    ended = reader.ended and unread.created_at is None
    found: Measure = "measured" if unread.known else "at most"
    return Lag(age, reader.apart or found, ended)


async def longest_lags(aws: Aws, stream_arn: str, store: CursorStore, clock: Clock) -> list[Lag]:
    """Return the lags of the shards that a consumer has not read for the longest time.

    Every record of the application counts: which of them its handlers wait for is not known here.
    Ages are by AWS's clock, which stamps the records: this process's own may be minutes wrong.
    """
    own = clock.time()
    clock = CorrectedClock(clock, await store.time(clock) - own)
    cursors = [cursor for cursor in (await store.read_all()).values() if not is_over(cursor)]
    oldest = sorted(cursors, key=lambda cursor: cursor.seen)[:_SHARDS_MAX]
    return [await measure(aws, stream_arn, each, _is_of_the_app, clock) for each in oldest]


def _is_of_the_app(record: Record) -> bool:
    values = (value for key in record.keys.values() for value in key.values())
    return not any(str(value).startswith(CONTROL_PREFIX) for value in values)


async def has_read(
    aws: Aws,
    stream_arn: str,
    cursor: Cursor,
    wants: Callable[[Record], bool],
    clock: Clock,
    moment: float,
    founded: float = 0.0,
) -> bool:
    """Return whether every wanted change before `moment` (AWS's clock) is processed.

    Only the stream is asked: the times in a cursor come from the clock of the process that wrote
    it, which may be minutes wrong.

    Raises:
        RetentionLost: records after the position are gone.
        ClientError: the stream does not answer for now.
    """
    reader = ShardReader(StreamPages(aws), stream_arn, cursor, clock, random.Random(), founded)
    unread = await _first_unread(reader, wants)
    return unread.known if unread.created_at is None else unread.created_at > moment


class _Unread(msgspec.Struct, frozen=True):
    """When the first record that is wanted and unread was made, by AWS's clock; None without one.

    If that is not `known`, none was found so far: one may follow that is not older than this time,
    and None says nothing.
    """

    created_at: float | None
    known: bool = True


async def _first_unread(reader: ShardReader, wants: Callable[[Record], bool]) -> _Unread:
    empty, last = 0, None
    for _ in range(_READS_MAX):
        page = await reader.read()
        if page is None:
            if reader.apart == "undecided":
                return _Unread(None, known=False)
            await anyio.sleep(reader.wait)
            continue
        for record in page.records:
            if wants(record):
                return _Unread(record.created_at)
            last = record.created_at
        if reader.ended:
            return _Unread(None)
        empty = 0 if page.records else empty + 1
        if empty >= _EMPTY_MAX:
            return _Unread(None)
        if empty:
            await anyio.sleep(_PAUSE_SECONDS)
    return _Unread(last, known=False)

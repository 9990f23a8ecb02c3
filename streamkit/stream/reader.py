"""One shard's pages, in order, from a position to the shard's end.

In: a shard and the position after which to read. Out: pages, the last one marked. When the iterator
expires (15 minutes), a new one is opened from the last position *read*, never from `LATEST`.
Records created before the consumer's start are read and dropped here, undecoded.

Records that may have been trimmed unread raise `RetentionLost`; nothing is skipped in silence:

    position behind the horizon   a loss, unless age explains it: the change at the position is
                                  older than the retention, and the shard was read to its tip
                                  within it. Then nothing newer can be gone, and reading goes on at
                                  the horizon. If a younger position is trimmed, the stream does
                                  not keep what it promises
    never read                    a loss, if the last time its parent was read to the tip (or else
                                  the start of the consumer) is about as long ago as the retention
    shard gone                    a loss, unless it was never read and the consumer has just begun:
                                  it was gone before that could have read it

After a loss is settled, the caller calls `resume`; until then each `read` raises it again.

    open ──► read ──► page ──► read …          an empty page is neither the tip nor the end
      ▲        │ expired / throttled            of a shard; only a missing next iterator is
      └────────┘
"""

import random
from dataclasses import InitVar, dataclass, field
from typing import Literal, Protocol

import msgspec

from streamkit.aws import Aws, AwsError, ErrorKind, code_of, trouble_of
from streamkit.errors import RetentionLost, RetryableError
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import Page, parse_page
from streamkit.stream.start import RETENTION_SECONDS
from streamkit.stream.turns import TurnAwaited

_SAFE_SECONDS = RETENTION_SECONDS - 3600
"""Records younger than this are safe from trimming, which is not exact to the second; clocks differ
too.
"""
_UNREAD_SECONDS = RETENTION_SECONDS - 900
"""The age at which an unread shard may be trimmed. No call of the service says so for a shard that
was never read: only this clock does, and it may be minutes behind."""
_SETTLED_SECONDS = _SAFE_SECONDS - 3600
"""Younger records count as still there after a loss; an hour is left to read on before the next
one."""
_TIP_PAGES = 10
"""After so many empty pages in a row the tip is reached: sparse shards were measured to need four
or five.
"""
_TURN_PAUSE = 0.5
"""The pause until a reader asks again for its turn, see `sharing`."""
_FOUNDING_SECONDS = 3600
"""A shard that is gone so soon after the consumer's founding was gone before it; clocks differ."""
_ASKED_MIN = 4
"""How often the service must say that a shard is gone before the shard is skipped: a new shard may
not be known yet.
"""

log = get_logger("streamkit.source")


Apart = Literal["", "archived", "undecided"]
"""Where a reader is if not in the stream: in an archive, or before a position that is trimmed and
about which the archive has not decided."""


class PageSource(Protocol):
    """Where a reader gets its pages: from the service, or from what other consumers read of it."""

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator, as `GetShardIterator` does."""

    async def get_records(self, iterator: str) -> Page:
        """Return a page, as `GetRecords` does."""


@dataclass(frozen=True, slots=True)
class StreamPages:
    """Pages that come from the service."""

    aws: Aws

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator, as `GetShardIterator` does."""
        return await self.aws.get_iterator(**where)

    async def get_records(self, iterator: str, *, limit: int = 1000) -> Page:
        """Read one page of a shard, with the images left as bytes.

        Raises:
            RetryableError: the reply was cut off.
        """
        return parse_page(await self.aws.get_page(iterator, limit=limit))


@dataclass(slots=True)
class ShardReader:
    """Reads one shard, from the position of a cursor.

    `position` is where it has read to, zero-padded to 40 digits or `START`. Every record created
    before `seen` (epoch seconds) has been read, except those that a settled loss may have taken.

    `dated` is when the change at `position` was created; for `START` it is the earliest moment for
    any; 0 is unknown, or known to be trimmed. Records created before `since` are dropped. `founded`
    is when the consumer began: from then on a record trimmed unread is a loss. `half_done` says
    that a change after `position` is known to exist, because it was begun. All times are epoch
    seconds, 0 for none.
    """

    pages: PageSource
    stream_arn: str
    begin: InitVar[Cursor]
    clock: Clock
    rng: random.Random
    founded: float = 0.0
    ended: bool = field(default=False, init=False)
    wait: float = field(default=0.0, init=False)
    shard_id: str = field(init=False)
    position: str = field(init=False)
    seen: float = field(init=False)
    since: float = field(init=False)
    dated: float = field(init=False)
    half_done: bool = field(init=False)
    _empty: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    _iterator: str | None = field(default=None, init=False)
    _pause: float = field(default=0.0, init=False)

    def __post_init__(self, begin: Cursor) -> None:
        """Start at the cursor's position."""
        self.shard_id, self.position, self.dated = begin.name, begin.position, begin.dated
        self.seen, self.since = begin.seen, begin.since
        self.half_done = bool(begin.done or begin.trying)

    @property
    def apart(self) -> Apart:
        """Return where it reads, if not in the stream."""
        return ""

    async def read(self) -> Page | None:
        """Return the next page, or None if the call has to be made again, after `wait` seconds.

        Sets `ended` with the page that closes the shard; that page may carry records.

        Raises:
            RetentionLost: records after `position` may have been trimmed unread.
            ClientError: the stream may not be read with these credentials.
        """
        try:
            if self._iterator is None:
                self._iterator = await self._open()
            page = await self.pages.get_records(self._iterator)
        except TurnAwaited:
            self.wait = _TURN_PAUSE
            return None
        except (*AwsError, RetryableError) as error:
            await self._recover(error)
            return Page((), None) if self.ended else None
        self._pause = self.wait = 0.0
        self._iterator = page.next_iterator
        self.ended = page.next_iterator is None
        if page.records:
            self._empty = 0
            page = self._after_position(page)
            if page.records and page.records[0].created_at < self.since:
                kept = tuple(r for r in page.records if r.created_at >= self.since)
                page = msgspec.structs.replace(page, records=kept)
                if not kept and not self.ended:
                    return None  # long before the start: read the next page at once
        else:
            self._empty += 1
            if self._empty >= _TIP_PAGES:
                self.seen = max(self.seen, page.read_at or self.clock.time())
                if self.position == START:
                    self.dated = self.seen
        return page

    def _after_position(self, page: Page) -> Page:
        """Drop records that were read before: a page may be served twice."""
        records = page.records
        if self.position != START and records[0].position <= self.position:
            records = tuple(r for r in records if r.position > self.position)
            page = msgspec.structs.replace(page, records=records)
        if records:
            self.position, self.dated = records[-1].position, records[-1].created_at
            self.half_done = False  # the change that was begun is read now
            self.seen = max(self.seen, records[-1].created_at)
        return page

    def resume(self, loss: RetentionLost) -> None:
        """Go on after a settled loss, at the oldest record that is still there."""
        settled = self.clock.time() - _SETTLED_SECONDS
        self.seen = max(self.seen, min(loss.until, settled))
        self.dated = 0.0
        self.ended = loss.gone
        self._iterator = None

    @property
    def _read_up_to(self) -> float:
        """Return the time before which all is read, or was never this consumer's."""
        known = max(self.seen, self.since)
        return known or (self.founded if self.position == START else 0.0)

    async def _open(self) -> str:
        if self.position == START:
            if self._read_up_to and self.clock.time() - self._read_up_to > _UNREAD_SECONDS:
                raise self._loss("its first records may have been trimmed before it was ever read")
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")
        try:
            return await self._iterator_at(
                ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                SequenceNumber=self.position.lstrip("0") or "0",
            )
        except AwsError as error:
            if trouble_of(error) is not ErrorKind.TRIMMED or not self._is_explained():
                raise
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")

    async def _iterator_at(self, **where: str) -> str:
        arguments = {"StreamArn": self.stream_arn, "ShardId": self.shard_id, **where}
        return await self.pages.get_iterator(**arguments)

    async def _recover(self, error: Exception) -> None:
        self.wait, trouble = 0.0, trouble_of(error)
        if trouble is ErrorKind.EXPIRED:
            self._iterator = None
            return
        if trouble is ErrorKind.TRIMMED:  # also when the horizon overtook a good iterator
            if not self._is_explained():
                text = "records after its position may have been trimmed before they were read"
                raise self._loss(text) from error
            self._iterator = None
        elif trouble is ErrorKind.MISSING:
            if not self._began_too_late():
                text = "it is gone, and was not read to its end"
                raise self._loss(text, gone=True) from error
            self._asked += 1
            self.ended = self._asked >= _ASKED_MIN
        elif trouble not in (ErrorKind.THROTTLED, ErrorKind.UNKNOWN) and not isinstance(
            error, RetryableError
        ):
            raise error
        self._pause = min(max(self._pause * 2, 0.2), 10.0)
        self.wait = self._pause * (0.5 + self.rng.random())
        code = code_of(error)
        log.often("shard.slowed", level="warning", by=code, shard=self.shard_id, code=code)

    def _is_fresh(self) -> bool:
        """Return whether everything older than the horizon is known to have been read."""
        if self.position == START and not self._read_up_to:
            return True
        return self.clock.time() - self._read_up_to < _SAFE_SECONDS

    def _is_explained(self) -> bool:
        """Return whether age alone explains a trimmed position, so that nothing unread is gone."""
        return self._is_fresh() and not self._is_young()

    def _is_young(self) -> bool:
        """Return whether the change at the position should still be there."""
        return bool(self.dated) and self.clock.time() - self.dated < _SAFE_SECONDS

    def _began_too_late(self) -> bool:
        """Return whether the shard was never read because the consumer began after its end.

        A shard that the consumer had time to read counts as readable, however young the consumer
        is.
        """
        had_time = self.founded and self.clock.time() - self.founded > _FOUNDING_SECONDS
        return self.position == START and not self.seen and self._is_fresh() and not had_time

    def _loss(self, text: str, *, gone: bool = False) -> RetentionLost:
        certain = gone and self.half_done
        known, now = self._read_up_to, self.clock.time()
        early = self._is_young() and not gone
        if early:
            text += f"; they were trimmed early, {(now - self.dated) / 3600:.1f} h after its change"
        return RetentionLost(
            f"shard {self.shard_id}: {'loss' if certain else 'possible loss'}: {text}",
            shard=self.shard_id,
            after=self.position,
            since=known,
            until=now if early else max(known, now - _SETTLED_SECONDS),
            certain=certain,
            gone=gone,
        )

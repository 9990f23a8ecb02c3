"""One shard's pages, in order, from a position to the shard's end.

In: a shard and the position after which to read. Out: pages, the last one marked. When the iterator
expires (15 minutes), a new one is opened from the last position *read*, never from `LATEST`.
Records created before the consumer's start are read and dropped here, undecoded.

Records that may have been trimmed unread raise `RetentionLost`; `read_progress` judges that.
After a loss is settled, the caller calls `resume`; until then each `read` raises it again.

    open ──► read ──► page ──► read …          an empty page is neither the tip nor the end
      ▲        │ expired / throttled            of a shard; only a missing next iterator is
      └────────┘
"""

import random
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from streamkit.aws import Aws, AwsError, ErrorKind, code_of, trouble_of
from streamkit.errors import RetentionLost, RetryableError
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import Page, parse_page
from streamkit.stream.read_progress import ReadProgress
from streamkit.stream.turns import TurnAwaited

_TURN_PAUSE = 0.5
"""The pause until a reader asks again for its turn, see `sharing`."""
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


class ShardReader(ReadProgress):
    """Reads one shard, from the position of a cursor."""

    __slots__ = ("_asked", "_iterator", "_pause", "ended", "pages", "rng", "stream_arn", "wait")

    def __init__(
        self,
        pages: PageSource,
        stream_arn: str,
        begin: Cursor,
        clock: Clock,
        rng: random.Random,
        founded: float = 0.0,
    ) -> None:
        """Start at the position of a cursor; `founded` is as in `ReadProgress`."""
        super().__init__(begin, clock, founded)
        self.pages, self.stream_arn, self.rng = pages, stream_arn, rng
        self.ended = False
        self.wait = self._pause = 0.0
        self._asked = 0
        self._iterator: str | None = None

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
        return self._progressed(page)

    def _progressed(self, page: Page) -> Page | None:
        """Note what a page says, and drop its records that were read before or are too old."""
        if not page.records:
            self.note_empty(page.read_at)
            return page
        page = self.after_position(page)
        if page.records and page.records[0].created_at < self.since:
            kept = tuple(r for r in page.records if r.created_at >= self.since)
            page = msgspec.structs.replace(page, records=kept)
            if not kept and not self.ended:
                return None  # long before the start: read the next page at once
        return page

    def resume(self, loss: RetentionLost) -> None:
        """Go on after a settled loss, at the oldest record that is still there."""
        self.accept(loss)
        self.ended = loss.gone
        self._iterator = None

    async def _open(self) -> str:
        if self.position == START:
            if self.may_be_trimmed_unread:
                raise self.loss("its first records may have been trimmed before it was ever read")
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")
        try:
            return await self._iterator_at(
                ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                SequenceNumber=self.position.lstrip("0") or "0",
            )
        except AwsError as error:
            if trouble_of(error) is not ErrorKind.TRIMMED or not self.is_explained():
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
            if not self.is_explained():
                text = "records after its position may have been trimmed before they were read"
                raise self.loss(text) from error
            self._iterator = None
        elif trouble is ErrorKind.MISSING:
            if not self.began_too_late():
                text = "it is gone, and was not read to its end"
                raise self.loss(text, gone=True) from error
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

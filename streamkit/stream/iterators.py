"""The iterator of one shard: where it is opened, and what a failed call means.

In: the progress of a shard's reader, and an error of the service. Out: an iterator; or the pause
until the next call; or the end of the shard, if it is gone and nothing of it is missed. On failure:
`RetentionLost` if records may have been trimmed unread, and errors that no pause can heal.
"""

import random
from typing import Protocol

from streamkit.aws import PASSING, AwsError, ErrorKind, code_of, trouble_of
from streamkit.errors import RetryableError
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import Page
from streamkit.stream.read_progress import ReadProgress

_ASKED_MIN = 4
"""How often the service must say that a shard is gone before this is believed of one that was never
read: a new shard may not be known yet.
"""

log = get_logger("streamkit.source")


class PageSource(Protocol):
    """Where a reader gets its pages: from the service, or from what other consumers read of it."""

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator, as `GetShardIterator` does."""

    async def get_records(self, iterator: str) -> Page:
        """Return a page, as `GetRecords` does."""


class IteratedShard(ReadProgress):
    """A shard that is read through an iterator, from the position of a cursor."""

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
            self._asked += 1
            if self._asked >= _ASKED_MIN or not self.may_be_new():
                if not self.began_too_late():
                    text = "it is gone, and was not read to its end"
                    raise self.loss(text, gone=True) from error
                self.ended = True
        elif trouble not in PASSING and not isinstance(error, RetryableError):
            raise error
        self._pause = min(max(self._pause * 2, 0.2), 10.0)
        self.wait = self._pause * (0.5 + self.rng.random())
        code = code_of(error)
        log.often("shard.slowed", level="warning", by=code, shard=self.shard_id, code=code)

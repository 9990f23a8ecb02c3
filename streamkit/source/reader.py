"""One shard's pages, in order, from a position to the shard's end.

In: a shard and the position after which to read. Out: pages, the last one marked. The iterator is
opened anew from the last position *read* when it expires (15 minutes), never from `LATEST`.
Records that may have been trimmed unread raise `RetentionLost`; nothing is skipped in silence. A
position alone may be trimmed on a quiet shard: if the shard was seen read up to its tip within the
retention, nothing newer can be gone, and reading goes on at the horizon.

    open ──► read ──► page ──► read …          an empty page is neither the tip nor the end
      ▲        │ expired / throttled            of a shard; only a missing next iterator is
      └────────┘
"""

import random
from dataclasses import dataclass

import anyio

from streamkit.aws import Aws, AwsError, Trouble, code_of, trouble_of
from streamkit.clock import Clock
from streamkit.control import START
from streamkit.decode import Page
from streamkit.errors import RetentionLost, RetryableError
from streamkit.observe.logger import get_logger

RETENTION_SECONDS = 24 * 3600
"""How long a stream keeps its records."""
_SAFE_SECONDS = RETENTION_SECONDS - 3600
"""Trimming is not to the second, and clocks differ."""
_TIP_PAGES = 10
"""Empty pages in a row that mean the tip: sparse shards were measured to need four or five."""

log = get_logger("streamkit.source")


@dataclass(slots=True)
class ShardReader:
    """Reads one shard.

    `position` is where it has read to, zero-padded to 40 digits or `START`. Every record created
    before `seen` (epoch seconds) has been read.
    """

    aws: Aws
    stream_arn: str
    shard_id: str
    position: str
    seen: float
    clock: Clock
    rng: random.Random
    ended: bool = False
    _empty: int = 0
    _iterator: str | None = None
    _pause: float = 0.0

    async def read(self) -> Page | None:
        """Return the next page, or None if the call has to be made again (after a pause).

        Sets `ended` with the page that closes the shard; that page may carry records.

        Raises:
            RetentionLost: records after `position` may have been trimmed unread.
            ClientError: the stream may not be read with these credentials.
        """
        try:
            if self._iterator is None:
                self._iterator = await self._open()
            page = await self.aws.get_records(self._iterator)
        except (*AwsError, RetryableError) as error:
            await self._recover(error)
            return None
        self._pause = 0.0
        self._iterator = page.next_iterator
        self.ended = page.next_iterator is None
        if page.records:
            self._empty = 0
            page = self._after_position(page)
        else:
            self._empty += 1
            if self._empty >= _TIP_PAGES:
                self.seen = self.clock.time()
        return page

    def _after_position(self, page: Page) -> Page:
        """Drop what was read before: a page may be served twice."""
        records = page.records
        if self.position != START and records[0].position <= self.position:
            records = tuple(r for r in records if r.position > self.position)
            page = Page(records, page.next_iterator, page.size)
        if records:
            self.position = records[-1].position
            self.seen = max(self.seen, records[-1].created_at)
        return page

    async def _open(self) -> str:
        if self.position == START:
            if self.seen and self.clock.time() - self.seen > RETENTION_SECONDS:
                raise RetentionLost(
                    f"shard {self.shard_id}: its first records may have been trimmed before it was"
                    " ever read"
                )
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")
        try:
            return await self._iterator_at(
                ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                SequenceNumber=self.position.lstrip("0") or "0",
            )
        except AwsError as error:
            fresh = self.clock.time() - self.seen < _SAFE_SECONDS
            if trouble_of(error) is not Trouble.TRIMMED or not fresh:
                raise
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")

    async def _iterator_at(self, **where: str) -> str:
        arguments = {"StreamArn": self.stream_arn, "ShardId": self.shard_id, **where}
        reply = await self.aws.streams.get_shard_iterator(**arguments)
        iterator: str = reply["ShardIterator"]
        return iterator

    async def _recover(self, error: Exception) -> None:
        trouble = trouble_of(error)
        if trouble is Trouble.EXPIRED:
            self._iterator = None
            return
        if trouble in (Trouble.TRIMMED, Trouble.MISSING):
            raise RetentionLost(
                f"shard {self.shard_id}: records after {self.position} were trimmed"
                f" before they were read ({code_of(error)})"
            ) from error
        cut_off = isinstance(error, RetryableError)
        if trouble not in (Trouble.THROTTLED, Trouble.UNKNOWN) and not cut_off:
            raise error
        self._pause = min(max(self._pause * 2, 0.2), 10.0)
        log.warning("shard.slowed", shard=self.shard_id, code=code_of(error))
        await anyio.sleep(self._pause * (0.5 + self.rng.random()))

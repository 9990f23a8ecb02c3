"""One shard's pages, in order, from a position to the shard's end.

In: a shard and the position after which to read. Out: pages, the last one marked. When the iterator
expires (15 minutes), a new one is opened from the last position *read*, never from `LATEST`.
Records created before the consumer's start are read and dropped here, undecoded.

Records that may have been trimmed unread raise `RetentionLost`; `read_progress` judges that, and
`iterators` what a failed call means. After a loss is settled, the caller calls `resume`; until then
each `read` raises it again.

    open ──► read ──► page ──► read …          an empty page is neither the tip nor the end
      ▲        │ expired / throttled            of a shard; only a missing next iterator is
      └────────┘
"""

from typing import Literal

import msgspec

from streamkit.aws import Aws, AwsError
from streamkit.errors import RetentionLost, RetryableError
from streamkit.stream.decode import Page, parse_page
from streamkit.stream.iterators import IteratedShard
from streamkit.stream.turns import TurnAwaited

_TURN_PAUSE = 0.5
"""The pause until a reader asks again for its turn, see `sharing`."""
Apart = Literal["", "archived", "undecided"]
"""Where a reader is if not in the stream: in an archive, or before a position that is trimmed and
about which the archive has not decided."""


class StreamPages(msgspec.Struct, frozen=True):
    """Pages that come from the service."""

    aws: Aws

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator, as `GetIteratedShard` does."""
        return await self.aws.get_iterator(**where)

    async def get_records(self, iterator: str, *, limit: int = 1000) -> Page:
        """Read one page of a shard, with the images left as bytes.

        Raises:
            RetryableError: the reply was cut off.
        """
        return parse_page(await self.aws.get_page(iterator, limit=limit))


class ShardReader(IteratedShard):
    """Reads one shard, from the position of a cursor."""

    __slots__ = ()

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

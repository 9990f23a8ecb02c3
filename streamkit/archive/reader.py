"""Readers beside an archive: the one that follows it into the stream, and its writer's.

    stream ──trimmed──► archive ──► its end ──► stream, after the last position ──trimmed──► archive
                           │                       the stream is asked for the records behind what
                           │                       was read, never for its oldest ones
                           ├──► a hole: RetentionLost, with exactly its range
                           └──► a missing or damaged link: the stream ──trimmed──► RetentionLost

In: a shard and a cursor's position. Out: pages, as every reader gives them (`stream.reader`), so
that a worker does not know where they come from. On failure: `RetentionLost`, for what the archive
says is lost. As long as it says nothing about a position that is trimmed, the reader waits.
"""

from typing import Any

from streamkit.archive.link import BEYOND, Link
from streamkit.archive.long_pages import ARCHIVED, LongPages, NotDecided, WriterAhead
from streamkit.errors import RetentionLost
from streamkit.observe.logger import get_logger
from streamkit.progress.control import START
from streamkit.stream.decode import Page
from streamkit.stream.reader import Apart, ShardReader

log = get_logger("streamkit.archive")

_UNDECIDED_SECONDS = 30.0
"""The pause until a reader asks the archive again about a position that is trimmed."""


class LongReader(ShardReader):
    """Reads a shard from its stream, or from an archive that reaches further back."""

    def __init__(self, pages: LongPages, *parts: Any) -> None:
        super().__init__(pages, *parts)
        self._long = pages
        self._undecided = False
        self.ended = self.position == BEYOND

    def begin_in_archive(self, *, gone: bool = False) -> None:
        """Read the archive first, also for what the stream still has: commands do, to spare it.

        `gone` says that the stream does not have the shard any more.
        """
        self._iterator = self._long.archived(self.position, gone=gone)

    @property
    def apart(self) -> Apart:
        """Return that it reads the archive, or waits for it to decide."""
        archived = (self._iterator or "").startswith(ARCHIVED)
        return "undecided" if self._undecided else "archived" if archived else ""

    async def read(self) -> Page | None:
        """Return the next page, or None if the call has to be made again, after `wait` seconds.

        Raises:
            RetentionLost: the archive says that records are lost.
            ClientError: the stream, or the archive, may not be read with these credentials.
        """
        try:
            page = await super().read()
        except WriterAhead as ahead:
            if self.seen < ahead.seen:
                self.seen, self.wait, self._iterator = ahead.seen, 0.0, None
                return None
            self._wait_undecided()
            return None
        except NotDecided:
            self._wait_undecided()
            return None
        except RetentionLost as lost:
            if self._long.lost is not None:
                self._undecided, since = False, self._read_up_to
                until = max(lost.until or self.clock.time(), since)
                raise lost.told(str(lost), since=since, until=until) from None
            log.info("archive.read", shard=self.shard_id, after=self.position, reason=str(lost))
            self._iterator = self._long.archived(self.position, gone=lost.gone)
            self.wait = 0.0
            return None
        self._undecided = self._undecided and page is None
        if page is not None and (self.position == START or self.position < self._long.read_to):
            self.position = self._long.read_to or self.position
        return page

    def _wait_undecided(self) -> None:
        self.wait, self._iterator, self._undecided = _UNDECIDED_SECONDS, None, True
        log.often("archive.undecided", level="warning", by=self.shard_id, shard=self.shard_id)

    def resume(self, loss: RetentionLost) -> None:
        """Go on after a settled loss, behind it."""
        lost, seen = self._long.settled(), self.seen
        super().resume(loss)
        if lost is not None:
            # Not the loss's own moment: that may be later than records which are still to come.
            self.position, self.seen = lost.last, max(seen, lost.until)
            self._iterator = self._long.archived(lost.last)


class CopyReader(ShardReader):
    """Reads a shard for the writer of its archive, which may go on where another has stopped."""

    _behind_hole = False
    _loss: RetentionLost | None = None

    def go_to(self, tip: Link) -> None:
        """Read on behind the last link that is stored."""
        self.position, self.dated, self._iterator = tip.last, int(tip.until), None
        self.seen = max(self.seen, tip.until)
        self._behind_hole = tip.kind == "hole"
        self.ended = tip.kind == "end" or tip.last == BEYOND

    def resume(self, loss: RetentionLost) -> None:
        """Go on at the oldest record that is still there.

        Other readers count the next hours as read, because their loss names them. A hole ends at
        the next record, so what is trimmed unread behind that is another hole.
        """
        if loss.gone:
            super().resume(loss)
            return
        self._loss, self.dated, self._iterator = loss, 0.0, None

    def _progressed(self, page: Page) -> Page | None:
        found = super()._progressed(page)
        if self._loss is not None and self.ended and not page.records:
            # The hole reaches to the end and has no time, so its loss covers the children, too.
            self.accept(self._loss)
        if page.records:
            self._loss = None
        return found

    async def _open(self) -> str:
        if self._loss is not None:
            return await self._iterator_at(ShardIteratorType="TRIM_HORIZON")
        if not self._behind_hole:
            return await super()._open()
        self._behind_hole = False
        number = str(int(self.position) + 1)  # no record has the number at the position
        return await self._iterator_at(
            ShardIteratorType="AT_SEQUENCE_NUMBER", SequenceNumber=number
        )

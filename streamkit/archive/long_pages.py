"""The pages of a shard, from its stream and from its archive, which reaches further back.

In: an iterator, which says where it leads. Out: pages, as the stream gives them. Where an object is
missing or damaged, the stream is asked first. On failure: `RetentionLost`, for what the archive
says is lost; `NotDecided`, as long as it says nothing about a position that is trimmed. If no
worker is alive that writes the archive, the process that asks records the hole, as the writer
would; the first one decides for all readers.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import msgspec

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink, Link, key_of, records_of
from streamkit.aws import AwsError, ErrorKind, trouble_of
from streamkit.errors import RetentionLost, StreamkitError
from streamkit.observe.logger import get_logger
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Page
from streamkit.stream.decode.envelope import POSITION_DIGITS
from streamkit.stream.iterators import PageSource

log = get_logger("streamkit.archive")

ARCHIVED = "archive "
"""The beginning of iterators that lead into an archive; those of the service have no spaces."""
_UNARCHIVED = "they were trimmed, and no worker was alive to archive them"
_LOOK_PAGES = 10
"""Pages that are read in one look for the oldest record of a shard: most of them may be empty."""


class NotDecided(StreamkitError):
    """The stream does not have a position any more, and the archive says nothing about it yet."""


class WriterAhead(StreamkitError):
    """The writer of the archive was at this position, too, and has looked at the stream since.

    Nothing behind the position was created before `seen`, in epoch seconds.
    """

    def __init__(self, seen: float) -> None:
        super().__init__("the archive's writer has nothing to store either")
        self.seen = seen


@dataclass(frozen=True)
class ArchiveWriter:
    """What readers ask about the writer of an archive.

    `cursor` reads its cursor of a shard: None if it has none. `is_over` returns whether no worker
    of it is alive, so that readers have to record holes themselves; those without it never do.
    """

    cursor: Callable[[str], Awaitable[Cursor | None]]
    is_over: Callable[[], Awaitable[bool]] | None = None


class LongPages:
    """The pages of a shard: the stream's, and the archive's for iterators that lead there.

    `lost` is the range of a loss that is not settled yet. `read_to` is how far the links lead that
    were read to their end: also beyond their last record, because streamkit's own are left out.
    """

    def __init__(
        self,
        source: PageSource,
        chain: Chain,
        stream_arn: str,
        writer: ArchiveWriter,
        is_whole: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Begin nowhere; `is_whole` returns whether the stream has the shard from its first record.

        The stream does not say that. Without it, the reader of the archive knows it already.
        """
        self.chain = chain
        self.lost: Link | None = None
        self.read_to = ""
        self._gone = False
        self._hole = self._look = ""
        self._source, self._arn, self._writer = source, stream_arn, writer
        self._is_whole = is_whole
        self._pages: Iterator[Page] = iter(())
        self._link: Link | None = None
        self._at = ""
        self._asked = ""

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator of the stream."""
        return await self._source.get_iterator(**where)

    async def get_records(self, iterator: str) -> Page:
        """Return the page of an iterator, from the stream or the archive.

        Raises:
            RetentionLost: the archive says that what follows is lost.
            NotDecided: it says nothing, and the stream does not have it any more.
        """
        if not iterator.startswith(ARCHIVED):
            page = await self._source.get_records(iterator)
            self._asked = ""
            return page
        position = iterator.removeprefix(ARCHIVED)
        if self._link is None or position != self._at:
            await self._find(position)
        return await self._next(position)

    def archived(self, position: str, *, gone: bool = False) -> str:
        """Return an iterator to what the archive has after a position.

        `gone` says that the stream does not have the shard any more.
        """
        self._gone = gone or self._gone
        return ARCHIVED + key_of(position)

    def settled(self) -> Link | None:
        """Return the range of the loss that is settled now, if the archive had named it."""
        lost, self.lost = self.lost, None
        return lost

    async def _find(self, position: str) -> None:
        """Go to the link around a position."""
        self._link, self._pages, begin = None, iter(()), position
        if await self.chain.objects.read(self.chain.name(position)) is None:
            begin = await self.chain.around(position) or position
        await self._open(begin, position)

    async def _open(self, begin: str, position: str) -> bool:
        """Open the link that begins somewhere, if it leads further than a position."""
        try:
            found = await self.chain.at(begin)
        except DamagedLink as damaged:
            await self._judge(position, str(damaged))
            return False
        if found is None or (found[0].last <= position and found[0].kind != "end"):
            return False
        link, body = found
        if link.kind == "hole":
            self._hole = link.last
            text = f"{link.reason}, says {self.chain.name(begin)}"
            raise await self._loss(msgspec.structs.replace(link, after=position), text)
        self._link, self._at = link, position
        self._pages = records_of(body, self.chain.name(begin))
        return True

    async def _next(self, position: str) -> Page:
        """Return the next page of the archive, or of the stream behind its end."""
        while True:
            try:
                for page in self._pages:
                    if page.records[-1].position > position:
                        self._at = page.records[-1].position
                        return msgspec.structs.replace(page, next_iterator=ARCHIVED + self._at)
            except DamagedLink as damaged:  # its hash is right
                link, self._link = self._link, None
                ends = "" if link is None else BEYOND if link.kind == "end" else link.last
                await self._judge(position, str(damaged), ends)
                return await self._leave(position)
            if self._link is not None:
                if self._link.kind == "end":
                    return Page()
                position = self.read_to = self._link.last
                self._link = None
                if position > self._asked:  # it leads beyond what was asked for in vain
                    self._asked = ""
            if not await self._open(position, position):
                return await self._leave(position)

    async def _leave(self, position: str) -> Page:
        """Read on in the stream, behind the end of the archive."""
        if await self._was_asked(position):
            await self._judge(position, "")
        where = {
            "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
            "SequenceNumber": str(int(position)),
        }
        if self._hole == position:  # no record has the hole's last number
            where = {
                "ShardIteratorType": "AT_SEQUENCE_NUMBER",
                "SequenceNumber": str(int(position) + 1),
            }
        elif position == ORIGIN:
            where = {"ShardIteratorType": "TRIM_HORIZON"}
        try:
            return await self._source.get_records(await self._iterator(**where))
        except AwsError as error:
            if trouble_of(error) in (ErrorKind.TRIMMED, ErrorKind.MISSING):
                self._asked = position
            raise

    async def _was_asked(self, position: str) -> bool:
        """Return whether the stream does not have what follows a position any more."""
        if position == ORIGIN != self._asked:
            return self._is_whole is None or not await self._is_whole()
        return position == self._asked

    async def _iterator(self, **where: str) -> str:
        return await self._source.get_iterator(
            StreamArn=self._arn, ShardId=self.chain.shard, **where
        )

    async def _judge(self, position: str, text: str, ends: str = "") -> None:
        """Decide what it means that the archive does not lead on from a position.

        Args:
            position: the archive has no link there, or one that cannot be read.
            text: why not; empty if there is none.
            ends: where the link ends, if it says so.

        Returns:
            Nothing, if the stream is to be asked for the position.

        Raises:
            StreamkitError: what follows is lost, or nothing is decided.
        """
        if text and not await self._was_asked(position):
            log.often("archive.unreadable", level="warning", by=text, reason=text)
            return
        # In this order: an object is older than a cursor behind it, and than the next object. So if
        # the link is missing *after* these two were seen, it was removed.
        cursor = await self._writer.cursor(self.chain.shard)
        until = ends or await self.chain.next_after(position)
        if not text and await self.chain.objects.read(self.chain.name(position)) is not None:
            raise NotDecided("it was decided this very moment")
        over = until is None and self._writer.is_over is not None and await self._writer.is_over()
        if until is None and cursor is not None:
            until = BEYOND if cursor.finished else key_of(cursor.position)
        if until is not None and until > position:
            text = text or f"{self.chain.name(position)} is missing"
            raise await self._loss(self.chain.link(position, until), text)
        unseen = cursor is None and self._gone
        if unseen and self._writer.is_over is None:  # no writer will ever say it
            text = text or f"{self.chain.name(position)} is missing"
            raise await self._loss(self.chain.link(position, BEYOND), text)
        if over or unseen:
            await self._decide(position)
            await self._find(position)
        elif until == position and cursor is not None:
            raise WriterAhead(cursor.seen)
        else:
            raise NotDecided(text or "the archive says nothing about records that are trimmed")

    async def _decide(self, position: str) -> None:
        """Record a hole, as the writer would: from the chain's end to the oldest record left.

        Another process may be faster: what is there then is the answer.
        """
        begin, last, until = await self.chain.end_before(position), BEYOND, 0.0
        if not self._gone:
            page = await self._oldest()
            if page.records:
                before = int(page.records[0].position) - 1
                last, until = f"{before:0{POSITION_DIGITS}}", page.records[0].created_at
        if begin <= position < last:
            hole = msgspec.structs.replace(self.chain.link(begin, last), kind="hole", until=until)
            there = await self.chain.add(msgspec.structs.replace(hole, reason=_UNARCHIVED))
            log.error("archive.hole", shard=self.chain.shard, last=there.last)
        elif last == position:
            self._hole = position  # nothing is lost: the oldest record is the next one
        self._asked = ""

    async def _oldest(self) -> Page:
        """Read the first page with records, or the last one of the shard.

        Raises:
            NotDecided: it was not found yet.
        """
        iterator, self._look = self._look, ""  # if a call fails, the next look begins again
        iterator = iterator or await self._iterator(ShardIteratorType="TRIM_HORIZON")
        for _ in range(_LOOK_PAGES):
            page = await self._source.get_records(iterator)
            if page.records or page.next_iterator is None:
                return page
            iterator = page.next_iterator
        self._look = iterator
        raise NotDecided("the shard has no record at the moment")

    async def _loss(self, lost: Link, text: str) -> RetentionLost:
        """Return the error of a loss; what is lost was created before the next record there is.

        Without one, the writer's cursor says how late it can be; who raises the error knows more.
        """
        if not lost.until:
            until = await self.chain.first_record(lost.last)
            lost = msgspec.structs.replace(lost, until=until)
        self.lost, cursor = lost, await self._writer.cursor(self.chain.shard)
        seen = 0 if cursor is None else cursor.dated or cursor.seen or cursor.ended
        after, last = lost.after.lstrip("0") or "0", lost.last.lstrip("0")
        until_text = "its end" if lost.last == BEYOND else last
        return RetentionLost(
            f"shard {lost.shard}: records after {after} up to {until_text} are lost: {text}",
            shard=lost.shard,
            after=lost.after,
            until=lost.until or seen,
            gone=lost.last == BEYOND,
        )

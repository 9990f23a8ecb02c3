"""Shared reads: the consumers of one process read a shard's pages once for all of them.

After one consumer has read with an iterator, the other ones that hold it get the page from memory.
A reader that opens a shard gets a shared iterator instead of a new one if everything after its
position is in memory, or still to be read at the *tail*.

      page ──► page ──► page ──► tail        the tail is read by the first reader that comes,
       ▲                 ▲                   one call at a time; a reader that waits there is
    the slowest       the others             woken when records arrive

Pages are kept until every reader of the shard has had them, and at most `limit` bytes of all
shards. A reader that falls further behind reads apart until it is back within the kept pages. Only
one such reader of a shard reads at a time, in turns, so that a shard never has more than two.

In: iterators of one client. Out: its pages, which are frozen. On failure: what the client raises,
to the caller alone; `TurnAwaited`, while another reader that fell behind has its turn. Each reader
itself decides what a loss is and where a shard ends, see `reader`.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import msgspec

from streamkit.aws import PASSING, AwsError, trouble_of
from streamkit.errors import RetryableError
from streamkit.progress.clock import Clock
from streamkit.stream.decode import Page
from streamkit.stream.decode.envelope import POSITION_DIGITS
from streamkit.stream.iterators import PageSource
from streamkit.stream.turns import Turns

_KEPT_BYTES = 32_000_000
_END = "the end of the shard"
_EMPTY_BYTES = 500
"""The memory that an empty page takes, about."""


@dataclass
class SharedReads:
    """The shards that are read in this process, each by any number of consumers."""

    source: PageSource
    clock: Clock
    limit: int = _KEPT_BYTES
    _shards: dict[tuple[str, str], "_Shard"] = field(default_factory=dict)
    _sizes: OrderedDict[tuple["_Shard", str], int] = field(default_factory=OrderedDict)
    _total: int = 0

    def join(self, stream_arn: str, shard_id: str, wake: Callable[[], None]) -> "SharedReader":
        """Begin to read a shard; `wake` is called when a page with records arrives."""
        place = stream_arn, shard_id
        shard = self._shards.setdefault(place, _Shard(self, place))
        reader = SharedReader(shard, wake)
        shard.readers.add(reader)
        return reader

    def forget(self, place: tuple[str, str]) -> None:
        """Drop a shard that its last reader has left."""
        self._shards.pop(place, None)

    def keep(self, shard: "_Shard", iterator: str, page: Page) -> None:
        """Count a page's bytes; drop the oldest pages if there are too many bytes."""
        size = page.size if page.records else _EMPTY_BYTES
        self._sizes[shard, iterator] = size
        self._total += size
        while self._total > self.limit:
            oldest, first = next(iter(self._sizes))
            oldest.drop(first)

    def let_go(self, shard: "_Shard", iterator: str) -> None:
        """Subtract the bytes of a page that is not kept any more."""
        self._total -= self._sizes.pop((shard, iterator), 0)


@dataclass(eq=False, slots=True)
class SharedReader:
    """One consumer's pages of one shard; for a `ShardReader`, in place of the client."""

    shard: "_Shard"
    wake: Callable[[], None]
    iterator: str = ""
    position: str = ""
    calling: bool = False

    @property
    def ready(self) -> bool:
        """Return whether a page with records is in memory already."""
        return bool(self.shard.ahead(self.iterator)[1])

    async def get_iterator(self, **where: str) -> str:
        """Return an iterator: a shared one if it leads to all that follows."""
        after = where.get("SequenceNumber")
        self.position = after.zfill(POSITION_DIGITS) if after else ""
        self.iterator = await self.shard.open(self, where)
        return self.iterator

    async def get_records(self, iterator: str) -> Page:
        """Return the page of an iterator.

        Raises:
            TurnAwaited: it must be read apart, and it is another reader's turn.
            ClientError: as the client does.
        """
        self.iterator = iterator
        try:
            page = await self.shard.read(self, iterator)
        except Exception:
            self.iterator = ""  # it may open the shard again, and other readers may be faster
            raise
        if page.records:
            self.position = page.records[-1].position
        self.iterator = page.next_iterator or _END
        self.shard.trim()
        return page

    async def call(self, iterator: str) -> Page:
        """Ask the service for a page, for all readers; `calling` is true during the call."""
        self.calling = True
        try:
            page = await self.shard.shared.source.get_records(iterator)
        finally:
            self.calling = False
        if page.records:
            return page
        return msgspec.structs.replace(page, read_at=self.shard.shared.clock.time())

    def close(self) -> None:
        """Stop reading, and drop the pages that were kept only for this reader."""
        self.shard.leave(self)


@dataclass(eq=False, slots=True)
class _Shard:
    """The pages of one shard: all after `low`, up to the tail, at `high`.

    `low` is None if it is not known what is before the first record; then `from_horizon` says that
    everything since the trim horizon is here.
    """

    shared: SharedReads
    place: tuple[str, str]
    readers: set[SharedReader] = field(default_factory=set)
    pages: dict[str, Page] = field(default_factory=dict)
    tail: str | None = None
    low: str | None = None
    high: str = ""
    from_horizon: bool = False
    _opening: anyio.Lock = field(default_factory=anyio.Lock)
    _at_tail: anyio.Lock = field(default_factory=anyio.Lock)
    _turns: Turns = field(default_factory=Turns)

    # -- open ----------------------------------------------------------------------------------

    async def open(self, reader: SharedReader, where: dict[str, str]) -> str:
        """Return a shared iterator, or a new one."""
        kind = where["ShardIteratorType"]
        async with self._opening:
            known = self._at(reader.position, horizon=kind == "TRIM_HORIZON")
            if known is not None:
                return known
            iterator = await self.shared.source.get_iterator(**where)
            if kind in ("TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"):
                self._lead(reader, iterator)
            return iterator

    def _lead(self, reader: SharedReader, iterator: str) -> None:
        """Make the furthest reader the shared tail."""
        if (self.tail is None and not self.pages) or reader.position > self.high:
            self._forget()
            self.tail, self.high = iterator, reader.position
            self.low = reader.position or None
            self.from_horizon = not reader.position

    def _at(self, position: str, *, horizon: bool) -> str | None:
        """Return an iterator that leads to everything after a position, if there is one."""
        first = next(iter(self.pages), self.tail)
        if horizon:
            return first if self.from_horizon else None
        if self.low is None or not self.low <= position <= self.high:
            return None
        for iterator, page in self.pages.items():
            if page.records and page.records[-1].position > position:
                return iterator
        return self.tail or next(reversed(self.pages), None)

    # -- read ----------------------------------------------------------------------------------

    def ahead(self, iterator: str) -> tuple[str, bool]:
        """Return the next iterator with records to read in memory, or else the last in memory."""
        while (page := self.pages.get(iterator)) is not None and not page.records:
            following = page.next_iterator
            if following is None or following not in self.pages:
                return iterator, False
            iterator = following
        return iterator, page is not None

    async def read(self, reader: SharedReader, iterator: str) -> Page:
        """Return the next page, from memory if it is there."""
        iterator, _ = self.ahead(iterator)
        if iterator == self.tail:
            async with self._at_tail:
                if iterator == self.tail:
                    return await self._read_tail(reader, iterator)
            iterator, _ = self.ahead(iterator)
        if iterator in self.pages:
            return self.pages[iterator]
        return await self._read_apart(reader, iterator)

    async def _read_tail(self, reader: SharedReader, iterator: str) -> Page:
        begin = reader.position
        try:
            page = await reader.call(iterator)
        except (*AwsError, RetryableError) as error:
            passing = isinstance(error, RetryableError) or trouble_of(error) in PASSING
            if not passing and iterator == self.tail:
                self._forget()
            raise
        if iterator != self.tail:  # another reader has read on meanwhile
            return self._joined(page, begin)
        self._append(iterator, page)
        return page

    async def _read_apart(self, reader: SharedReader, iterator: str) -> Page:
        """Read pages that are not shared any more, or not yet; join the shared ones if possible."""
        if reader.position:
            self._lead(reader, iterator)
        common = self._at(reader.position, horizon=False)
        if common is not None:
            return await self.read(reader, common)
        self._turns.take(reader)
        begin = reader.position
        return self._joined(await reader.call(iterator), begin)

    def _joined(self, page: Page, begin: str) -> Page:
        """Link a page that was read apart, after `begin`, to the shared pages, if it reaches them.

        A page that was opened at the horizon does not continue any page that was read before.
        """
        if not page.records or self.low is None:
            return page
        end = page.records[-1].position
        common = self._at(end, horizon=False)
        if common is not None:
            return msgspec.structs.replace(page, next_iterator=common)
        if (begin or page.records[0].position) <= self.high < end and self.tail is not None:
            self._append(self.tail, page)
        return page

    def _append(self, iterator: str, page: Page) -> None:
        """Share the page with all readers, and move the tail behind it."""
        if page.next_iterator == iterator:
            return  # the service returned the same iterator again, as it may within a moment
        self.tail = page.next_iterator
        self.pages[iterator] = page
        if page.records:
            self.low = page.records[0].position if self.low is None else self.low
            self.high = page.records[-1].position
        self.shared.keep(self, iterator, page)
        if page.records or self.tail is None:
            for other in self.readers:
                if other.iterator == iterator:
                    other.wake()

    # -- what is kept --------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop pages that every reader has had; a new reader may need any of them."""
        wanted = {reader.iterator for reader in self.readers}
        while "" not in wanted and self.pages and (first := next(iter(self.pages))) not in wanted:
            if self.tail is None and len(self.pages) == 1:
                return  # the end of the shard, for a reader that comes later
            self.drop(first)

    def drop(self, iterator: str) -> None:
        """Drop the first page."""
        page = self.pages.pop(iterator)
        self.shared.let_go(self, iterator)
        if page.records:
            self.low, self.from_horizon = page.records[-1].position, False
        if page.next_iterator is None:
            self._forget()

    def _forget(self) -> None:
        for iterator in self.pages:
            self.shared.let_go(self, iterator)
        self.pages.clear()
        self.tail, self.low, self.high, self.from_horizon = None, None, "", False

    def leave(self, reader: SharedReader) -> None:
        """Remove a reader, and drop the pages kept only for it."""
        self.readers.discard(reader)
        self._turns.leave(reader)
        if self.readers:
            self.trim()
        else:
            self._forget()
            self.shared.forget(self.place)

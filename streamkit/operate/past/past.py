"""Read the past of a table: its changes from an archive, then from the stream behind its end.

    oldest ──► pages of each shard, parents first ──► the tip              `pages`
    newest ──► chunks of each shard, children first ──► a moment            `backwards`

In: an app with an archive. Out: records, in the order of each item's changes, or in the opposite
order. The reader is the one of workers (`archive.reader`), from a position in the archive; a
command decides nothing and writes nothing. Memory holds a link of a shard's chain, not the shard.

On failure: what the archive lacks is a `RetentionLost`, with the range, unless losses are allowed:
then they are listed in `losses`. What the archive has not decided yet raises `NotDecided`.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from streamkit.app import App
from streamkit.archive.answers import answered
from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink
from streamkit.archive.long_pages import ArchiveWriter, LongPages
from streamkit.archive.objects import Archive
from streamkit.archive.reader import LongReader
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.walk import open_link, walk
from streamkit.aws import Aws
from streamkit.core.tables import AppTables, survey
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.fleet.cursors import every_cursor
from streamkit.operate.past.reading import PastReading
from streamkit.operate.past.shards import PastShards
from streamkit.progress.clock import Clock, SystemClock, utc
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Page, Record
from streamkit.stream.reader import StreamPages

_ENDLESS = math.inf


@dataclass
class PastChanges(PastReading):
    """The changes of one table, as its archive and its stream have them.

    `shards` runs something for each shard.
    """

    def __post_init__(self) -> None:
        """Prepare to list shards."""
        super().__post_init__()
        self.shards = PastShards(self.aws, self.arn, self.archive, self.writer, self.began)

    async def pages(
        self, shard: str, since: float = 0.0, until: float = _ENDLESS
    ) -> AsyncIterator[Page]:
        """Yield a shard's pages with records created from one moment on, up to another one."""
        reader = await self.reader(shard, since)
        async for page in self.read(reader):
            if page.records[0].created_at > until:
                return
            wanted = tuple(r for r in page.records if since <= r.created_at <= until)
            if wanted:
                yield msgspec.structs.replace(page, records=wanted)

    async def backwards(self, shard: str, after: float) -> AsyncIterator[list[Record]]:
        """Yield the records of a shard that were created after a moment, the newest first.

        Raises:
            ConfigurationError: the archive is too far behind the stream.
        """
        self._require_parent(shard, after)
        chain = self.archive.chain(shard)
        positions = await chain.positions()
        newest, begun = await self._tail(chain, positions, after)
        yield newest
        oldest = ""
        async for step in walk(chain, positions, backwards=True):
            newer, oldest, link = oldest, step.begin, step.link
            if step.begin == begun:
                continue  # what its object had is in `newest`, or named as lost
            if link is None:
                yield (await self.again(chain, step.begin, step.ends, step.text, after))[::-1]
                continue
            if step.missing:
                yield (await self.again(chain, step.missing, newer, "", after))[::-1]
            if link.kind == "hole" and (not link.until or link.until >= after):  # 0: not known
                text = f"shard {shard}: {link.reason}, says {chain.name(step.begin)}"
                lost = RetentionLost(text, shard=shard, after=link.after, until=link.until)
                self._lose(lost)
            yield [record for record in reversed(step.records) if record.created_at > after]
            if link.count and link.first <= after:
                return
        if oldest not in ("", ORIGIN):
            yield (await self.again(chain, ORIGIN, oldest, "", after))[::-1]

    def _require_parent(self, shard: str, since: float) -> None:
        missing = self.shards.orphans(max(since, self.began)).get(shard)
        if missing:
            self._lose(RetentionLost(f"shard {shard}: {missing}", shard=shard))

    async def _tail(
        self, chain: Chain, positions: list[str], after: float
    ) -> tuple[list[Record], str]:
        """Return what the stream has behind the end of a chain, the newest first.

        If the last link cannot be read, the stream is asked for what its object had, too. The
        second value is then where that link begins; else it is empty.
        """
        if not positions and await self.shards.ended_before(chain.shard, after):
            return [], ""
        begin = START
        if positions:
            link, _, text = await open_link(chain, positions[-1])
            if link is not None and link.kind == "end":
                return [], ""
            if link is None:
                begun = positions[-1]
                return (await self.again(chain, begun, BEYOND, text, after))[::-1], begun
            begin = link.last
        reader = await self._reader_at(chain.shard, begin, after)
        return (await self._held(reader, BEYOND, "", after))[::-1], ""

    async def reader(self, shard: str, since: float, position: str = START) -> LongReader:
        """Return the reader of a shard, behind a position, or for all changes since a moment."""
        begin = position
        if position == START:
            self._require_parent(shard, since)
            begin = await _last_before(self.archive.chain(shard), since)
            if begin == START and await self.shards.ended_before(shard, since):
                begin = BEYOND
        reader = await self._reader_at(shard, begin, since)
        if begin != START:
            reader.begin_in_archive()
        return reader

    async def _reader_at(self, shard: str, position: str, since: float = 0.0) -> LongReader:
        chain, writer = self.archive.chain(shard), ArchiveWriter(self.writer.read)
        is_whole = partial(self.still.is_whole, shard, since)
        pages = LongPages(StreamPages(self.aws), chain, self.arn, writer, is_whole)
        begin = Cursor(shard, position=position, seen=int(since))  # older ones are not missed
        if position == START:
            begin = await self._unread(shard)
        reader = LongReader(pages, self.arn, begin, self.clock, self._rng)
        if position == START and await self.shards.is_gone(shard):
            reader.begin_in_archive(gone=True)
        return reader

    async def _unread(self, shard: str) -> Cursor:
        """Return where to begin in a shard of which the archive has no link.

        The shard may have appeared since the archive's writer was last alive. Its records are
        younger than what the writer has read of its nearest known ancestor: that moment says
        whether one of them can be trimmed. Of a shard with links that were removed it says nothing.
        """
        line, known = shard, await self.writer.read(shard)
        if known is not None and known.position != START:
            known = None
        else:
            while known is None and (parent := self.shards.parents.get(line)) is not None:
                line, known = parent, await self.writer.read(parent)
        began = int(self.began)  # what was before was never archived
        seen = 0 if known is None else known.seen
        return Cursor(shard, position=START, since=began, seen=seen)


async def _last_before(chain: Chain, since: float) -> str:
    """Return where reading must begin for every change since a moment; `START` without links."""
    positions = await chain.positions()
    for position in reversed(positions) if since else ():
        try:
            found = await chain.at(position)
        except DamagedLink:
            continue
        if found is not None and found[0].count and found[0].until < since:
            return found[0].last
    return ORIGIN if positions else START


async def past_of(app: App, aws: Aws, tables: AppTables, archive: ArchivedShards) -> PastChanges:
    """Return the past of an app's table, by its table's clock; what is lost is passed over."""
    store, arn = tables.store(app.writer, aws), tables.table.stream_arn or ""
    began, clock = await archive.began_if_known(), await store.clock(SystemClock())
    return PastChanges(aws, arn, archive, store, began, clock, allowed=True)


@asynccontextmanager
async def open_archive(
    app: App, tables: AppTables, *, patient: bool = False
) -> AsyncIterator[ArchivedShards]:
    """Open what an app's archive has of the stream of its table, as `tables` were surveyed.

    Unless the caller is `patient`, the archive has to answer within some seconds.

    Raises:
        ConfigurationError: the app has no archive, it does not answer, or its table has no stream.
    """
    declared, label = archive_of(app), tables.space(app.writer).label
    async with declared.opened() as objects:
        archive = ArchivedShards(objects, f"{app.table}/{label}")
        if not patient:
            await answered(f"the archive in {declared.place}", archive.answer)
        yield archive


def archive_of(app: App) -> Archive:
    """Return the archive that an app declares.

    Raises:
        ConfigurationError: it declares none.
    """
    if app.archive is None:
        raise ConfigurationError(
            f"{app.declared} has no archive=: declare one, such as BucketArchive('s3://BUCKET')"
        )
    return app.archive


async def begun(app: App, archive: ArchivedShards, store: CursorStore) -> float:
    """Return when an archive began; `store` has the cursors of its writer.

    Raises:
        ConfigurationError: it was never written, or not begun yet at the place where it is now.
    """
    began = await archive.began()
    if began is not None:
        return began
    place, writer = archive_of(app).place, app.writer.name
    read = max((c.dated or c.seen for c in (await every_cursor(store)).values()), default=0)
    if not read:
        raise ConfigurationError(
            f"{place} has nothing of {archive.stream}: the archive was never written; check its"
            f" place, and whether a worker of {writer} runs"
        )
    there = await archive.objects.names(f"{archive.stream}/shards/")
    has = "has some objects" if there else "has nothing"
    raise ConfigurationError(
        f"{place} {has} of {archive.stream}, and no archive.json, although {writer} has read the"
        f" stream up to {utc(read).isoformat()}: what it stored before is at a former place, or was"
        " removed. Stop the workers and copy all of it here; else the archive begins here with the"
        " next shard, in some hours"
    )


@asynccontextmanager
async def open_past(
    app: App,
    aws: Aws,
    clock: Clock | None = None,
    *,
    allow_loss: bool = False,
    tables: AppTables | None = None,
) -> AsyncIterator[tuple[PastChanges, AppTables]]:
    """Open what an app's archive and its table's stream have of the past.

    The tables are surveyed here, unless they were before.

    Raises:
        ConfigurationError: the app has no archive, it does not answer, it was never written, or the
            table is missing or has no stream.
    """
    archive_of(app)  # before any call: without one, nothing else is worth a word
    tables = tables or await survey(app, aws)
    async with open_archive(app, tables) as archive:
        store = tables.store(app.writer, aws)
        began = await begun(app, archive, store)
        arn = tables.table.stream_arn or ""
        clock = await store.clock(clock or SystemClock())
        yield PastChanges(aws, arn, archive, store, began, clock, allow_loss), tables

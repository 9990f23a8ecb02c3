"""Read every shard of a stream, from its oldest record to its tip, parents first.

The tip is a while without records, or a record of a later moment than the call: in a table that is
written all the time, if only by what is done with its records, there is always one more.

In: a stream, the table's clock, and the function that takes its records. Out: a reader for each
shard, whose position is how far it was read; all records before that were taken. On failure:
`RetentionLost` if the stream is trimmed faster than it is read, and any error of the function that
takes records.
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from streamkit.aws import Aws
from streamkit.progress.activity import each_of
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record
from streamkit.stream.lineage import Shard, parents_first
from streamkit.stream.listing import is_gone, list_shards
from streamkit.stream.reader import ShardReader, StreamPages
from streamkit.stream.start import STAMP_SECONDS

TIP_PAGES = 10
"""So many empty pages in a row count as the tip; see `stream.read_progress`."""
_EMPTY_PAUSE = 0.25
"""All readers of a shard together may make five calls a second."""
_AT_ONCE = 16

Take = Callable[[Sequence[Record]], Awaitable[None]]


def open_reader(aws: Aws, arn: str, shard: str, clock: Clock, rng: random.Random) -> ShardReader:
    """Return a reader of a shard that begins at its oldest record; trimmed ones are no loss."""
    return ShardReader(StreamPages(aws), arn, Cursor(shard), clock, rng)


@dataclass
class Passage:
    """Reads a stream; `records` counts the records that were taken."""

    aws: Aws
    stream_arn: str
    clock: Clock
    rng: random.Random
    take: Take
    shards: dict[str, Shard] = field(default_factory=dict)
    readers: dict[str, ShardReader] = field(default_factory=dict)
    records: int = 0
    _gone: set[str] = field(default_factory=set)

    async def catch_up(self) -> None:
        """Read all that was written before this call: each shard to its tip, or to its end.

        Raises:
            RetentionLost: records were trimmed before they were read.
        """
        begun = self.clock.time()
        await self._list()
        done: set[str] = set()
        while ready := [shard for shard in self._ready() if shard not in done]:
            await each_of(_AT_ONCE, ready, partial(self._read_on, begun))
            done |= set(ready)
            if any(self.readers[shard].ended for shard in ready):
                await self._list()  # an ended shard may have children by now

    def begun(self) -> Iterator[Shard]:
        """Return the shards that were begun, parents first."""
        return parents_first(shard for shard in self.shards.values() if shard.id in self.readers)

    async def _list(self) -> None:
        """List the shards, with unlisted parents that can still be read."""
        listing = await list_shards(self.aws, self.stream_arn)
        self.shards |= {shard.id: shard for shard in listing.shards}
        parents = {shard.parent for shard in self.shards.values() if shard.parent}
        for parent in sorted(parents - self.shards.keys() - self._gone):
            if await is_gone(self.aws, self.stream_arn, parent):
                self._gone.add(parent)
            else:
                self.shards[parent] = Shard(parent)

    def _ready(self) -> list[str]:
        """Return the shards that may be read now, because their parents are read to their end."""
        return [
            shard.id
            for shard in self.shards.values()
            if not self._ended(shard.id)
            and (shard.parent not in self.shards or self._ended(str(shard.parent)))
        ]

    def _ended(self, shard: str) -> bool:
        return shard in self.readers and self.readers[shard].ended

    async def _read_on(self, begun: float, shard: str) -> None:
        if shard not in self.readers:
            arguments = self.stream_arn, shard, self.clock, self.rng
            self.readers[shard] = open_reader(self.aws, *arguments)
        reader, empty = self.readers[shard], 0
        while not reader.ended and empty < TIP_PAGES:
            page = await reader.read()
            if page is None:
                await anyio.sleep(reader.wait)
            elif page.records:
                empty = 0
                self.records += len(page.records)
                await self.take(page.records)
                if page.records[-1].created_at > begun + STAMP_SECONDS:
                    return
            elif not reader.ended:
                empty += 1
                await anyio.sleep(_EMPTY_PAUSE)

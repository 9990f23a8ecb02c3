"""What the stream still has of what an archive lacks: of an object that is missing or damaged.

In: a shard, and the position after which the object begins. Out: whether the stream has what
follows, and a reader of it. Of what follows a position the stream says so itself. Of a shard's
first records it does not: there it counts how old they can be.
"""

import random
from dataclasses import dataclass, field

from streamkit.archive.link import BEYOND, ORIGIN
from streamkit.archive.shards import ArchivedShards
from streamkit.aws import Aws, AwsError, ErrorKind, patiently, trouble_of
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor
from streamkit.stream.listing import is_gone
from streamkit.stream.reader import ShardReader, StreamPages

_WITHOUT = (ErrorKind.TRIMMED, ErrorKind.MISSING, ErrorKind.REFUSED, ErrorKind.INVALID)
"""The stream's answers if it does not have a position; a stray object names one that never was."""


@dataclass(frozen=True)
class StillStreamed:
    """The stream of an archive, asked for what the archive lacks."""

    aws: Aws
    arn: str
    archive: ArchivedShards
    clock: Clock
    _rng: random.Random = field(default_factory=lambda: random.Random(0))

    async def has(self, shard: str, after: str) -> bool:
        """Return whether the stream has what follows a position of a shard, and may be read."""
        if after == BEYOND:
            return False
        if after == ORIGIN:
            return await self.is_whole(shard) and not await is_gone(self.aws, self.arn, shard)
        where = {"StreamArn": self.arn, "ShardId": shard, "SequenceNumber": str(int(after))}

        async def look() -> None:
            iterator = await self.aws.get_iterator(
                **where, ShardIteratorType="AFTER_SEQUENCE_NUMBER"
            )
            await self.aws.get_page(iterator, limit=1)

        try:
            await patiently(look)
        except AwsError as error:
            if trouble_of(error) in _WITHOUT:
                return False
            raise
        return True

    async def is_whole(self, shard: str, since: float = 0.0) -> bool:
        """Return whether the stream has every record of a shard that was created since a moment."""
        reader = await self.reader(shard, ORIGIN, since)
        return bool(reader.seen) and not reader.may_be_trimmed_unread

    async def reader(self, shard: str, after: str, since: float) -> ShardReader:
        """Return a reader of the stream alone, behind a position; older records are not missed."""
        begin = Cursor(shard, position=after, seen=int(since))
        if after == ORIGIN:
            born = await self.archive.born_after(shard)
            begin = Cursor(shard, position=START, seen=int(max(since, born)))
        return ShardReader(StreamPages(self.aws), self.arn, begin, self.clock, self._rng)

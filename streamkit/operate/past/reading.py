"""Read pages of the past up to their end, and from the stream what the archive lacks.

In: a reader, or a position at which an object is missing or damaged. Out: pages, or records. On
failure: see `past`.
"""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from anyio import sleep

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND
from streamkit.archive.long_pages import NotDecided
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.still_streamed import StillStreamed
from streamkit.aws import Aws, AwsError, ErrorKind, trouble_of
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Page, Record
from streamkit.stream.reader import ShardReader
from streamkit.stream.start import STAMP_SECONDS

log = get_logger("streamkit.archive")

TAIL_MAX = 50_000
"""At most so many records behind the end of a chain are held in memory, to be read backwards."""
_EMPTY_MAX = 10
"""So many empty pages in a row are the tip: sparse shards were seen to need five."""
_EMPTY_SECONDS = 0.25
"""The pause after an empty page: AWS takes five calls a second for a shard, workers' included."""
_UNDECIDED_MAX = 4
_STRAY = " (the stream never had its position: remove this object)"


@dataclass
class PastReading:
    """What an archive and its stream have of one table; `began` is when the archive began.

    `losses` are the ranges that were passed over, for people, if losses are `allowed`.
    """

    aws: Aws
    arn: str
    archive: ArchivedShards
    writer: CursorStore
    began: float
    clock: Clock = field(default_factory=SystemClock)
    allowed: bool = False
    losses: list[str] = field(default_factory=list)
    _rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        """Prepare to ask the stream for what the archive lacks."""
        self.still = StillStreamed(self.aws, self.arn, self.archive, self.clock)

    async def again(
        self, chain: Chain, begin: str, ends: str, text: str, after: float = 0.0
    ) -> list[Record]:
        """Return what the stream still has of what the archive lacks; the rest is lost.

        Args:
            chain: the chain of a shard.
            begin: the position at which an object is missing or damaged.
            ends: the position up to which records are wanted.
            text: why it cannot be read; empty if it is missing.
            after: the moment after which records are wanted.

        Raises:
            RetentionLost: records are lost, and losses are not allowed.
        """
        if text:
            log.often("archive.unreadable", level="warning", by=text, reason=text)
        reader = await self.still.reader(chain.shard, begin, max(after, self.began))
        text = f"shard {chain.shard}: {text or f'{chain.name(begin)} is missing'}"
        return await self._held(reader, ends, text, after)

    async def _held(self, reader: ShardReader, ends: str, text: str, after: float) -> list[Record]:
        """Read on up to a position; return what was created after a moment."""
        found = list[Record]()
        try:
            async for page in self.read(reader, text):
                found += [r for r in page.records if r.created_at > after and r.position <= ends]
                if page.records[-1].position >= ends:
                    break
                if ends == BEYOND and len(found) > TAIL_MAX:
                    raise ConfigurationError(
                        f"shard {reader.shard_id}: the archive is more than {TAIL_MAX:,} records"
                        " behind the stream; run its writer first"
                    )
        except AwsError as error:
            if trouble_of(error) is not ErrorKind.INVALID:
                raise
            # The stream never had this position: only the name of a stray object has it.
            self._lose(RetentionLost(text, shard=reader.shard_id), f"{text}{_STRAY}")
        return found

    def _lose(self, lost: RetentionLost, text: str = "") -> None:
        text = text or str(lost)
        if not self.allowed:
            raise lost.told(f"{text}; --allow-loss goes on without it")
        if text not in self.losses:  # a restore reads a shard twice
            self.losses.append(text)

    async def read(self, reader: ShardReader, text: str = "") -> AsyncIterator[Page]:
        """Yield the pages of a reader that have records, up to the tip or the end of its shard.

        The tip is a while without records, or a record of a later moment than this call: in a table
        that is written, if only by a worker's heartbeats, there is always one more.
        A loss is named with the text, if one is given.

        Raises:
            RetentionLost: the archive lacks records, and losses are not allowed.
            NotDecided: the archive does not say what became of trimmed records.
        """
        empty, undecided, begun = 0, 0, self.clock.time()
        while not reader.ended and empty < _EMPTY_MAX:
            try:
                page = await reader.read()
            except RetentionLost as lost:
                self._lose(lost, text)
                reader.resume(lost)
                continue
            if page is None:
                undecided += reader.apart == "undecided"
                if undecided >= _UNDECIDED_MAX:
                    raise NotDecided(
                        f"shard {reader.shard_id}: the archive does not say yet what became of"
                        " trimmed records; run its writer first"
                    )
                await sleep(reader.wait)
                continue
            empty = 0 if page.records else empty + 1
            if page.records:
                yield page
                if page.records[-1].created_at > begun + STAMP_SECONDS:
                    return
            elif not reader.ended:
                await sleep(_EMPTY_SECONDS)

"""The means of reading that the shards of one worker share."""

from dataclasses import dataclass, field

import anyio

from streamkit.archive.answers import WorkerObjects
from streamkit.archive.long_pages import ArchiveWriter
from streamkit.archive.objects import Flush
from streamkit.archive.shards import ArchivedShards
from streamkit.progress.pacing import ByteBudget, Pace
from streamkit.stream.asking import AskRate
from streamkit.stream.listing import StreamLineage
from streamkit.stream.loss import Losses
from streamkit.stream.polling import PollingPool
from streamkit.stream.sharing import SharedReads
from streamkit.worker.quiet import WriteCount


@dataclass(frozen=True)
class ArchiveUse:
    """What a worker does with its app's archive: it `copies` the stream to it, or reads it.

    The `writer` stores what it has read by `flush`. `objects` are those of the shards, and say what
    was refused.
    """

    shards: ArchivedShards
    objects: WorkerObjects
    flush: Flush
    writer: ArchiveWriter
    copies: bool


@dataclass(frozen=True)
class Reading:
    """The means of reading, one for all shards of a worker.

    `lineage` says which shards there are. `archive` is set if there is one: its writer `copies` the
    stream to it, other consumers read it where the stream does not reach back far enough.

    `pool` has places for some shards at a time, `budget` bytes for all together. `pace` says how
    often to read, `asks` how often their lineage may be asked for. `alone` is held for a change
    that may kill its worker. `reads` is set if other consumers of this process read the same
    shards. `units` bounds the write units a second while old changes are committed.
    """

    pool: PollingPool
    budget: ByteBudget
    pace: Pace
    asks: AskRate
    losses: Losses
    lineage: StreamLineage
    reads: SharedReads | None = None
    writes: WriteCount = field(default_factory=WriteCount)
    alone: anyio.Lock = field(default_factory=anyio.Lock)
    archive: ArchiveUse | None = None
    units: float | None = None

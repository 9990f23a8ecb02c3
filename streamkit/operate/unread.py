"""Measure how far behind each shard is, including shards that have no cursor yet.

      finished, or read to its end ──► its children ──► theirs …

In: a consumer's cursors, and the stream. Out: the lag of each shard. A child without a cursor ages
like every unread shard: the last worker stopped before it read the parent's end, or the child was
not listed when its parent ended. A child is found by its parent: then `DescribeStream`, which all
callers of a stream together may call ten times a second, is called only once for each such parent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import anyio

from streamkit.archive.objects import ArchiveRefused
from streamkit.aws import Aws, AwsError
from streamkit.errors import StreamSilent
from streamkit.fleet.lag import Archived, Lag, bound, measure
from streamkit.fleet.taken import is_over
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor, child_of
from streamkit.stream.decode import Record
from streamkit.stream.listing import list_children

UNREAD = "unread"
"""The state of a shard that has no cursor."""
_SHARDS_AT_ONCE = 8
_ASKED_MAX = 50
"""At most this many parents are asked for their children; any other is only known to have some."""
_ASK_SECONDS = 0.25


@dataclass
class Unread:
    """The shards of one consumer with their lags; `cursors` includes cursors that would be created.

    `founded` is when the consumer began. Until the stream is read, lags are what the cursors say.
    """

    cursors: dict[str, Cursor]
    clock: Clock
    founded: float
    lags: dict[str, Lag] = field(default_factory=dict)
    _asked: int = 0

    def __post_init__(self) -> None:
        """Give every shard that has ended a child, and every shard a lag."""
        parents = {cursor.parent for cursor in self.cursors.values()}
        ended = [c for c in self.cursors.values() if c.finished and c.name not in parents]
        self.cursors |= {_awaited(cursor): _begun(cursor, _awaited(cursor)) for cursor in ended}
        now = self.clock.time()
        self.lags |= {n: bound(c, now, self.founded) for n, c in self.cursors.items()}

    async def look(
        self,
        aws: Aws,
        stream_arn: str,
        wants: Callable[[Record], bool],
        archive: Archived | None = None,
    ) -> None:
        """Measure the lags in the stream, or the archive, also of children without a cursor."""
        reading, asking = anyio.Semaphore(_SHARDS_AT_ONCE), anyio.Lock()

        async def look(cursor: Cursor) -> None:
            async with reading:
                arguments = aws, stream_arn, cursor, wants, self.clock, self.founded, archive
                lag = self.lags[cursor.name] = await measure(*arguments)
            if lag.ended:
                await follow(cursor)

        async def follow(parent: Cursor) -> None:
            async with asking:
                children = await self._children_of(aws, stream_arn, parent, archive)
            for child in children:
                group.start_soon(look, child)

        async with anyio.create_task_group() as group:
            for cursor in list(self.cursors.values()):
                if cursor.finished and _awaited(cursor) in self.cursors:
                    group.start_soon(follow, cursor)
                elif not is_over(cursor) and cursor.state != UNREAD:
                    group.start_soon(look, cursor)

    async def _children_of(
        self, aws: Aws, stream_arn: str, parent: Cursor, archive: Archived | None
    ) -> list[Cursor]:
        """List the children of a shard that has ended; return those without a cursor.

        The stream is asked, then an archive: it knows children that are trimmed.
        """
        awaited = _begun(parent, _awaited(parent))
        self.cursors[awaited.name] = awaited
        self.lags[awaited.name] = bound(awaited, self.clock.time(), self.founded)
        if self._asked == _ASKED_MAX:
            return []
        self._asked += 1
        try:
            shards = [one.id for one in (await list_children(aws, stream_arn, parent.name)).shards]
            if not shards and archive is not None:
                shards = await archive.shards.children(parent.name)
        except (*AwsError, ArchiveRefused, StreamSilent):
            return []
        await anyio.sleep(_ASK_SECONDS)
        children = [_begun(parent, name) for name in shards if name not in self.cursors]
        if shards:  # a shard without children: they are listed later
            del self.cursors[awaited.name]
        self.cursors |= {child.name: child for child in children}
        return children


def _awaited(parent: Cursor) -> str:
    return f"a child of {parent.name}"


def _begun(parent: Cursor, name: str) -> Cursor:
    child = child_of(name, parent, generation=parent.generation, parent_name=parent.name)
    return replace(child, state=UNREAD)

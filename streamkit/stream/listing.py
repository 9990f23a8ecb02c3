"""Listing a stream's shards: `DescribeStream`, page by page, and one shard's children.

In: a stream ARN. Out: `Shard`s. The service allows ten calls a second for the whole fleet, so only
the lister lists, and it pauses between pages. An answer about children is filtered again here,
because a server that does not know `ShardFilter` returns every shard.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from streamkit.aws import Aws, AwsError, ErrorKind, patiently, trouble_of
from streamkit.errors import StreamSilent
from streamkit.progress.control import Cursor
from streamkit.stream.lineage import Shard

_SILENT_SECONDS = 20.0
"""After this many seconds the stream counts as out of reach; it normally answers in milliseconds.
"""


@dataclass(frozen=True, slots=True)
class Listing:
    """All shards of a stream, and whether it is still written to."""

    shards: tuple[Shard, ...]
    enabled: bool


async def list_shards(
    aws: Aws, stream_arn: str, *, turn: Callable[[], Awaitable[None]] | None = None
) -> Listing:
    """Return every listed shard of the stream.

    Args:
        aws: open clients.
        stream_arn: the stream.
        turn: waits until the next page may be asked for.

    Raises:
        ClientError: the stream does not exist, or may not be read.
        StreamSilent: the service does not answer.
    """
    shards: list[Shard] = []
    start: dict[str, str] = {}
    while True:
        if turn is not None:
            await turn()
        description = await _describe(aws, StreamArn=stream_arn, **start)
        shards += map(_shard, description.get("Shards", []))
        last = description.get("LastEvaluatedShardId")
        if not last:
            break
        start = {"ExclusiveStartShardId": last}
    return Listing(tuple(shards), description.get("StreamStatus") in ("ENABLED", "ENABLING"))


async def list_children(aws: Aws, stream_arn: str, parent: str) -> Listing:
    """Return the children of a shard that are listed by now; an empty answer is not final."""
    shard_filter = {"Type": "CHILD_SHARDS", "ShardId": parent}
    try:
        description = await _describe(aws, StreamArn=stream_arn, ShardFilter=shard_filter)
    except AwsError as error:
        if trouble_of(error) is not ErrorKind.INVALID:
            raise
        return Listing((), enabled=True)  # an engine refuses the filter; a full listing finds them
    children = tuple(
        shard for shard in map(_shard, description.get("Shards", [])) if shard.parent == parent
    )
    return Listing(children, description.get("StreamStatus") in ("ENABLED", "ENABLING"))


async def is_gone(aws: Aws, stream_arn: str, shard_id: str) -> bool:
    """Ask the service whether a shard does not exist any more."""
    try:
        await _bounded(
            lambda: aws.streams.get_shard_iterator(
                StreamArn=stream_arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
            )
        )
    except AwsError as error:
        if trouble_of(error) in (ErrorKind.MISSING, ErrorKind.TRIMMED):
            return True
        raise
    return False


@dataclass(frozen=True)
class StreamLineage:
    """The shards of a stream and how they descend from each other, as the service says.

    With an archive there are more: see `streamkit.archive.lineage`.
    """

    aws: Aws
    stream_arn: str

    @property
    def reaches_back(self) -> bool:
        """Return whether there are shards to read that the stream does not list any more."""
        return False

    async def listed(self, turn: Callable[[], Awaitable[None]]) -> Listing:
        """Return every shard that the stream lists; `turn` waits until it may be asked again."""
        return await list_shards(self.aws, self.stream_arn, turn=turn)

    async def children(self, parent: str) -> Listing:
        """Return the children of a shard that are known by now; an empty answer is not final."""
        return await list_children(self.aws, self.stream_arn, parent)

    async def is_gone(self, shard_id: str) -> bool:
        """Ask the service whether a shard does not exist any more."""
        return await is_gone(self.aws, self.stream_arn, shard_id)

    async def older(
        self,
        listed: Collection[Shard],  # noqa: ARG002 - an archive needs them
        cursors: Mapping[str, Cursor],  # noqa: ARG002
    ) -> tuple[Shard, ...]:
        """Return shards that the stream does not list any more, and that have to be read."""
        return ()

    async def created(self, shards: Collection[Cursor]) -> None:
        """Record shards whose cursors are about to be created."""


async def _bounded(call: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Make a call, with retries, for a bounded time.

    Raises:
        StreamSilent: the service has not answered.
    """
    with anyio.move_on_after(_SILENT_SECONDS):
        return await patiently(call)
    raise StreamSilent("the stream does not answer")


async def _describe(aws: Aws, **arguments: Any) -> dict[str, Any]:
    reply = await _bounded(lambda: aws.streams.describe_stream(**arguments))
    description: dict[str, Any] = reply["StreamDescription"]
    return description


def _shard(entry: dict[str, Any]) -> Shard:
    numbers = entry.get("SequenceNumberRange", {})
    return Shard(
        entry["ShardId"],
        entry.get("ParentShardId"),
        numbers.get("StartingSequenceNumber"),
        numbers.get("EndingSequenceNumber"),
    )

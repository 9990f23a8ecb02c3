"""Payload: fetch the whole record of a parked change, wherever it is.

In: a parked change. Out: its record; or a failure that does not heal, when the change was parked
with its keys only and the stream does not keep its record any more (24 hours); or one that heals,
while the stream serves only empty pages, which says nothing about the record. On failure: calls
that are throttled or not answered are repeated; a call that is not allowed raises the service's
error.

A change that a Lambda function parked does not name its shard. Then the shards that may have its
number are read, the youngest first.
"""

from collections.abc import Mapping
from typing import Any

import anyio

from streamkit.aws import Aws, AwsError, ErrorKind, patiently, trouble_of
from streamkit.core.parking import Failure, Parked
from streamkit.errors import RetentionLost, RetryableError
from streamkit.stream.decode import Page, Record
from streamkit.stream.reader import StreamPages

_PAGES_MAX = 10
"""An iterator at a sequence number may serve empty pages first."""
_AGAIN_SECONDS = 1.0
_SHARD = "shardId-"
"""The beginning of DynamoDB's shard names."""

_GONE = Failure(
    "RecordGone",
    "it was parked with its keys only, and the stream has dropped its record by now; discard it",
    0,
    heals=False,
)
_UNSERVED = Failure(
    "RecordUnserved",
    "it was parked with its keys only, and the stream has served no page with its record; it is"
    " asked again",
    0,
)


async def whole_record(aws: Aws, stream_arn: str, parked: Parked) -> Record | Failure:
    """Return the record of a parked change, with its images.

    Raises:
        ClientError: the stream may not be read with these credentials.
    """
    record = Record.from_bytes(parked.record)
    if parked.payload == "whole":
        return record
    try:
        if parked.shard.startswith(_SHARD):
            return await _in_stream(aws, stream_arn, parked.shard, record.sequence_number)
        return await _anywhere(aws, stream_arn, record)
    except AwsError as error:
        if trouble_of(error) in (ErrorKind.TRIMMED, ErrorKind.MISSING):
            return _GONE
        raise


async def _in_stream(aws: Aws, stream_arn: str, shard: str, number: str) -> Record | Failure:
    """Read one record by its sequence number, if the stream serves it."""
    reply = await patiently(
        lambda: aws.streams.get_shard_iterator(
            StreamArn=stream_arn,
            ShardId=shard,
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            SequenceNumber=number,
        )
    )
    iterator: str | None = reply["ShardIterator"]
    for _ in range(_PAGES_MAX):
        if iterator is None:
            return _GONE
        page = await _page(aws, iterator, limit=1)
        if page.records:
            first = page.records[0]
            return first if first.sequence_number == number else _GONE
        iterator = page.next_iterator
    return _UNSERVED


async def _anywhere(aws: Aws, stream_arn: str, record: Record) -> Record | Failure:
    """Look for a record in every shard that may have it; other shards may use the same numbers."""
    nowhere = _GONE
    for shard in await _shards_with(aws, stream_arn, int(record.sequence_number)):
        try:
            found = await _in_stream(aws, stream_arn, shard, record.sequence_number)
        except AwsError as error:
            if trouble_of(error) not in (ErrorKind.TRIMMED, ErrorKind.MISSING, ErrorKind.INVALID):
                raise
        else:
            if isinstance(found, Record) and found.keys == record.keys:
                return found
            nowhere = _UNSERVED if found is _UNSERVED else nowhere
    return nowhere


async def _shards_with(aws: Aws, stream_arn: str, number: int) -> list[str]:
    """Return the shards whose range holds a sequence number, the one that began last first."""
    found: dict[str, int] = {}
    request: dict[str, Any] = {"StreamArn": stream_arn}
    while True:
        reply = await patiently(lambda: aws.streams.describe_stream(**request))
        described: Mapping[str, Any] = reply["StreamDescription"]
        for shard in described["Shards"]:
            between = shard.get("SequenceNumberRange", {})
            first = int(between.get("StartingSequenceNumber", 0))
            last = between.get("EndingSequenceNumber")
            if first <= number and (last is None or number <= int(last)):
                found[shard["ShardId"]] = first
        if not described.get("LastEvaluatedShardId"):
            return sorted(found, key=lambda name: -found[name])
        request["ExclusiveStartShardId"] = described["LastEvaluatedShardId"]


async def records_between(
    aws: Aws, stream_arn: str, shard: str, first: str, last: str
) -> tuple[Record, ...]:
    """Read the records of a shard from one sequence number to another, both included.

    Raises:
        RetentionLost: the stream does not keep them any more.
    """
    found: list[Record] = []
    try:
        iterator: str | None = await aws.get_iterator(
            StreamArn=stream_arn,
            ShardId=shard,
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            SequenceNumber=first,
        )
        empty = 0
        while iterator is not None and empty < _PAGES_MAX:
            page = await _page(aws, iterator, limit=1000)
            empty = 0 if page.records else empty + 1
            for record in page.records:
                if int(record.sequence_number) <= int(last):
                    found.append(record)
                if int(record.sequence_number) >= int(last):
                    return tuple(found)
            iterator = page.next_iterator
    except AwsError as error:
        if trouble_of(error) not in (ErrorKind.TRIMMED, ErrorKind.MISSING):
            raise
        text = f"the stream does not keep the records from {first} to {last} any more"
        raise RetentionLost(text, shard=shard, certain=True) from error
    text = f"the stream does not show the records from {first} to {last}: {len(found)} were found"
    raise RetentionLost(text, shard=shard)


async def _page(aws: Aws, iterator: str, *, limit: int) -> Page:
    while True:
        try:
            return await patiently(lambda: StreamPages(aws).get_records(iterator, limit=limit))
        except RetryableError:  # the reply was cut off
            await anyio.sleep(_AGAIN_SECONDS)

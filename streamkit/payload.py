"""Payload: the whole record of a parked change, wherever it is.

In: a parked change. Out: its record; or a failure that does not heal, when the change was parked
with its keys only and the stream does not keep its record any more (24 hours). On failure: what
throttles or does not answer is asked again; what is not allowed raises the service's own error.
"""

import anyio

from streamkit.aws import Aws, AwsError, Trouble, patiently, trouble_of
from streamkit.decode import Page, Record
from streamkit.errors import RetryableError
from streamkit.parking import Failure, Parked

_PAGES_MAX = 10
"""An iterator at a sequence number may serve empty pages first."""
_AGAIN_SECONDS = 1.0

_GONE = Failure(
    "RecordGone",
    "it was parked with its keys only, and the stream has dropped its record by now; discard it",
    0,
    heals=False,
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
        found = await _in_stream(aws, stream_arn, parked.shard, record.sequence_number)
    except AwsError as error:
        if trouble_of(error) in (Trouble.TRIMMED, Trouble.MISSING):
            return _GONE
        raise
    return found or _GONE


async def _in_stream(aws: Aws, stream_arn: str, shard: str, number: str) -> Record | None:
    """Read one record by its sequence number; None if it is not there."""
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
            return None
        page = await _page(aws, iterator)
        if page.records:
            first = page.records[0]
            return first if first.sequence_number == number else None
        iterator = page.next_iterator
    return None


async def _page(aws: Aws, iterator: str) -> Page:
    while True:
        try:
            return await patiently(lambda: aws.get_records(iterator, limit=1))
        except RetryableError:  # the reply was cut off
            await anyio.sleep(_AGAIN_SECONDS)

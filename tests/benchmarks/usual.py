"""The usual way to read a stream: the yardstick beside the consumer.

GetRecords through aioboto3 as it comes, its parser, and boto3's deserialiser for both images: what
a program does that is written by hand, before it has done anything with a change. It never
changes, so that a ratio to it says how fast streamkit is, whatever the machine.
"""

import asyncio
import time

import aioboto3
from aiobotocore.config import AioConfig
from boto3.dynamodb.types import TypeDeserializer


class Usual:
    """Reads the pages of a server again and again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._deserialize = TypeDeserializer().deserialize

    def read(self, pages: int, there: int) -> float:
        """Return the CPU seconds of reading so many pages, once connected.

        A shard has so many pages `there`; behind the last one it begins again with the first, as
        an empty page would take less time.
        """
        return asyncio.run(self._read(pages, there))

    async def _read(self, pages: int, there: int) -> float:
        session = aioboto3.Session("local", "local", region_name="us-east-1")
        config = AioConfig(retries={"total_max_attempts": 1})
        async with session.client(
            "dynamodbstreams", endpoint_url=self._url, config=config
        ) as client:
            reply = await client.get_shard_iterator(
                StreamArn=f"arn:aws:dynamodb:us-east-1:{'0' * 12}:table/Deals/stream/1",
                ShardId=f"shardId-{0:020}-{0:08}",
                ShardIteratorType="TRIM_HORIZON",
            )
            first = reply["ShardIterator"]
            began = time.process_time()
            for number in range(pages):
                if number % there == 0:
                    iterator = first
                reply = await client.get_records(ShardIterator=iterator)
                iterator = reply["NextShardIterator"]
                for record in reply["Records"]:
                    self._typed(record["dynamodb"]["NewImage"])
                    self._typed(record["dynamodb"]["OldImage"])
            return time.process_time() - began

    def _typed(self, image: dict[str, object]) -> dict[str, object]:
        return {name: self._deserialize(value) for name, value in image.items()}

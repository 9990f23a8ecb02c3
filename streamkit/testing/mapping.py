"""A Lambda event source mapping, as far as it matters for what its function does to the table.

It reads a stream's shards, parents first, cuts batches for each shard and chain of items, and
invokes the function in order. After a failure it invokes again, from the record that the function
reports, or with half of the batch if it is configured so. Now and then it delivers old batches
again, or takes a function for timed out that still runs. AWS's Lambda guide on DynamoDB streams
describes each of these.
"""

import random
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from streamkit.testing.world import World

Event = dict[str, Any]
Invoke = Callable[[Event], Awaitable[dict[str, Any]]]
"""A function that invokes the Lambda function; it raises if the invocation failed."""


_TOO_OFTEN_SECONDS = 0.2


class _TooOften(RuntimeError):
    """A call was refused because of its rate; a later one may succeed."""


@dataclass(frozen=True, slots=True)
class Habits:
    """The settings of a mapping, and how often things go wrong, as shares of invocations."""

    batch: int = 10
    parallel: int = 1
    bisect: bool = True
    repeated: float = 0.1
    abandoned: float = 0.05


@dataclass
class _Chain:
    """The records of one shard that go to one invocation at a time."""

    records: list[Event] = field(default_factory=list)
    most: int = 1_000_000


@dataclass
class EventSourceMapping:
    """Invoke a function for the records of one table's stream."""

    world: World
    table: str
    invoke: Invoke
    rng: random.Random
    habits: Habits = field(default_factory=Habits)
    invocations: int = 0
    _delivered: list[list[Event]] = field(default_factory=list)
    _after: dict[str, str] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Deliver every record now in the stream, shard by shard along the lineage."""
        shards = await self._shards_in_time()
        done: set[str] = set()
        async with anyio.create_task_group() as late:
            while todo := [s for s in shards if s["ShardId"] not in done]:
                waiting = {shard["ShardId"] for shard in todo}
                ready = [shard for shard in todo if shard.get("ParentShardId") not in waiting]
                async with anyio.create_task_group() as group:
                    for shard in ready:
                        group.start_soon(self._shard, shard["ShardId"], late)
                done |= {shard["ShardId"] for shard in ready}

    def _call(self, operation: str, request: Event) -> Event:
        status, body = self.world.engine.call("dynamodbstreams", operation, request)
        if status != 200 and str(body["__type"]).endswith("ThrottlingException"):
            raise _TooOften(operation)
        if status != 200:
            raise RuntimeError(f"{operation}: {body}")
        return dict(body)

    @property
    def _arn(self) -> str:
        (stream,) = self._call("ListStreams", {"TableName": self.table})["Streams"]
        return str(stream["StreamArn"])

    async def _shards_in_time(self) -> list[Event]:
        """Return the shards; all callers of `DescribeStream` share ten calls a second."""
        while True:
            try:
                return self._shards()
            except _TooOften:
                await anyio.sleep(_TOO_OFTEN_SECONDS)

    def _shards(self) -> list[Event]:
        found: list[Event] = []
        request: Event = {"StreamArn": self._arn}
        while True:
            described = self._call("DescribeStream", request)["StreamDescription"]
            found += described["Shards"]
            last = described.get("LastEvaluatedShardId")
            if not last:
                return found
            request["ExclusiveStartShardId"] = last

    def _records(self, shard: str) -> list[Event]:
        """Return the next records of a shard, up to its end or its present tip."""
        if shard in self._ended:
            return []
        arn = self._arn
        request = {"StreamArn": arn, "ShardId": shard, **self._where(shard)}
        iterator = self._call("GetShardIterator", request)["ShardIterator"]
        found: list[Event] = []
        empty = 0
        # One empty page means the tip, unless the stream returns empty pages by chance.
        enough = 10 if self.world.engine.streams.settings.empty_page_chance else 1
        while iterator and empty < enough:
            page = self._call("GetRecords", {"ShardIterator": iterator})
            empty = 0 if page["Records"] else empty + 1
            found += [_as_lambda(record, arn) for record in page["Records"]]
            iterator = page.get("NextShardIterator")
        if not iterator:
            self._ended.add(shard)
        if found:
            self._after[shard] = found[-1]["dynamodb"]["SequenceNumber"]
        return found

    def _where(self, shard: str) -> Event:
        """Return where to continue in a shard; at first at its oldest record."""
        if shard not in self._after:
            return {"ShardIteratorType": "TRIM_HORIZON"}
        number = self._after[shard]
        return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}

    async def _shard(self, shard: str, late: anyio.abc.TaskGroup) -> None:
        chains: dict[int, _Chain] = {}
        for record in self._records(shard):
            number = zlib.crc32(repr(record["dynamodb"]["Keys"]).encode()) % self.habits.parallel
            chains.setdefault(number, _Chain()).records.append(record)
        async with anyio.create_task_group() as group:
            for chain in chains.values():
                group.start_soon(self._deliver, chain, late)

    async def _deliver(self, chain: _Chain, late: anyio.abc.TaskGroup) -> None:
        while chain.records:
            size = self.rng.randint(1, min(self.habits.batch, chain.most))
            batch = chain.records[:size]
            if self._delivered and self.rng.random() < self.habits.repeated:
                await self._quietly(self.rng.choice(self._delivered))
            if self.rng.random() < self.habits.abandoned:
                late.start_soon(self._quietly, batch)  # it works on, but nothing waits for it
                await anyio.sleep(self.rng.random())
                continue
            done = await self._invoke(batch)
            if done is None:
                chain.most = max(1, size // 2) if self.habits.bisect else chain.most
                await anyio.sleep(0.1)
                continue
            chain.most = 1_000_000
            if done:
                self._delivered.append(batch[:done])
            del chain.records[:done]

    async def _invoke(self, batch: Sequence[Event]) -> int | None:
        """Return how many records of a batch are done; None if the invocation failed."""
        self.invocations += 1
        try:
            response = await self.invoke({"Records": list(batch)})
        except Exception:  # noqa: BLE001 - any error of a function means a failed batch
            return None
        failures = [entry["itemIdentifier"] for entry in response["batchItemFailures"]]
        if not failures:
            return len(batch)
        numbers = [record["dynamodb"]["SequenceNumber"] for record in batch]
        if any(number not in numbers for number in failures):
            raise AssertionError(f"an identifier that is not in the batch: {failures}")
        return min(map(numbers.index, failures))

    async def _quietly(self, batch: Sequence[Event]) -> None:
        await self._invoke(batch)


def _as_lambda(record: Event, arn: str) -> Event:
    """Return a record of `GetRecords` as Lambda sends it."""
    changed = dict(record) | {"eventSourceARN": arn, "eventSource": "aws:dynamodb"}
    identity = changed.pop("userIdentity", None)
    if identity:
        changed["userIdentity"] = {
            name[0].lower() + name[1:]: value for name, value in identity.items()
        }
    return changed

"""The local engine: against what the AWS client alone costs, and in proportion to its size."""

import asyncio
import gc
import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

from streamkit.aws import connect
from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.stream_settings import StreamSettings
from streamkit.local.transport import Response, session_class
from tests.benchmarks.yardstick import Figure, in_turns, row
from tests.calls import botocores_way

CALLS = 400
ROUNDS = 5
NOW = 1_800_000_000.0
FEW, MANY = 500, 10_000
CLIENT = "the client alone"

TABLE = {
    "TableName": "Bench",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}

Operation = Callable[[Any, int], Awaitable[object]]


def engine_with(items: int) -> Engine:
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", dict(TABLE))
    for n in range(items):
        item = {"PK": {"S": f"ITEM#{n}"}, "n": {"N": str(n)}}
        engine.call("dynamodb", "PutItem", {"TableName": "Bench", "Item": item})
    return engine


async def nothing(call: object, apply: object) -> Response:
    """Answer at once: what is left is the client."""
    return Response(200, b"{}")


async def put(dynamodb: Any, n: int) -> None:
    item = {"PK": {"S": f"ITEM#{n}"}, "n": {"N": str(n + 1)}, "text": {"S": "some words" * 5}}
    await dynamodb.put_item(TableName="Bench", Item=item)


async def transact(dynamodb: Any, n: int) -> None:
    first = {"TableName": "Bench", "Item": {"PK": {"S": f"T#{n}"}, "n": {"N": "1"}}}
    second = {
        "TableName": "Bench",
        "Key": {"PK": {"S": "SUM"}},
        "UpdateExpression": "ADD #n :n",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":n": {"N": "1"}},
    }
    await dynamodb.transact_write_items(TransactItems=[{"Put": first}, {"Update": second}])


async def seconds_of(operation: Operation, *sessions: type) -> list[float]:
    """Return the fewest CPU seconds of a round of calls in each of the sessions."""
    best = [float("inf")] * len(sessions)
    for _ in range(ROUNDS):
        for place, session in enumerate(sessions):
            async with connect(http_session=session) as aws:
                await operation(aws.dynamodb, 0)
                began = time.process_time()
                for n in range(CALLS):
                    await operation(aws.dynamodb, n)
                best[place] = min(best[place], time.process_time() - began)
    return best


def beside_the_client(operation: Operation) -> Figure:
    small = engine_with(100)
    sessions = session_class(small), session_class(small, intercept=nothing)
    with botocores_way():
        engine, client = asyncio.run(seconds_of(operation, *sessions))
    return Figure(CALLS / engine, client / engine)


@row("local engine: PutItem", unit="calls/CPU s", of=CLIENT, bar=0.6)
def puts() -> Figure:
    return beside_the_client(put)


@row("local engine: TransactWriteItems of two", unit="calls/CPU s", of=CLIENT, bar=0.5)
def transactions() -> Figure:
    return beside_the_client(transact)


@row("local engine: PutItem among 30,000 items", unit="calls/CPU s", of="among 100", bar=0.8)
def large() -> Figure:
    sessions = session_class(engine_with(30_000)), session_class(engine_with(100))
    many, few = asyncio.run(seconds_of(put, *sessions))
    return Figure(CALLS / many, few / many)


def memory_of(changes: int, view: str | None) -> int:
    """The bytes that an engine takes after so many updates of a hundred items, all of them read."""
    tracemalloc.start()
    try:
        engine = Engine(rng=random.Random(1), clock=lambda: NOW)
        stream = {"StreamEnabled": view is not None} | ({"StreamViewType": view} if view else {})
        engine.call("dynamodb", "CreateTable", TABLE | {"StreamSpecification": stream})
        for n in range(changes):
            update = {
                "TableName": "Bench",
                "Key": {"PK": {"S": f"ITEM#{n % 100}"}},
                "UpdateExpression": "SET n = :n, words = :w",
                "ExpressionAttributeValues": {":n": {"N": str(n)}, ":w": {"S": f"word {n}"}},
            }
            engine.call("dynamodb", "UpdateItem", update)
        for one in engine.streams.all():
            for shard in one.shards():
                for record in shard.records():
                    record.encoded()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@row("local engine: memory of a record that was read", unit="bytes", bar=600, less=True)
def memory() -> Figure:
    changes = 4000
    return Figure((memory_of(changes, "NEW_AND_OLD_IMAGES") - memory_of(changes, None)) / changes)


@row(
    "local engine: a trim of 200,000 records",
    unit="ms",
    of="a thousand PutItem",
    bar=0.2,
    less=True,
)
def trim() -> Figure:
    """Freeing the records at once would take ten times as long."""
    now = NOW
    engine = Engine(rng=random.Random(1), clock=lambda: now)
    engine.streams.settings.roll_after = None
    engine.call("dynamodb", "CreateTable", dict(TABLE))
    stream = engine.tables["Bench"].stream
    for n in range(200_000):
        key = {"PK": {"S": f"ITEM#{n}"}}
        stream.append(key, None, key | {"n": {"N": str(n)}}, sizes=(0, 8))
    now += 86_401
    began = time.process_time()
    stream.settle()
    trimmed = time.process_time() - began
    assert len(stream.shards()[0]) == 0
    (writes,) = in_turns(lambda: engine_with(1000), rounds=3)
    return Figure(trimmed * 1000, trimmed / writes)


class Shards:
    """A table of many shards, and what is done to all of them."""

    def __init__(self, shards: int) -> None:
        self.now = NOW
        self.shards = shards
        settings = StreamSettings(describe_rate=None)
        rng = random.Random(1)
        self.engine = Engine(clock=lambda: self.now, rng=rng, shards=shards, settings=settings)
        _, body = self.engine.call("dynamodb", "CreateTable", dict(TABLE))
        self.arn = body["TableDescription"]["LatestStreamArn"]

    def roll(self) -> None:
        Control(self.engine).roll("Bench")

    def list_all(self) -> None:
        start: dict[str, str] = {}
        while True:
            request = {"StreamArn": self.arn, **start}
            _, body = self.engine.call("dynamodbstreams", "DescribeStream", request)
            last = body["StreamDescription"].get("LastEvaluatedShardId")
            if last is None:
                return
            start = {"ExclusiveStartShardId": last}

    def look_up_children(self) -> None:
        for shard in range(self.shards):
            named = {"Type": "CHILD_SHARDS", "ShardId": f"shardId-{shard:020d}-00000000"}
            request = {"StreamArn": self.arn, "ShardFilter": named}
            self.engine.call("dynamodbstreams", "DescribeStream", request)


def in_proportion(act: Callable[[Shards], None]) -> Figure:
    """Return the µs for each of many shards, and how often that of few shards it is.

    Larger lists miss the processor's cache more often; a sort or a walk for each shard would cost
    ten times as much or more.
    """

    def acted(shards: int) -> Callable[[], float]:
        def run() -> float:
            fleet = Shards(shards)
            gc.collect()
            began = time.process_time()
            act(fleet)
            return time.process_time() - began

        return run

    many, few = in_turns(acted(MANY), acted(FEW), rounds=3)
    return Figure(many / MANY * 1e6, (many / MANY) / (few / FEW))


@row("local engine: to roll 10,000 shards", unit="µs a shard", of="500", bar=4, less=True)
def roll() -> Figure:
    return in_proportion(Shards.roll)


@row("local engine: to list 10,000 shards", unit="µs a shard", of="500", bar=4, less=True)
def list_all() -> Figure:
    return in_proportion(Shards.list_all)


@row("local engine: children of 10,000 shards", unit="µs a shard", of="500", bar=4, less=True)
def children() -> Figure:
    return in_proportion(Shards.look_up_children)

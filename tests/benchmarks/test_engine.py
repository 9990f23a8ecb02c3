"""The local engine's speed, against what the AWS client alone costs, in one run.

The client is the ceiling: signing aside, it serialises, validates, retries and parses. The engine
may take a part of its time, and the same part however large the table is.
"""

import gc
import random
import time
import tracemalloc
from statistics import median

import anyio
import pytest

from streamkit.aws import connect
from streamkit.local.engine import Engine
from streamkit.local.transport import Response, session_class

CALLS = 400
ROUNDS = 5

pytestmark = pytest.mark.benchmark


TABLE = {
    "TableName": "Bench",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}


def engine_with(items):
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", dict(TABLE))
    for n in range(items):
        item = {"PK": {"S": f"ITEM#{n}"}, "n": {"N": str(n)}}
        engine.call("dynamodb", "PutItem", {"TableName": "Bench", "Item": item})
    return engine


async def nothing(call, apply):
    """Answer at once: what is left is the client."""
    return Response(200, b"{}")


async def rate(dynamodb, operation):
    started = time.perf_counter()
    for n in range(CALLS):
        await operation(dynamodb, n)
    return CALLS / (time.perf_counter() - started)


async def put(dynamodb, n):
    item = {"PK": {"S": f"ITEM#{n}"}, "n": {"N": str(n + 1)}, "text": {"S": "some words" * 5}}
    await dynamodb.put_item(TableName="Bench", Item=item)


async def transact(dynamodb, n):
    first = {"TableName": "Bench", "Item": {"PK": {"S": f"T#{n}"}, "n": {"N": "1"}}}
    second = {
        "TableName": "Bench",
        "Key": {"PK": {"S": "SUM"}},
        "UpdateExpression": "ADD #n :n",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":n": {"N": "1"}},
    }
    await dynamodb.transact_write_items(TransactItems=[{"Put": first}, {"Update": second}])


async def measure(operation):
    small, large = engine_with(100), engine_with(30_000)
    sessions = {
        "client alone": session_class(small, intercept=nothing),
        "100 items": session_class(small),
        "30,000 items": session_class(large),
    }
    rates = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            async with connect(http_session=session) as aws:
                await operation(aws.dynamodb, 0)
                rates[name].append(await rate(aws.dynamodb, operation))
    return {name: median(found) for name, found in rates.items()}


@pytest.mark.parametrize(("operation", "share"), [(put, 0.6), (transact, 0.5)])
def test_the_engine_takes_the_smaller_part_of_a_call_at_any_size(operation, share):
    rates = anyio.run(measure, operation)
    for name, found in rates.items():
        print(f"{operation.__name__:10} {name:14} {found:8,.0f} calls/s")
    assert rates["100 items"] > share * rates["client alone"]
    assert rates["30,000 items"] > 0.8 * rates["100 items"]


def memory_of(changes, view):
    """The bytes that an engine takes after so many updates of a hundred items, all of them read."""
    tracemalloc.start()
    try:
        engine = Engine(rng=random.Random(1), clock=lambda: 1_800_000_000.0)
        stream = {"StreamEnabled": view is not None} | ({"StreamViewType": view} if view else {})
        request = TABLE | {"StreamSpecification": stream}
        engine.call("dynamodb", "CreateTable", request)
        for n in range(changes):
            engine.call(
                "dynamodb",
                "UpdateItem",
                {
                    "TableName": "Bench",
                    "Key": {"PK": {"S": f"ITEM#{n % 100}"}},
                    "UpdateExpression": "SET n = :n, words = :w",
                    "ExpressionAttributeValues": {":n": {"N": str(n)}, ":w": {"S": f"word {n}"}},
                },
            )
        for stream in engine.streams.all():
            for shard in stream.shards():
                for record in shard.records():
                    record.encoded()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_record_that_was_read_takes_at_most_600_bytes():
    changes = 4000
    without = memory_of(changes, None)
    for view in ("NEW_AND_OLD_IMAGES", "KEYS_ONLY"):
        each = (memory_of(changes, view) - without) / changes
        print(f"{view:20} {each:6,.0f} bytes a record")
        assert each < 600


def test_a_trim_stops_the_engine_for_no_longer_than_some_writes_do():
    now = 1_800_000_000.0
    engine = Engine(rng=random.Random(1), clock=lambda: now)
    engine.streams.settings.roll_after = None
    engine.call("dynamodb", "CreateTable", dict(TABLE))
    stream = engine.tables["Bench"].stream
    for n in range(200_000):
        key = {"PK": {"S": f"ITEM#{n}"}}
        stream.append(key, None, key | {"n": {"N": str(n)}}, sizes=(0, 8))
    now += 86_401
    started = time.perf_counter()
    stream.settle()
    trimmed = time.perf_counter() - started
    print(f"a trim of 200,000 records takes {trimmed * 1000:.1f} ms")
    assert len(stream.shards()[0]) == 0
    # Freeing them all at once would take ten times as long.
    assert trimmed < 0.05

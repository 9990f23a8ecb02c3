"""The local engine's speed, against what the AWS client alone costs, in one run.

The client is the ceiling: signing aside, it serialises, validates, retries and parses. The engine
may take a part of its time, and the same part however large the table is.
"""

import random
import time
from statistics import median

import anyio
import pytest

from streamkit.aws import connect
from streamkit.local.engine import Engine
from streamkit.local.transport import Response, session_class

CALLS = 400
ROUNDS = 5

pytestmark = pytest.mark.benchmark


def engine_with(items):
    engine = Engine(rng=random.Random(1))
    engine.call(
        "dynamodb",
        "CreateTable",
        {
            "TableName": "Bench",
            "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        },
    )
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

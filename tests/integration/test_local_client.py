import asyncio
import random
from contextlib import asynccontextmanager

import aioboto3
import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from streamkit.aws import connect
from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.errors import ApiError
from streamkit.local.shortcut import shorten
from streamkit.local.transport import Call, Response, session_class

TABLE = {
    "TableName": "orders",
    "KeySchema": [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}


@pytest.fixture
def engine():
    return Engine(clock=lambda: 1_700_000_000.5, rng=random.Random(1))


@pytest.fixture
def at_once(monkeypatch):
    """Make the waits between botocore's retries take no time."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))


@asynccontextmanager
async def clients(engine, *, mode="standard", read_timeout=60, timeouts=True, **options):
    session = aioboto3.Session("key", "secret", region_name="us-east-1")
    config = AioConfig(
        http_session_cls=session_class(engine, read_timeout=timeouts, **options),
        retries={"mode": mode, "total_max_attempts": 3},
        read_timeout=read_timeout,
    )
    async with (
        session.client("dynamodb", config=config) as dynamodb,
        session.client("dynamodbstreams", config=config) as streams,
    ):
        yield dynamodb, streams


def key(pk, sk="s"):
    return {"pk": {"S": pk}, "sk": {"S": sk}}


async def put(dynamodb, pk, value=1):
    await dynamodb.put_item(TableName="orders", Item=key(pk) | {"v": {"N": str(value)}})


@pytest.mark.parametrize("short", [True, False])
async def test_a_client_has_the_tables_of_its_region(engine, short):
    async def names(region, *made):
        async with connect(http_session=session_class(engine), region=region) as aws:
            if short:
                shorten(aws.dynamodb)
            for name in made:
                await aws.dynamodb.create_table(**TABLE | {"TableName": name})
            return (await aws.dynamodb.list_tables())["TableNames"]

    assert await names("eu-west-1", "there") == ["there"]
    assert await names("us-east-1", "here") == ["here"]
    assert list(engine.tables) == ["here"]
    assert list(engine.at("eu-west-1").tables) == ["there"]


async def test_what_is_written_is_read_and_streamed_through_the_real_client(engine):
    async with clients(engine) as (dynamodb, streams):
        table = (await dynamodb.create_table(**TABLE))["TableDescription"]
        await dynamodb.put_item(TableName="orders", Item=key("a") | {"b": {"B": b"\x00\xff"}})
        item = (await dynamodb.get_item(TableName="orders", Key=key("a")))["Item"]
        arn = table["LatestStreamArn"]
        description = (await streams.describe_stream(StreamArn=arn))["StreamDescription"]
        (shard,) = description["Shards"]
        iterator = await streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        page = await streams.get_records(ShardIterator=iterator["ShardIterator"])

    assert item["b"] == {"B": b"\x00\xff"}
    assert description["CreationRequestDateTime"].timestamp() == 1_700_000_000.5
    (record,) = page["Records"]
    assert record["dynamodb"]["NewImage"] == item
    assert record["dynamodb"]["ApproximateCreationDateTime"].timestamp() == 1_700_000_000
    assert page["NextShardIterator"]
    assert page["ResponseMetadata"]["RequestId"]
    assert page["ResponseMetadata"]["RetryAttempts"] == 0


async def test_a_whole_lineage_is_read_through_the_real_client(engine):
    control = Control(engine)
    async with clients(engine) as (dynamodb, streams):
        arn = (await dynamodb.create_table(**TABLE))["TableDescription"]["LatestStreamArn"]
        for value in range(60):
            await put(dynamodb, f"k{value % 6}", value)
            if value % 20 == 10:
                control.split("orders", control.shards("orders")[-1]["id"])
        seen, todo = {}, [None]
        shards = (await streams.describe_stream(StreamArn=arn))["StreamDescription"]["Shards"]
        while todo:
            parent = todo.pop(0)
            for shard in shards:
                if shard.get("ParentShardId") != parent:
                    continue
                todo.append(shard["ShardId"])
                reply = await streams.get_shard_iterator(
                    StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
                )
                iterator = reply["ShardIterator"]
                while iterator:
                    page = await streams.get_records(ShardIterator=iterator, Limit=7)
                    for record in page["Records"]:
                        image = record["dynamodb"]["NewImage"]
                        seen.setdefault(image["pk"]["S"], []).append(int(image["v"]["N"]))
                    iterator = page.get("NextShardIterator") if page["Records"] else None

    assert len(shards) == 7
    assert seen == {f"k{n}": list(range(n, 60, 6)) for n in range(6)}


async def test_errors_arrive_as_the_client_s_own_exceptions(engine):
    async with clients(engine) as (dynamodb, streams):
        await dynamodb.create_table(**TABLE)
        with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
            await dynamodb.delete_item(
                TableName="orders", Key=key("a"), ConditionExpression="attribute_exists(pk)"
            )
        with pytest.raises(dynamodb.exceptions.TransactionCanceledException) as canceled:
            await dynamodb.transact_write_items(
                TransactItems=[
                    {"Put": {"TableName": "orders", "Item": key("a")}},
                    {
                        "ConditionCheck": {
                            "TableName": "orders",
                            "Key": key("b"),
                            "ConditionExpression": "attribute_exists(pk)",
                        }
                    },
                ]
            )
        with pytest.raises(streams.exceptions.ResourceNotFoundException):
            await streams.describe_stream(
                StreamArn="arn:aws:dynamodb:us-east-1:000000000000:table/x/stream/2020"
            )

    reasons = [reason["Code"] for reason in canceled.value.response["CancellationReasons"]]
    assert reasons == ["None", "ConditionalCheckFailed"]


async def test_an_intercept_sees_who_calls_what(engine):
    calls = []

    async def watch(call, apply):
        calls.append(call)
        return apply()

    async with clients(engine, actor="worker-1", intercept=watch) as (dynamodb, streams):
        await dynamodb.create_table(**TABLE)
        await streams.list_streams(TableName="orders")

    assert [(c.actor, c.service, c.operation) for c in calls] == [
        ("worker-1", "dynamodb", "CreateTable"),
        ("worker-1", "dynamodbstreams", "ListStreams"),
    ]
    assert isinstance(calls[1], Call)
    assert calls[1].payload == b'{"TableName": "orders"}'


@pytest.mark.parametrize("mode", ["standard", "legacy"])
@pytest.mark.parametrize(
    ("failure", "seen_as"),
    [
        (ConnectionRefusedError(), EndpointConnectionError),
        (ConnectionResetError(), ConnectionClosedError),
        (TimeoutError(), ReadTimeoutError),
        (ReadTimeoutError(endpoint_url="https://example.com"), ReadTimeoutError),
    ],
)
async def test_a_broken_network_is_retried_and_then_reported(
    engine, at_once, mode, failure, seen_as
):
    attempts = []

    async def broken(call, _apply):
        attempts.append(call)
        raise failure

    async with clients(engine, mode=mode, intercept=broken) as (dynamodb, _):
        with pytest.raises(seen_as):
            await dynamodb.list_tables()

    assert len(attempts) == 3


async def test_a_call_may_be_applied_and_its_answer_lost(engine, at_once):
    losses = iter([True, False])

    async def lossy(call, apply):
        response = apply()
        if call.operation == "UpdateItem" and next(losses):
            raise ConnectionResetError
        return response

    async with clients(engine, intercept=lossy) as (dynamodb, _):
        await dynamodb.create_table(**TABLE)
        reply = await dynamodb.update_item(
            TableName="orders",
            Key=key("a"),
            UpdateExpression="ADD v :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
            ReturnValues="ALL_NEW",
        )

    assert reply["Attributes"]["v"] == {"N": "2"}
    assert reply["ResponseMetadata"]["RetryAttempts"] == 1


async def test_an_intercept_may_answer_by_itself(engine, at_once):
    answers = iter([ApiError("InternalServerError", "", status=500), None])

    async def faulty(_call, apply):
        error = next(answers, ApiError("ThrottlingException", "Rate exceeded"))
        return apply() if error is None else Response.of_error(error)

    async with clients(engine, intercept=faulty) as (dynamodb, _):
        assert (await dynamodb.list_tables())["TableNames"] == []
        with pytest.raises(ClientError) as throttled:
            await dynamodb.list_tables()

    assert throttled.value.response["Error"]["Code"] == "ThrottlingException"
    assert throttled.value.response["ResponseMetadata"]["RetryAttempts"] == 2


async def test_a_call_that_never_comes_back_ends_with_the_client_s_time_out(engine, at_once):
    async def lost(_call, _apply):
        await asyncio.get_running_loop().create_future()

    async with clients(engine, intercept=lost, read_timeout=0.001) as (dynamodb, _):
        with pytest.raises(ReadTimeoutError):
            await dynamodb.list_tables()


async def test_a_frozen_process_has_no_time_outs(engine):
    thaw = asyncio.Event()

    async def frozen(_call, apply):
        await thaw.wait()
        return apply()

    options = {"intercept": frozen, "read_timeout": 0.000_001, "timeouts": False}
    async with clients(engine, **options) as (dynamodb, _):
        call = asyncio.ensure_future(dynamodb.list_tables())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        thaw.set()
        assert (await call)["TableNames"] == []


async def test_what_an_intercept_raises_by_its_own_name_is_not_disguised(engine):
    class Dead(Exception):
        pass

    async def dead(_call, _apply):
        raise Dead

    async with clients(engine, intercept=dead) as (dynamodb, _):
        with pytest.raises(Dead):
            await dynamodb.list_tables()


async def test_others_run_between_a_call_and_its_effect(engine):
    async with clients(engine) as (dynamodb, _):
        await dynamodb.create_table(**TABLE)
        order = []

        async def write(pk):
            await put(dynamodb, pk)
            order.append(f"written {pk}")

        async def other():
            order.append("other")

        await asyncio.gather(write("a"), other(), write("b"))

    assert order[0] == "other"


async def test_a_cancelled_call_leaves_the_client_usable(engine):
    async def slow(call, apply):
        if call.operation == "ListTables":
            await asyncio.get_running_loop().create_future()
        return apply()

    async with clients(engine, intercept=slow) as (dynamodb, _):
        call = asyncio.ensure_future(dynamodb.list_tables())
        for _ in range(10):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await dynamodb.describe_limits())["ResponseMetadata"]["HTTPStatusCode"] == 200


async def test_the_client_of_another_service_is_told_that_it_is_wrong_here(engine):
    session = aioboto3.Session("key", "secret", region_name="us-east-1")
    config = AioConfig(http_session_cls=session_class(engine))
    async with session.client("kinesis", config=config) as kinesis:
        with pytest.raises(ClientError) as refused:
            await kinesis.list_streams()

    assert refused.value.response["Error"]["Code"] == "UnknownOperationException"

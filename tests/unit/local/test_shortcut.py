"""The short ways of a call end as botocore's own: the same replies, exceptions and retries.

One is that of every client (`model.sdk.frequent_calls`), the other that of the engine's (`shortcut`).
"""

import asyncio
import json
import random
import uuid
from contextlib import asynccontextmanager
from itertools import count

import pytest
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError

from streamkit.aws import connect
from streamkit.local.engine import Engine
from streamkit.local.errors import ApiError
from streamkit.local.shortcut import shorten
from streamkit.local.transport import Response, session_class
from streamkit.stream.decode import parse_page
from streamkit.testing.clients import deferred
from tests.calls import botocores_way

KEY = {"pk": {"S": "a"}}
SCHEMA = {
    "TableName": "orders",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}
NESTED = {
    "n": {"N": "1.50"},
    "flag": {"BOOL": True},
    "none": {"NULL": True},
    "list": {"L": [{"S": "é"}, {"M": {"deep": {"NS": ["1", "2"]}}}]},
    "words": {"SS": ["x", "y"]},
}
BINARY = {"b": {"B": b"\x00\xff"}, "in": {"L": [{"B": b"3"}]}}
BINARIES = {"bs": {"BS": [b"1", b"2"]}}


def put(**action):
    return {"Put": {"TableName": "orders", "Item": {**KEY, **NESTED}, **action}}


CALLS = {
    "a table is made": ("create_table", SCHEMA),
    "and described, with its times": ("describe_table", {"TableName": "orders"}),
    "an item": ("put_item", {"TableName": "orders", "Item": {**KEY, **NESTED}}),
    "is read": ("get_item", {"TableName": "orders", "Key": KEY, "ConsistentRead": True}),
    "none is read": ("get_item", {"TableName": "orders", "Key": {"pk": {"S": "?"}}}),
    "a tuple for a list": (
        "batch_get_item",
        {"RequestItems": {"orders": {"Keys": (KEY,)}}, "ReturnConsumedCapacity": "TOTAL"},
    ),
    "binary is sent": ("put_item", {"TableName": "orders", "Item": {"pk": {"S": "b"}, **BINARY}}),
    "and read": ("scan", {"TableName": "orders"}),
    "a set of it": ("put_item", {"TableName": "orders", "Item": {"pk": {"S": "c"}, **BINARIES}}),
    "read as well": ("get_item", {"TableName": "orders", "Key": {"pk": {"S": "c"}}}),
    "a transaction": (
        "transact_write_items",
        {"TransactItems": [put()], "ClientRequestToken": "given"},
    ),
    "one whose token is made up": ("transact_write_items", {"TransactItems": [put()]}),
    "one that is cancelled": (
        "transact_write_items",
        {
            "TransactItems": [put(ConditionExpression="attribute_not_exists(pk)")],
            "ClientRequestToken": "other",
        },
    ),
    "a condition that fails": (
        "delete_item",
        {
            "TableName": "orders",
            "Key": KEY,
            "ConditionExpression": "n = :n",
            "ExpressionAttributeValues": {":n": {"N": "7"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    ),
    "what the engine refuses": ("get_item", {"TableName": "orders", "Key": {"sk": {"S": "a"}}}),
    "no such table": ("get_item", {"TableName": "none", "Key": KEY}),
    "a name too short": ("get_item", {"TableName": "", "Key": KEY}),
    "too few keys": ("batch_get_item", {"RequestItems": {"orders": {"Keys": []}}}),
    "a member missing": ("get_item", {"TableName": "orders"}),
    "a number for a text": ("get_item", {"TableName": "orders", "Key": {"pk": {"S": 1}}}),
    "none for a text": ("get_item", {"TableName": None, "Key": KEY}),
    "a text for a number": ("scan", {"TableName": "orders", "Limit": "1"}),
    "a number too small": ("scan", {"TableName": "orders", "Limit": 0}),
    "a map for a list": ("transact_get_items", {"TransactItems": {}}),
    "a text for a flag": (
        "get_item",
        {"TableName": "orders", "Key": KEY, "ConsistentRead": "yes"},
    ),
}


class Network:
    """Fails as it is told, and keeps what went over it."""

    def __init__(self, *troubles):
        self.troubles = list(troubles)
        self.seen = []

    async def intercept(self, call, apply):
        self.seen.append((call.operation, json.loads(call.payload), call.url))
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        return trouble or apply()


@asynccontextmanager
async def opened(way, network):
    engine = Engine(clock=lambda: 1_700_000_000.5, rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", {**SCHEMA, "TableName": "before"})
    session = session_class(engine, intercept=network.intercept)
    opening = (
        deferred(session, "us-east-1")
        if way == "deferred"
        else connect(http_session=session, region="us-east-1")
    )
    async with opening as aws:
        if way == "botocore":
            with botocores_way():
                yield aws
            return
        if way == "short":
            for client in (aws.dynamodb, aws.streams, aws.beats, aws.dynamodb):
                shorten(client)  # one of them twice, which changes nothing
        yield aws


async def ended(call, **params):
    """Make a call; return its reply, or what it raises, in a form that compares."""
    try:
        return await call(**params)
    except ClientError as error:
        return type(error).__name__, str(error), error.response
    except BotoCoreError as error:
        return type(error).__name__, str(error)


@pytest.fixture
def chance(monkeypatch):
    """Make up one token, and let the waits between retries take no time."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))


async def both(play, *troubles):
    """Play the same on botocore's way and on the short ones, and with clients that are made late."""
    ends = []
    for way in ("botocore", "frequent", "short", "deferred"):
        network = Network(*troubles)
        async with opened(way, network) as aws:
            ends.append((await play(aws), network.seen))
    (long, long_seen), (frequent, frequent_seen), (short, short_seen), late = ends
    assert long_seen == frequent_seen == short_seen
    assert frequent == long
    assert late == (short, short_seen)
    return long, short


async def test_what_is_sent_returned_and_raised_is_the_same(chance):
    async def play(aws):
        return {
            name: await ended(getattr(aws.dynamodb, method), **params)
            for name, (method, params) in CALLS.items()
        }

    long, short = await both(play)
    assert long == short
    assert {end[0] for end in short.values() if isinstance(end, tuple)} == {
        "ClientError",
        "ConditionalCheckFailedException",
        "ResourceNotFoundException",
        "TransactionCanceledException",
    }


async def test_a_stream_is_listed_opened_and_read_the_same(chance):
    async def play(aws):
        item = {"pk": {"S": "a"}, **NESTED, **BINARY}
        await aws.dynamodb.put_item(TableName="before", Item=item)
        table = await aws.dynamodb.describe_table(TableName="before")
        arn = table["Table"]["LatestStreamArn"]
        found = await aws.streams.describe_stream(StreamArn=arn)
        shard = found["StreamDescription"]["Shards"][0]["ShardId"]
        where = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        page = await aws.streams.get_records(ShardIterator=await aws.get_iterator(**where))
        images = [
            bytes(record.dynamodb.new_image) for record in parse_page(page.pop("Body")).records
        ]
        assert len(images) == 1
        broken = await ended(aws.streams.get_records, ShardIterator="none")
        for reply in (found, page):
            # A client that tries once says so of a success, too; that means nothing.
            reply["ResponseMetadata"].pop("MaxAttemptsReached", None)
        return found, page, images, broken

    long, short = await both(play)
    assert long == short


REFUSAL = Response.of_error(ApiError("ProvisionedThroughputExceededException", "slow down"))
TROUBLES = {
    "throttled once": [REFUSAL],
    "throttled too often": [REFUSAL] * 3,
    "lost once": [ConnectionResetError()],
    "never connected": [ConnectionRefusedError()] * 3,
    "an error, then lost": [Response(500, b"{}"), ConnectionResetError()],
    "no JSON": [Response(503, b"<html>")],
    "out of time": [TimeoutError()] * 3,
}


@pytest.mark.parametrize("troubles", TROUBLES.values(), ids=TROUBLES)
async def test_what_is_tried_again_and_what_is_raised_in_the_end_is_the_same(chance, troubles):
    async def play(aws):
        get = aws.dynamodb.get_item
        return [await ended(get, TableName="before", Key=KEY) for _ in range(2)]

    long, short = await both(play, *troubles)
    assert long == short


async def test_a_retry_sends_the_token_that_was_made_up_for_the_first_attempt(chance, monkeypatch):
    """Else the engine would apply a transaction twice whose first reply was lost."""

    async def play(aws):
        numbers = count(1)
        monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        write = {"Put": {"TableName": "before", "Item": KEY}}
        return await ended(aws.dynamodb.transact_write_items, TransactItems=[write])

    long, short = await both(play, ConnectionResetError())
    assert long == short
    assert short["ResponseMetadata"]["RetryAttempts"] == 1


async def test_the_budget_for_retries_is_used_up_and_filled_alike(chance):
    """Each retry takes five of the client's five hundred; each call without one gives one back."""

    async def play(aws):
        get = aws.dynamodb.get_item
        return [await ended(get, TableName="before", Key=KEY) for _ in range(90)]

    long, short = await both(play, *[REFUSAL] * 140, *[None] * 10, *[REFUSAL] * 20)
    assert long == short
    reached = [end for end in short if "RetryQuotaReached" in str(end)]
    assert 0 < len(reached) < 90


async def test_listeners_hear_of_calls_and_change_what_is_asked(chance):
    async def play(aws):
        heard = []

        def ask(params, **_):
            return {**params, "ReturnConsumedCapacity": "TOTAL"}

        def note(parsed_response, event_name, **_):
            heard.append((event_name, dict(parsed_response)))

        events = aws.dynamodb.meta.events
        events.register("provide-client-params.dynamodb.GetItem", ask)
        events.register("response-received.dynamodb", note)
        for name in ("before", "none"):
            await ended(aws.dynamodb.get_item, TableName=name, Key=KEY)
        return heard

    long, short = await both(play)
    for _, reply in (*long, *short):
        reply.pop("ResponseMetadata")
    assert long == short
    assert "ConsumedCapacity" in short[0][1]


async def test_calls_that_go_on_side_by_side_keep_their_answers_apart(chance):
    async def play(aws):
        get = aws.dynamodb.get_item
        names = ("before", "none", "before", "none")
        return await asyncio.gather(*(ended(get, TableName=name, Key=KEY) for name in names))

    _, short = await both(play)
    assert [isinstance(end, tuple) for end in short] == [False, True, False, True]


async def test_the_short_way_is_taken():
    """Or the rest of this file would compare botocore with itself."""
    network = Network()
    async with opened("short", network) as aws:

        def refuse(**_):
            raise AssertionError("botocore made a request")

        aws.dynamodb.meta.events.register("request-created.dynamodb", refuse)
        await aws.dynamodb.get_item(TableName="before", Key=KEY)
        write = {"Put": {"TableName": "before", "Item": KEY | BINARY}}
        await aws.dynamodb.transact_write_items(TransactItems=[write])
        write["Put"]["ConditionExpression"] = "attribute_not_exists(pk)"
        with pytest.raises(aws.dynamodb.exceptions.TransactionCanceledException):
            await aws.dynamodb.transact_write_items(TransactItems=[write])
    assert len(network.seen) == 3


async def test_a_deferred_client_makes_botocores_when_a_call_goes_wrong_and_not_before(
    chance, monkeypatch
):
    network, made, create = Network(), [], AioSession._create_client

    async def noted(session, *service, **options):
        made.append(service)
        return await create(session, *service, **options)

    async with opened("deferred", network):
        pass  # the first one of all looks how calls are made
    monkeypatch.setattr(AioSession, "_create_client", noted)
    async with opened("deferred", network) as aws:
        await aws.dynamodb.get_item(TableName="before", Key=KEY)
        write = {"Put": {"TableName": "before", "Item": KEY}}
        await aws.dynamodb.transact_write_items(TransactItems=[write])
        assert made == []
        network.troubles = [REFUSAL]
        await aws.dynamodb.get_item(TableName="before", Key=KEY)
        assert len(made) == 3

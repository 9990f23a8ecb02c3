"""The sinks of AWS through the real SDK against moto's server: what arrives, and what is refused.

moto never fails single entries, keeps FIFO queues in order whatever is sent, and takes events for a
bus that does not exist with an error of its own; `tests/unit/test_aws_sinks.py` has those cases.
"""

import gzip
import json
import socket
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain

import anyio
import boto3
import pytest

from streamkit import (
    App,
    ConfigurationError,
    Entity,
    EventBridge,
    Firehose,
    Inserted,
    Kinesis,
    Modified,
    RetryableError,
    S3Archive,
    Send,
    Sns,
    Sqs,
)
from streamkit.aws import connect
from streamkit.settings import Settings
from streamkit.sinks.sink import Delivery
from streamkit.worker.worker import Worker

REGION = "eu-central-1"
ACCOUNT = "123456789012"
SETTINGS = Settings(heartbeat=0.5, lease=2.0, poll_floor=0.01, poll_ceiling=0.05)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def delivery(number, group, body=None, **fields):
    values = {
        "key": f"{number:032x}",
        "id": group,
        "group": group,
        "sequence": f"{number:040}",
        "body": body,
        "created_at": NOON,
    }
    return Delivery(**(values | fields))


ORDERS = [
    delivery(n, f"order {n % 3}", {"order": n, "price": Decimal("1.50"), "name": "Zoë"})
    for n in range(25)
] + [delivery(25, "order 0", None, attributes={"kind": "gone"})]
BODIES = [each.body and each.body | {"price": "1.50"} for each in ORDERS]


@pytest.fixture
def client_of(endpoint, found_by_sdk, monkeypatch):
    """Gives clients of moto's services; the sinks find it as well."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", REGION)
    opened = []

    def client_of(service):
        opened.append(boto3.client(service, region_name=REGION, endpoint_url=endpoint))
        return opened[-1]

    yield client_of
    for client in opened:
        client.close()


async def send(sink, deliveries=ORDERS):
    """Deliver in batches as large as the sink takes; return what was not delivered."""
    errors = []
    async with AsyncExitStack() as stack:
        sender = await stack.enter_async_context(sink.opened())
        for start in range(0, len(deliveries), sink.limits.items):
            errors += await sender.deliver(deliveries[start : start + sink.limits.items])
    return [error for error in errors if error]


def make_queue(sqs, name):
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    return sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]


def received(sqs, url):
    """Everything in a queue, in the order in which it is handed out."""
    found = []
    while True:
        reply = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        if not (some := reply.get("Messages")):
            return found
        found += some
        for each in some:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


def attributes(entry):
    return {name: each["StringValue"] for name, each in entry["MessageAttributes"].items()}


def by_number(found):
    return sorted(found, key=lambda each: each["sequence"])


def keys_of(deliveries):
    return [each.key for each in deliveries]


async def test_a_queue_gets_bodies_with_what_tells_duplicates_and_order(client_of):
    sqs = client_of("sqs")
    url = make_queue(sqs, "orders")
    assert await send(Sqs("orders", url)) == []
    found = sorted(received(sqs, url), key=lambda each: attributes(each)["sequence"])
    assert [json.loads(each["Body"]) for each in found] == BODIES
    assert [attributes(each)["key"] for each in found] == keys_of(ORDERS)
    assert [attributes(each)["group"] for each in found] == [each.group for each in ORDERS]
    assert attributes(found[25])["kind"] == "gone"


async def test_a_fifo_queue_gets_each_item_in_order_and_drops_what_comes_again(client_of):
    sqs = client_of("sqs")
    url = make_queue(sqs, "orders.fifo")
    sink = Sqs("orders", url)
    assert await send(sink) == []
    assert await send(sink, ORDERS[10:]) == []
    found = received(sqs, url)
    assert len(found) == len(ORDERS)
    for group in {each.group for each in ORDERS}:
        own = [each for each in found if each["Attributes"]["MessageGroupId"] == group]
        wanted = [each for each in ORDERS if each.group == group]
        assert [e["Attributes"]["MessageDeduplicationId"] for e in own] == keys_of(wanted)


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_a_topic_hands_on_to_its_queue_what_was_sent(client_of, suffix):
    sns, sqs = client_of("sns"), client_of("sqs")
    url = make_queue(sqs, f"shipped{suffix}")
    fifo = {"FifoTopic": "true"} if suffix else {}
    topic = sns.create_topic(Name=f"shipped{suffix}", Attributes=fifo)["TopicArn"]
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:{REGION}:{ACCOUNT}:shipped{suffix}",
        Attributes={"RawMessageDelivery": "true"},
    )
    assert await send(Sns("shipped", topic)) == []
    found = sorted(received(sqs, url), key=lambda each: attributes(each)["sequence"])
    assert [json.loads(each["Body"]) for each in found] == BODIES
    assert [attributes(each)["key"] for each in found] == keys_of(ORDERS)


async def test_a_rule_of_a_bus_sees_the_body_of_an_event(client_of):
    events, sqs = client_of("events"), client_of("sqs")
    url = make_queue(sqs, "seventh")
    events.create_event_bus(Name="shop")
    pattern = {"source": ["shop.orders"], "detail": {"body": {"order": [7]}}}
    events.put_rule(Name="seven", EventBusName="shop", EventPattern=json.dumps(pattern))
    target = {"Id": "queue", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:seventh"}
    events.put_targets(Rule="seven", EventBusName="shop", Targets=[target])
    bus = EventBridge("bus", "shop", source="shop.orders", detail_type="OrderChanged")
    assert await send(bus) == []
    (event,) = [json.loads(each["Body"]) for each in received(sqs, url)]
    assert event["detail-type"] == "OrderChanged"
    assert event["detail"]["key"] == ORDERS[7].key
    assert event["detail"]["body"] == BODIES[7]


async def test_a_bus_that_does_not_exist_is_found_when_the_sink_opens(client_of):
    bus = EventBridge("bus", "nowhere", source="shop", detail_type="Changed")
    with pytest.raises(ConfigurationError, match="'nowhere'"):
        await send(bus)


async def test_a_stream_of_kinesis_gets_each_item_in_order_in_one_shard(client_of):
    kinesis = client_of("kinesis")
    kinesis.create_stream(StreamName="live", ShardCount=3)
    assert await send(Kinesis("live", "live")) == []
    shards = []
    for shard in kinesis.list_shards(StreamName="live")["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName="live", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records = kinesis.get_records(ShardIterator=iterator)["Records"]
        shards.append([json.loads(record["Data"]) for record in records])
    found = by_number(chain(*shards))
    assert [each["key"] for each in found] == keys_of(ORDERS)
    assert [each["body"] for each in found] == BODIES
    for group in {each.group for each in ORDERS}:
        (own,) = [
            numbers
            for shard in shards
            if (numbers := [each["sequence"] for each in shard if each["group"] == group])
        ]
        assert own == sorted(own)


def stored(s3, bucket):
    """The rows of every object of a bucket, by its name."""
    names = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]
    bodies = {name: s3.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}
    return {
        name: [
            json.loads(line)
            for line in (gzip.decompress(b) if name.endswith(".gz") else b).splitlines()
        ]
        for name, b in bodies.items()
    }


def make_bucket(s3, name):
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


async def test_firehose_stores_one_line_for_each_delivery(client_of):
    s3, firehose = client_of("s3"), client_of("firehose")
    make_bucket(s3, "lake")
    destination = {"RoleARN": f"arn:aws:iam::{ACCOUNT}:role/x", "BucketARN": "arn:aws:s3:::lake"}
    firehose.create_delivery_stream(
        DeliveryStreamName="lake", ExtendedS3DestinationConfiguration=destination
    )
    assert await send(Firehose("lake", "lake")) == []
    rows = by_number(chain(*stored(s3, "lake").values()))
    assert [row["key"] for row in rows] == keys_of(ORDERS)
    assert [row["body"] for row in rows] == BODIES


async def test_an_archive_has_one_object_for_a_batch_however_often_it_comes(client_of):
    s3 = client_of("s3")
    make_bucket(s3, "archive")
    sink = S3Archive("archive", "archive", prefix="orders/")
    assert await send(sink) == []
    before = stored(s3, "archive")
    assert await send(sink) == []
    ((name, rows),) = stored(s3, "archive").items()
    assert {name: rows} == before
    assert name.startswith("orders/date=2026-03-01/")
    assert [row["body"] for row in rows] == BODIES


MISSING = [
    Sqs("s", f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/nowhere"),
    Sns("s", f"arn:aws:sns:{REGION}:{ACCOUNT}:nowhere"),
    Kinesis("s", "nowhere"),
    Firehose("s", "nowhere"),
    S3Archive("s", "nowhere"),
]


@pytest.mark.parametrize("sink", MISSING, ids=lambda sink: type(sink).__name__)
async def test_what_is_sent_to_nowhere_is_kept_until_somebody_makes_it(client_of, sink):
    errors = await send(sink, ORDERS[:3])
    assert [type(error) for error in errors] == [RetryableError] * 3


async def test_what_is_too_large_for_a_queue_keeps_back_nothing_else(client_of):
    sqs = client_of("sqs")
    url = sqs.create_queue(QueueName="small", Attributes={"MaximumMessageSize": "1024"})["QueueUrl"]
    large = delivery(1, "large", "x" * 2_000)
    errors = await send(Sqs("small", url), [ORDERS[0], large, ORDERS[2]])
    assert [type(error) for error in errors] == [RetryableError], (
        "a queue's own limit may be mended"
    )
    assert len(received(sqs, url)) == 2


async def test_no_connection_loses_nothing(client_of, monkeypatch):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        errors = await send(Sqs("s", MISSING[0].queue_url), ORDERS[:2])
    assert [type(error) for error in errors] == [RetryableError] * 2


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    version: int


def make_table(dynamodb, name):
    dynamodb.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("PK", "SK")],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )


def write_versions(dynamodb, table, versions):
    """Put a version of one order after the other; every order gets each version."""
    for version in versions:
        for number in range(4):
            dynamodb.put_item(
                TableName=table,
                Item={
                    "PK": {"S": f"ORDER#{number}"},
                    "SK": {"S": "ORDER"},
                    "number": {"N": str(number)},
                    "version": {"N": str(version)},
                },
            )


async def test_a_worker_sends_each_items_changes_to_a_fifo_queue_in_their_order(client_of):
    sqs, dynamodb = client_of("sqs"), client_of("dynamodb")
    make_table(dynamodb, "shop")
    url = make_queue(sqs, "changes.fifo")
    app = App("changes", table="shop", entities=[Order])
    queue = app.sink(Sqs("changes", url))

    @app.on
    def pass_on(change: Inserted[Order] | Modified[Order]) -> Send:
        return Send(queue, change.new, attributes={"of": str(change.new.number)})

    for versions in (range(6), range(6, 10)):
        write_versions(dynamodb, "shop", versions)
        async with connect() as aws:
            with anyio.fail_after(120):
                await Worker(app, aws, SETTINGS).run(until_idle=True)
    found = received(sqs, url)
    assert len(found) == 40
    for number in range(4):
        own = [each for each in found if attributes(each)["of"] == str(number)]
        assert [json.loads(each["Body"])["version"] for each in own] == list(range(10))
        sequences = [attributes(each)["sequence"] for each in own]
        assert sequences == sorted(set(sequences))
        assert len({each["Attributes"]["MessageGroupId"] for each in own}) == 1

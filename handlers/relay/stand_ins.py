"""Stand-ins: everything outside, in this process, and gone afterwards.

moto plays AWS, SQLite is the database; the search index and the receiver of the webhook are a few
lines each, reached without sockets. In: nothing. Out: addresses, and at the end what has arrived.
On failure: `ModuleNotFoundError` where moto is not installed.
"""

import gzip
import json
import os
import random
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx

from handlers.relay.arrived import Arrival, Arrived
from handlers.relay.places import Addresses
from handlers.relay.receiver import HookReceiver, SearchIndex

REGION = "eu-central-1"
ACCOUNT = "123456789012"

_HOOK_HOST = "hook.invalid"
_SEARCH_HOST = "search.invalid"
_SERVICES = ("SQS", "SNS", "EVENTBRIDGE", "KINESIS", "FIREHOSE", "S3")


@dataclass
class StandIns:
    """What plays the outside.

    Attributes:
        endpoint: the address of moto's server.
        folder: the folder of the SQLite database.
    """

    endpoint: str
    folder: Path
    rng: random.Random
    addresses: Addresses = field(default_factory=Addresses)
    index: SearchIndex = field(default_factory=SearchIndex)

    def __post_init__(self) -> None:
        """Make queues, topics, streams and buckets."""
        self.hook = HookReceiver(self.addresses.hook_secret, self.rng)
        self._make_buckets()
        self._make_subscriptions()
        self._client("kinesis").create_stream(StreamName=self.addresses.stream, ShardCount=1)
        self.addresses = self.addresses.model_copy(
            update={
                "queue_url": self._queue("orders.fifo", FifoQueue="true"),
                "database": f"sqlite+aiosqlite:///{self.folder / 'orders.sqlite'}",
                "search_url": f"http://{_SEARCH_HOST}",
                "hook_url": f"http://{_HOOK_HOST}/parcels",
            }
        )

    @property
    def transport(self) -> httpx.MockTransport:
        """Return the transport of the sinks' HTTP requests."""
        receivers = {_HOOK_HOST: self.hook.answer, _SEARCH_HOST: self.index.answer}
        return httpx.MockTransport(lambda request: receivers[request.url.host](request))

    def arrived(self) -> Arrived:
        """Return what has arrived; queues are empty afterwards."""
        arrivals = {
            "queue": self._received("orders.fifo"),
            "topic": self._received("shipped"),
            "bus": [_of_envelope(a.body["detail"]) for a in self._received("events")],
            "live": self._streamed(),
            "lake": self._stored(self.addresses.lake),
            "archive": self._stored(self.addresses.bucket),
            "hook": self.hook.arrivals,
        }
        return Arrived(arrivals, {"rows": self._rows(), "documents": self.index.documents})

    # -- making --------------------------------------------------------------------------------

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",  # noqa: S106 - moto takes any
        )

    def _queue(self, name: str, **attributes: str) -> str:
        url: str = self._client("sqs").create_queue(QueueName=name, Attributes=attributes)[
            "QueueUrl"
        ]
        return url

    def _make_buckets(self) -> None:
        s3, at = self._client("s3"), {"LocationConstraint": REGION}
        for name in (self.addresses.bucket, self.addresses.lake):
            s3.create_bucket(Bucket=name, CreateBucketConfiguration=at)
        self._client("firehose").create_delivery_stream(
            DeliveryStreamName=self.addresses.lake,
            ExtendedS3DestinationConfiguration={
                "RoleARN": f"arn:aws:iam::{ACCOUNT}:role/lake",
                "BucketARN": f"arn:aws:s3:::{self.addresses.lake}",
            },
        )

    def _make_subscriptions(self) -> None:
        """Let a queue hear the topic, and another one the bus."""
        for name in ("shipped", "events"):
            self._queue(name)
        sns, events = self._client("sns"), self._client("events")
        topic = sns.create_topic(Name=self.addresses.topic_arn.rpartition(":")[2])["TopicArn"]
        sns.subscribe(
            TopicArn=topic,
            Protocol="sqs",
            Endpoint=f"arn:aws:sqs:{REGION}:{ACCOUNT}:shipped",
            Attributes={"RawMessageDelivery": "true"},
        )
        bus, pattern = self.addresses.bus, json.dumps({"source": ["shop"]})
        events.create_event_bus(Name=bus)
        events.put_rule(Name="all", EventBusName=bus, EventPattern=pattern)
        target = {"Id": "queue", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:events"}
        events.put_targets(Rule="all", EventBusName=bus, Targets=[target])

    # -- reading -------------------------------------------------------------------------------

    def _received(self, name: str) -> list[Arrival]:
        """Take everything out of a queue, in the order in which it is handed out."""
        sqs, found = self._client("sqs"), []
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        while entries := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            found += [_of_queue(entry) for entry in entries]
            handles = [
                {"Id": str(place), "ReceiptHandle": entry["ReceiptHandle"]}
                for place, entry in enumerate(entries)
            ]
            sqs.delete_message_batch(QueueUrl=url, Entries=handles)
        return found

    def _streamed(self) -> list[Arrival]:
        kinesis, name = self._client("kinesis"), self.addresses.stream
        (shard,) = kinesis.list_shards(StreamName=name)["Shards"]
        place = kinesis.get_shard_iterator(
            StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        found: list[Arrival] = []
        while records := (page := kinesis.get_records(ShardIterator=place))["Records"]:
            found += [_of_envelope(json.loads(record["Data"])) for record in records]
            place = page["NextShardIterator"]
        return found

    def _stored(self, bucket: str) -> list[Arrival]:
        """Read every line of every object of a bucket."""
        s3, found = self._client("s3"), []
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page.get("Contents", ()):
                data = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
                data = gzip.decompress(data) if entry["Key"].endswith(".gz") else data
                found += [_of_envelope(json.loads(line)) for line in data.splitlines()]
        return found

    def _rows(self) -> dict[str, Any]:
        with sqlite3.connect(self.folder / "orders.sqlite") as connection:
            rows = connection.execute("SELECT id, body FROM orders WHERE _deleted_at IS NULL")
            found = {name: json.loads(body) for name, body in rows}
        connection.close()
        return found


def _of_queue(entry: Mapping[str, Any]) -> Arrival:
    """Read what a queue hands out; what a rule put there has an envelope instead of attributes."""
    body = json.loads(entry["Body"])
    named = entry.get("MessageAttributes", {})
    key, about, sequence = (
        named.get(name, {}).get("StringValue", "") for name in ("key", "id", "sequence")
    )
    return Arrival(key, about, sequence, body)


def _of_envelope(envelope: Mapping[str, Any]) -> Arrival:
    return Arrival(envelope["key"], envelope["id"], envelope["sequence"], envelope["body"])


@contextmanager
def stand_ins(*, seed: int = 1) -> Iterator[StandIns]:
    """Let stand-ins play everything outside, and the SDK's variables lead there meanwhile."""
    from moto.server import ThreadedMotoServer

    with ExitStack() as stack:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        # moto keeps one world for a process: another play may have left its queues and buses.
        httpx.post(f"{endpoint}/moto-api/reset")
        ours = {f"AWS_ENDPOINT_URL_{service}": endpoint for service in _SERVICES}
        ours |= {"AWS_REGION": REGION}
        ours |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        stack.enter_context(_environment(ours))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        yield StandIns(endpoint, Path(folder), random.Random(seed))


@contextmanager
def _environment(ours: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

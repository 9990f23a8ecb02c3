"""The local engine with many shards: what is done to all of them takes time in proportion.

Each figure is the time per shard with many shards, over that with few, in one run; what a sort or a
walk for each shard would cost is ten or more.
"""

import gc
import random
import time

import pytest

from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.stream_settings import StreamSettings

FEW, MANY = 500, 10_000
ROUNDS = 3
TIMES = 4.0
"""Larger lists miss the processor's cache more often."""

pytestmark = pytest.mark.benchmark


class Fleet:
    """A table of many shards."""

    def __init__(self, shards):
        self.now = 1_800_000_000.0
        self.shards = shards
        self.engine = Engine(
            clock=lambda: self.now,
            rng=random.Random(1),
            shards=shards,
            settings=StreamSettings(describe_rate=None),
        )
        self.control = Control(self.engine)

    def create(self):
        request = {
            "TableName": "Bench",
            "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
        }
        _, body = self.engine.call("dynamodb", "CreateTable", request)
        self.arn = body["TableDescription"]["LatestStreamArn"]

    def roll(self):
        self.control.roll("Bench")

    def roll_by_time(self):
        self.now += 5 * 3600
        self.engine.streams.find(self.arn).catalogue()

    def list_all(self):
        start = {}
        while True:
            request = {"StreamArn": self.arn, **start}
            _, body = self.engine.call("dynamodbstreams", "DescribeStream", request)
            last = body["StreamDescription"].get("LastEvaluatedShardId")
            if last is None:
                return
            start = {"ExclusiveStartShardId": last}

    def look_up_children(self):
        for shard in range(self.shards):
            shard_filter = {"Type": "CHILD_SHARDS", "ShardId": f"shardId-{shard:020d}-00000000"}
            request = {"StreamArn": self.arn, "ShardFilter": shard_filter}
            self.engine.call("dynamodbstreams", "DescribeStream", request)


def seconds_per_shard(shards, action):
    found = []
    for _ in range(ROUNDS):
        fleet = Fleet(shards)
        if action != "create":
            fleet.create()
        gc.collect()
        started = time.perf_counter()
        getattr(fleet, action)()
        found.append((time.perf_counter() - started) / shards)
    return min(found)


@pytest.mark.parametrize(
    "action", ["create", "roll", "roll_by_time", "list_all", "look_up_children"]
)
def test_many_shards_take_time_in_proportion(action):
    few, many = seconds_per_shard(FEW, action), seconds_per_shard(MANY, action)
    print(f"{action:18} {few * 1e6:6.1f} µs a shard of {FEW}, {many * 1e6:6.1f} of {MANY:,}")
    assert many < TIMES * few

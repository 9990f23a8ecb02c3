"""An app goes on where a KCL has stopped: each change is done once, by the one or the other."""

import asyncio
import itertools
from contextlib import suppress
from typing import Annotated

import anyio
import pytest

from streamkit import Add, Aggregate, App, ConfigurationError, Count, Entity, Inserted, Key
from streamkit.operate.consumers import list_consumers
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.moves import MoveRefused, import_leases
from streamkit.testing.chance import repeatable
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.lambdas import own_items
from tests.simulation.movers import Slow

TABLE, LEASES = "Orders", "kcl-leases"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Tally(Entity, pk="TALLY#{number}", sk="TALLY"):
    number: int
    times: int = 0


def make_app():
    app = App("orders", table=TABLE, entities=[Tally])

    @app.on
    def tally(change: Inserted[Order]) -> Add[Tally]:
        return Add(Tally.key(number=change.new.number), times=1)

    return app


class Kcl:
    """A consumer as a KCL with a careful application: checkpoints are exact when it stops."""

    def __init__(self, world, prefix="", *, newest=False):
        self.world, self.prefix, self.newest = world, prefix, newest
        self.seen = []

    def call(self, service, operation, **request):
        status, body = self.world.engine.call(service, operation, request)
        assert status == 200, body
        return body

    def describe(self):
        (stream,) = self.call("dynamodbstreams", "ListStreams", TableName=TABLE)["Streams"]
        self.arn = stream["StreamArn"]
        described = self.call("dynamodbstreams", "DescribeStream", StreamArn=self.arn)
        return described["StreamDescription"]["Shards"]

    def run(self, most):
        """Process some records of each shard, and keep a lease for it."""
        ended = set()
        for shard in self.describe():
            parent = shard.get("ParentShardId")
            if parent is None or parent in ended:
                checkpoint = self.read(shard["ShardId"], most)
                ended |= {shard["ShardId"]} if checkpoint == "SHARD_END" else set()
                self.lease(shard["ShardId"], checkpoint, parent)

    def read(self, shard, most):
        where = {"StreamArn": self.arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = self.call("dynamodbstreams", "GetShardIterator", **where)["ShardIterator"]
        checkpoint, empty = "TRIM_HORIZON", 0
        while iterator and empty < 10:
            page = self.call("dynamodbstreams", "GetRecords", ShardIterator=iterator, Limit=most)
            empty = 0 if page["Records"] else empty + 1
            for record in page["Records"]:
                self.seen.append(record["dynamodb"]["Keys"]["PK"]["S"])
                checkpoint = record["dynamodb"]["SequenceNumber"]
            iterator = page.get("NextShardIterator")
            if page["Records"] and iterator:
                return checkpoint
        return checkpoint if iterator else "SHARD_END"

    def lease(self, shard, checkpoint, parent):
        item = {
            "leaseKey": {"S": f"{self.prefix}{shard}"},
            "checkpoint": {"S": checkpoint},
            "checkpointSubSequenceNumber": {"N": "0"},
            "leaseCounter": {"N": "7"},
            "leaseOwner": {"S": "host"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
        if self.newest:  # what version 3 adds; a pending checkpoint is not reached yet
            item |= {
                "checkpointOwner": {"S": "host"},
                "childShardIds": {"SS": [f"{self.prefix}child"]},
                "pendingCheckpoint": {"S": "99" + checkpoint},
                "pendingCheckpointSubSequenceNumber": {"N": "0"},
                "throughputKBps": {"N": "0.5"},
            }
        if parent:
            item["parentShardId"] = {"SS": [self.prefix + parent]}
        self.call("dynamodb", "PutItem", TableName=LEASES, Item=item)


def a_world(seed, app):
    world = World.create(seed, shards=2)
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    request = {
        "TableName": LEASES,
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    world.engine.call("dynamodb", "CreateTable", request)
    return world


def orders(world, numbers):
    for number in numbers:
        item = {
            "PK": {"S": f"ORDER#{number}"},
            "SK": {"S": "ORDER"},
            "number": {"N": str(number)},
        }
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def tallies(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TALLY#")]
    return {int(item["number"]["N"]): int(item["times"]["N"]) for item in items}


def done_by(kcl):
    return {int(key.partition("#")[2]) for key in kcl.seen if key.startswith("ORDER#")}


async def importing(world, app, **named):
    async with world.clients() as aws:
        return await import_leases(app, aws, LEASES, clock=world.clock, **named)


@pytest.mark.parametrize("prefix", ["", "123456789012:r$123456789012$Orders$LABEL:1:"])
def test_every_change_is_done_by_the_kcl_or_by_the_app_and_none_by_both(prefix):
    async def main():
        app = make_app()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(40))
        world.control.split(TABLE)
        orders(world, range(40, 90))
        kcl.describe()
        kcl.prefix = prefix.replace("LABEL", kcl.arn.rpartition("/")[2].replace(":", "_"))
        kcl.run(most=15)
        if prefix:  # in a KCL of several streams each has its own leases
            kcl.prefix = prefix.replace("LABEL", "2020-01-01T00_00_00.000")
            kcl.lease("shardId-elsewhere", "5", None)
        world.control.roll(TABLE)
        orders(world, range(90, 120))
        done = await importing(world, app)
        assert (done.positions, done.finished) != (0, 0)
        await world.run_worker(app)
        mine = tallies(world)
        assert set(mine.values()) == {1}
        assert mine.keys().isdisjoint(done_by(kcl))
        assert mine.keys() | done_by(kcl) == set(range(120))
        assert 30 <= len(mine) <= 110, "both have done something"

    with repeatable(1):
        run_virtually(main)


def test_what_the_newest_kcl_keeps_beside_its_leases_is_no_lease():
    async def main():
        app = make_app()
        world = a_world(1, app)
        kcl = Kcl(world, newest=True)
        orders(world, range(30))
        kcl.run(most=10)
        for kind in ("WORKER_METRIC_STATS", "COORDINATOR_STATE", "LEADER_LOCK"):
            item = {"leaseKey": {"S": f"{kind} of a worker"}, "entityType": {"S": kind}}
            item |= {"checkpoint": {"S": "TRIM_HORIZON"}, "leaseCounter": {"N": "1"}}
            kcl.call("dynamodb", "PutItem", TableName=LEASES, Item=item)
        done = await importing(world, app)
        assert not done.notes
        await world.run_worker(app)
        assert tallies(world) == dict.fromkeys(set(range(30)) - done_by(kcl), 1)
        assert tallies(world)

    with repeatable(1):
        run_virtually(main)


def test_an_importer_that_was_thought_dead_changes_nothing_once_another_has_finished():
    async def play(at):
        app = make_app()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(10))
        kcl.run(most=3)
        slow, ended = Slow("slow", at=at), anyio.Event()

        async def be_slow():
            async with world.clients(slow) as aws:
                with suppress(ConfigurationError):
                    await import_leases(app, aws, LEASES, clock=world.clock)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(be_slow)
            while slow.frozen is None and not ended.is_set():
                await anyio.sleep(0.5)
            stood = slow.frozen is not None
            if stood:
                await importing(world, app)
            await world.run_worker(app)
            slow.thaw()
            await ended.wait()
            orders(world, range(10, 12))
            await world.run_worker(app)
        assert tallies(world) == dict.fromkeys(set(range(12)) - done_by(kcl), 1), at
        return stood

    with repeatable(1):
        calls = next(at for at in itertools.count() if not run_virtually(play, at))
    assert calls > 4


def counting():
    app = make_app()

    @app.aggregate
    class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, _: Order) -> Key["Orders"]:
            return cls.key()

    return app


def test_an_importer_that_wakes_up_after_its_consumer_was_deleted_leaves_no_part_of_one():
    async def play(at):
        app = counting()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(3))
        kcl.run(most=3)
        slow, ended = Slow("slow", at=at), anyio.Event()

        async def be_slow():
            async with world.clients(slow) as aws:
                with suppress(ConfigurationError):
                    await import_leases(app, aws, LEASES, clock=world.clock)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(be_slow)
            while slow.frozen is None and not ended.is_set():
                await anyio.sleep(0.5)
            if ended.is_set():
                return False
            await importing(world, app)
            async with world.clients() as aws:
                await delete_consumer(aws, TABLE, app.name, clock=world.clock)
            slow.thaw()
            await ended.wait()
        for item in own_items(
            world, TABLE, "consumer"
        ):  # a worker that stood before it founds one anew
            assert {"_sk_generation", "_sk_host"} <= item.keys(), at
        return True

    with repeatable(1):
        calls = next(at for at in itertools.count() if not run_virtually(play, at))
    assert calls > 4


def test_aggregates_of_an_import_need_a_rebuild_because_they_begin_in_the_middle():
    async def main():
        app = counting()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(3))
        kcl.run(most=3)
        await importing(world, app)
        async with world.clients() as aws:
            (consumer,) = await list_consumers(aws, TABLE)
        assert (consumer.needs_rebuild, consumer.host) == (("Orders",), "workers")

    with repeatable(1):
        run_virtually(main)


def has_host(world):
    """Say whether the consumer is complete: its last write has come through."""
    return any(item.get("_sk_host") == {"S": "workers"} for item in world.items(TABLE))


async def killed(world, app, call):
    """Import with a process that dies at a call; say whether it did."""
    process = Process("importer", crash=CrashPoint(call, "after"))
    async with world.clients(process) as aws, anyio.create_task_group() as group:

        async def die():
            await process.dead.wait()
            group.cancel_scope.cancel()

        group.start_soon(die)
        await import_leases(app, aws, LEASES, clock=world.clock)
        group.cancel_scope.cancel()
    return process.dead.is_set()


def test_an_import_that_is_killed_anywhere_lets_no_worker_begin_and_is_finished_by_the_next():
    async def play(call):
        app = make_app()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(30))
        kcl.run(most=5)
        dead = await killed(world, app, call)
        if dead and not has_host(world):
            await importing(world, app)
        await world.run_worker(app)
        assert set(tallies(world)) == set(range(30)) - done_by(kcl)
        assert set(tallies(world).values()) == {1}
        return dead

    with repeatable(1):
        calls = next(n for n in itertools.count() if not run_virtually(play, n))
    assert calls > 10


async def renew(kcl):
    await anyio.sleep(3)
    update = {
        "Key": {"leaseKey": {"S": kcl.describe()[0]["ShardId"]}},
        "UpdateExpression": "ADD leaseCounter :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    kcl.call("dynamodb", "UpdateItem", TableName=LEASES, **update)


def test_it_is_refused_while_a_kcl_lives_for_a_consumer_that_exists_and_dry_does_nothing():
    async def main():
        app = make_app()
        world = a_world(1, app)
        kcl = Kcl(world)
        orders(world, range(10))
        kcl.run(most=3)
        kcl.lease("shardId-000000000000", "5", None)  # of a Kinesis stream
        with pytest.raises(MoveRefused, match="shardId-000000000000 is gone, and was not read"):
            await importing(world, app)
        kcl.lease("shardId-000000000000", "SHARD_END", None)
        alive = asyncio.get_running_loop().create_task(renew(kcl))
        with pytest.raises(MoveRefused, match="stop the KCL"):
            await importing(world, app)
        await alive
        before = world.items(TABLE)
        dry = await importing(world, app, dry_run=True)
        assert dry.positions
        assert world.items(TABLE) == before
        await world.run_worker(app)
        with pytest.raises(MoveRefused, match="has run on this stream"):
            await importing(world, app)

    with repeatable(1):
        run_virtually(main)

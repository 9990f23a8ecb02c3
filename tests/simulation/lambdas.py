"""Functions under test: events from a stream, and execution environments that die."""

import json
import random
from contextlib import asynccontextmanager

import anyio

from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.testing.harness import table_of
from streamkit.testing.mapping import EventSourceMapping
from streamkit.testing.world import Process, World


def world_of(app, *, shards=1, seed=1):
    """Return a world with the app's table."""
    world = World.create(seed, shards=shards)
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    return world


class Stream:
    """Reads a table's stream as a mapping does, a batch each time."""

    def __init__(self, world, table):
        self._mapping = EventSourceMapping(world, table, None, random.Random(0))

    @property
    def arn(self):
        return self._mapping._arn

    @property
    def shards(self):
        return [shard["ShardId"] for shard in self._mapping._shards()]

    def records(self):
        """What was written since the last call, in Lambda's shape."""
        return [record for shard in self.shards for record in self._mapping._records(shard)]

    def traffic(self):
        """The same without streamkit's own records, as a mapping's filter leaves them out."""
        return [r for r in self.records() if not key_of(r).startswith("_sk#")]


def key_of(record):
    return record["dynamodb"]["Keys"]["PK"]["S"]


def number_of(record):
    return record["dynamodb"]["SequenceNumber"]


def event(records):
    return {"Records": list(records)}


@asynccontextmanager
async def environment_of(world, app, process=None):
    process = process or Process("function")
    async with open_environment(
        app,
        connect_with=lambda: world.clients(process),
        clock=world.clock,
        rng=random.Random(1),
    ) as environment:
        yield environment


class Deadly:
    """Invokes a function whose handlers may `kill` it; each death costs its environment."""

    def __init__(self, world, app):
        self._world, self._app = world, app
        self.deaths = 0
        self._process = None

    async def kill(self):
        """What a handler calls that uses up the memory."""
        self._process.kill()
        await anyio.sleep_forever()

    async def invoke(self, records, seconds=60.0):
        """Return the response, or None if the function was killed."""
        self._process = process = Process("function")
        result = None
        async with anyio.create_task_group() as group:

            async def die():
                await process.dead.wait()
                self.deaths += 1
                group.cancel_scope.cancel()

            group.start_soon(die)
            async with environment_of(self._world, self._app, process) as environment:
                result = await process_batch(environment, event(records), seconds)
                group.cancel_scope.cancel()
        return result


def left_of(response, records):
    """What comes again after a response: everything after a failure of the whole."""
    if response is None:
        return records
    failures = [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
    if not failures:
        return []
    numbers = [number_of(record) for record in records]
    return records[numbers.index(failures[0]) :]


def own_items(world, table, kind):
    """Control items of a kind."""
    found = [i for i in world.items(table) if i["PK"]["S"].startswith("_sk#")]
    return [item for item in found if item["_sk_kind"]["S"] == kind]


def sqs(*bodies):
    return {
        "Records": [
            {"messageId": f"m{n}", "eventSource": "aws:sqs", "body": json.dumps(body)}
            for n, body in enumerate(bodies)
        ]
    }


def given_up(stream, records, *, payload=False):
    """Return the record of an on-failure destination; that in S3 has the payload."""
    body = {
        "requestContext": {"requestId": "r", "condition": "RetryAttemptsExhausted"},
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "version": "1.0",
        "DDBStreamBatchInfo": {
            "shardId": stream.shards[0],
            "startSequenceNumber": number_of(records[0]),
            "endSequenceNumber": number_of(records[-1]),
            "batchSize": len(records),
            "streamArn": stream.arn,
        },
    }
    return body | ({"payload": json.dumps(event(records))} if payload else {})

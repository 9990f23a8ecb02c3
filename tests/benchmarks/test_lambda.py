"""What the Lambda host costs: CPU time of a warm batch beyond its calls, and the cold start.

A warm batch of 100 changes of as many items runs on the local engine, through the function's own
runtime and the real client; the time within calls of the client is taken away, and what is left is
streamkit's and the handlers'. CPU time, so that a busy machine does not count; medians of several
rounds.
"""

import json
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Annotated

import pytest

from streamkit import Aggregate, App, Count, Entity, Inserted, Key, Put, Sum
from streamkit.aws import connect
from streamkit.aws_lambda import runtime
from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from tests.tables import streamed

BATCH = 100
ROUNDS = 15
RATIO = 1.0
"""At most so many times what its calls take in the SDK and the local engine."""


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: str
    shop: str
    amount: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT#{number}"):
    number: str
    amount: int


class Sales(Aggregate[Sale], pk="SALES#{shop}", sk="SALES#{shop}"):
    shop: str
    sales: Annotated[int, Count()] = 0
    amount: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Sales"]:
        return cls.key(shop=sale.shop)


def receipt(change: Inserted[Sale]) -> Put[Receipt]:
    return Put(Receipt(number=change.new.number, amount=change.new.amount))


def counting():
    app = App("shop", table="Shop")
    app.aggregate(Sales)
    return app


def writing():
    app = App("shop", table="Shop", entities=[Receipt])
    app.on(receipt)
    return app


def both():
    app = counting()
    app.on(receipt)
    return app


def batch_of(arn, number):
    records = []
    for place in range(BATCH):
        name = f"{number}-{place}"
        key = {"S": f"SALE#{name}"}
        image = {"PK": key, "SK": key, "number": {"S": name}, "shop": {"S": f"s{place % 5}"}}
        image["amount"] = {"N": str(place)}
        inner = {
            "ApproximateCreationDateTime": time.time(),
            "Keys": {"PK": key, "SK": key},
            "NewImage": image,
            "SequenceNumber": f"{number:010}{place:011}",
            "SizeBytes": 100,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        records.append(
            {
                "eventID": f"{number:016}{place:016}",
                "eventName": "INSERT",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "us-east-1",
                "dynamodb": inner,
                "eventSourceARN": arn,
            }
        )
    return {"Records": records}


class Spent:
    """Adds up the CPU time within the calls of a client, and their number."""

    def __init__(self, client):
        self.seconds, self.calls = 0.0, 0
        for name in ("transact_write_items", "batch_get_item", "get_item", "update_item"):
            setattr(client, name, self._timed(getattr(client, name)))

    def _timed(self, call):
        async def timed(**request):
            began = time.process_time()
            try:
                return await call(**request)
            finally:
                self.seconds += time.process_time() - began
                self.calls += 1

        return timed


@pytest.fixture
def runtime_of(monkeypatch):
    """Makes the runtime of an app's function, on an engine of its own."""
    made = []
    engine = Engine(clock=time.time, rng=random.Random(1), shards=1)
    engine.call("dynamodb", "CreateTable", streamed("Shop", "PK", "SK"))
    there = partial(connect, http_session=session_class(engine))
    monkeypatch.setattr(runtime, "open_environment", partial(open_environment, connect_with=there))
    monkeypatch.setattr(runtime.Logger, "prepare", None)  # put back afterwards

    def make(app):
        made.append(runtime.Runtime(app))
        return made[-1]

    yield make
    for one in made:
        one._runner.close()


async def spent_of(environment):
    return Spent(environment.aws.dynamodb), environment.around.table.stream_arn


def measure(function):
    """Return the milliseconds of each round: in all, within calls; and the calls."""
    spent, arn = function.run(spent_of)
    rounds = []
    for number in range(1, ROUNDS + 2):
        event = batch_of(arn, number)
        spent.seconds, spent.calls = 0.0, 0
        began = time.process_time()
        response = function.run(lambda env: process_batch(env, event))  # noqa: B023 - runs at once
        seconds = time.process_time() - began
        assert response == {"batchItemFailures": []}
        rounds.append((seconds * 1000, spent.seconds * 1000, spent.calls))
    return rounds[1:]


@pytest.mark.benchmark
@pytest.mark.parametrize("make", [counting, writing, both], ids=lambda make: make.__name__)
def test_a_warm_batch_of_100_costs_less_than_its_calls_do_in_the_sdk(make, runtime_of):
    rounds = measure(runtime_of(make()))
    beyond = statistics.median(whole - calls for whole, calls, _ in rounds)
    calls = statistics.median(calls for _, calls, _ in rounds)
    print(
        f"\nwarm batch of {BATCH}, {make.__name__}: {beyond:.1f} ms of CPU,"
        f" and {calls:.1f} ms for {rounds[0][2]} calls on the local engine"
    )
    assert beyond < RATIO * calls


@pytest.mark.benchmark
def test_the_cold_start_is_mostly_the_sdks():
    program = """
import json, sys, time
sys.modules["httpx"] = None
began = time.process_time()
import aioboto3
sdk = time.process_time() - began
import streamkit.aws_lambda
print(json.dumps([sdk, time.process_time() - began]))
"""
    command = [sys.executable, "-c", program]
    runs = [json.loads(subprocess.check_output(command)) for _ in range(5)]
    sdk, whole = (statistics.median(values) for values in zip(*runs, strict=True))
    print(f"\nimport: {whole:.2f} s of CPU, of which the SDK {sdk:.2f} s")
    assert whole < 3 * sdk

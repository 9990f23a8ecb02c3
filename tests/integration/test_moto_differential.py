"""The same operations on moto and on the local engine: results, errors and contents must agree.

Random operations are played to both, one after the other. Where they are known to differ, because
moto does not do as DynamoDB does, `KNOWN` says so with the reason, and each of its entries is
probed by itself: when moto learns it, the probe fails and the entry goes.
"""

import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from tests.integration.moto_known import KNOWN, H, R
from tests.integration.moto_pair import Pair
from tests.integration.moto_traffic import Traffic

STEPS = 160
SEEDS = range(5)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client that moto answers in this process: a server would take longer than the answers."""
    with mock_aws():
        made = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
        )
        yield made
        made.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_traffic_has_the_same_answers_and_leaves_the_same_contents(client, seed):
    pair = Pair(client, f"seed-{seed}")
    agreed = 0
    for number, (operation, payload) in enumerate(Traffic(pair, seed).steps(STEPS)):
        ours, theirs = pair.both(operation, payload)
        if ours == theirs:
            agreed += 1
            continue
        explained = any(
            known.explains(operation, payload, ours, theirs) for known in KNOWN.values()
        )
        assert explained, f"step {number}: {operation} {payload}\nours {ours}\nmoto {theirs}"
        pair.resynchronise()
    assert agreed > STEPS * 0.85
    assert pair.contents(pair.ours) == pair.contents(pair.theirs)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_difference_is_still_there(client, name):
    known = KNOWN[name]
    pair = Pair(client, "probe")
    try:
        *before, last = known.probe
        for operation, payload in before:
            pair.both(operation, payload)
        ours, theirs = pair.both(*last)
        assert ours != theirs, f"moto does it now: drop {name!r}"
    finally:
        for table in (H, R):
            client.delete_table(TableName=table)


SEVERAL = (("HASH", "h1", "h2"), ("RANGE", "r1", "r2", "r3"))
TYPES = {"h1": "S", "h2": "N", "r1": "N", "r2": "S", "r3": "S"}


def asked_of_several(rng: random.Random) -> dict[str, Any]:
    """A query of an index with several attributes in each key, valid for the most part."""
    left = ["h1", "h2", *["r1", "r2", "r3"][: rng.randint(0, 3)]]
    if rng.random() < 0.15:
        left.remove(rng.choice(left))
    last = left[-1] if left else "h1"
    clauses, values = [], {}
    for name in left:
        values[f":{name}"] = several_value(rng, name)
        operator = "="
        if name == last and name[0] == "r":
            operator = rng.choice(["=", "<", "<=", ">", ">=", "BETWEEN"])
        if operator == "BETWEEN":
            values[f":{name}"], values[":high"] = sorted(
                (values[f":{name}"], several_value(rng, name)), key=lambda one: [*one.values()]
            )
            clauses.append(f"{name} BETWEEN :{name} AND :high")
        else:
            clauses.append(f"{name} {operator} :{name}")
    if ":high" not in values:  # moto answers status 500 unless BETWEEN comes last
        rng.shuffle(clauses)
    return {
        "IndexName": "several",
        "KeyConditionExpression": " AND ".join(clauses),
        "ExpressionAttributeValues": values,
        "ScanIndexForward": rng.random() < 0.5,
    }


def several_value(rng: random.Random, name: str) -> dict[str, str]:
    return {"N": str(rng.randint(1, 3))} if TYPES[name] == "N" else {"S": rng.choice("xyz")}


@pytest.mark.parametrize("seed", SEEDS)
def test_queries_of_keys_of_several_attributes_have_the_same_answers(client, seed):
    rng, name = random.Random(seed), f"several-{seed}"
    pair = Pair(client, f"beside-several-{seed}")
    definition = {
        "TableName": name,
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": kind}
            for key, kind in ({"pk": "S"} | TYPES).items()
        ],
        "BillingMode": "PAY_PER_REQUEST",
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "several",
                "KeySchema": [
                    {"AttributeName": key, "KeyType": kind}
                    for kind, *keys in SEVERAL
                    for key in keys
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }
    assert [answer.error for answer in pair.both("CreateTable", definition)] == [None, None]
    there = set()
    for number in range(120):
        item = {key: several_value(rng, key) for key in TYPES if rng.random() < 0.95}
        if repr(item) in there:
            continue  # items of equal keys have no order
        there.add(repr(item))
        put = {"TableName": name, "Item": {"pk": {"S": f"{number}"}} | item}
        ours, theirs = pair.both("PutItem", put)
        assert ours == theirs
    found = refused = 0
    for _ in range(150):
        query = {"TableName": name} | asked_of_several(rng)
        ours, theirs = pair.both("Query", query)
        assert ours == theirs, query
        found += ours.error is None and ours.body["Count"] > 1
        refused += ours.error is not None
    assert found > 20
    assert refused > 5

"""The same operations on moto and on the local engine: results, errors and contents must agree.

Random operations are played to both, one after the other. Where they are known to differ, because
moto does not do as DynamoDB does, `KNOWN` says so with the reason, and each of its entries is
probed by itself: when moto learns it, the probe fails and the entry goes.
"""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.integration.moto_known import KNOWN, H, R
from tests.integration.moto_pair import Pair
from tests.integration.moto_traffic import Traffic

STEPS = 160
SEEDS = range(5)


@pytest.fixture(scope="module")
def client(endpoint) -> Iterator[Any]:
    made = boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
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

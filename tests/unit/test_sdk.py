"""The clients work with aioboto3, and on a newer aiobotocore alone, where that is installed."""

import random
import re
import tomllib
from pathlib import Path
from unittest import mock

import pytest

from streamkit import aws
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.sdk import sessions
from streamkit.progress.fetch import fetch_all
from tests.tables import streamed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("companion", ["as installed", "none"])
async def test_clients_read_and_write_with_and_without_aioboto3(companion, monkeypatch):
    if companion == "none":
        monkeypatch.setattr(sessions, "aioboto3", None)
    engine = Engine(rng=random.Random(1))
    region = f"eu-west-{len(companion)}"  # clients of one region share a session
    async with aws.connect(http_session=session_class(engine), region=region) as clients:
        await clients.dynamodb.create_table(**streamed("shop", "pk"))
        await clients.dynamodb.put_item(TableName="shop", Item={"pk": {"S": "A"}})
        assert await fetch_all(clients.dynamodb, "shop", [{"pk": {"S": "A"}}])
        (stream,) = (await clients.streams.list_streams())["Streams"]
        shards = await clients.streams.describe_stream(StreamArn=stream["StreamArn"])
        iterator = await clients.get_iterator(
            StreamArn=stream["StreamArn"],
            ShardId=shards["StreamDescription"]["Shards"][0]["ShardId"],
            ShardIteratorType="TRIM_HORIZON",
        )
        assert b'"INSERT"' in await clients.get_page(iterator)


async def test_other_services_open_without_aioboto3_in_the_region_that_is_set(monkeypatch):
    monkeypatch.setattr(sessions, "aioboto3", None)
    with mock.patch.dict("os.environ", {"AWS_REGION": "eu-north-1"}):
        async with aws.open_client("sqs", read_seconds=1.0) as client:
            assert client.meta.region_name == "eu-north-1"


def names(requirements):
    return {re.match(r"[\w-]+", one)[0]: one for one in requirements}


def test_the_list_without_aioboto3_is_that_of_the_package_with_a_newer_aiobotocore_in_its_place():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (ROOT / "requirements-aiobotocore.txt").read_text().splitlines()
    listed = names(line for line in lines if not line.startswith("#"))
    assert listed.pop("aiobotocore") == "aiobotocore>=3.0,<4"
    assert listed.pop("boto3") == "boto3", "the one that fits aiobotocore"
    ours = names(declared)
    assert ours.pop("aioboto3").startswith("aioboto3>=15.5")
    assert listed == ours

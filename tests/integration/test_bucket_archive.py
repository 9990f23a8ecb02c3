"""An archive in a bucket: the same rules through the real SDK against moto, with its faults.

moto decides conditional writes one after the other: it never answers 409, and loses no reply. A
client between it and the archive does that.
"""

import gzip
import json

import anyio
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from streamkit.archive import BucketArchive
from streamkit.archive import bucket as module
from streamkit.archive.chain import Chain
from streamkit.archive.link import ORIGIN
from streamkit.archive.objects import ArchiveRefused, all_names
from streamkit.aws import open_client
from streamkit.errors import DeclarationError
from streamkit.progress.control import START
from tests.unit.archive.test_links import lines_of

REGION = "us-east-1"


@pytest.fixture
async def bucket(found_by_sdk, monkeypatch):
    monkeypatch.setenv("AWS_REGION", REGION)
    async with open_client("s3", read_seconds=5) as client:
        await client.create_bucket(Bucket="changes")
        yield client


@pytest.fixture
async def objects(bucket, request):
    prefix = request.node.name.replace("[", "-").replace("]", "")
    async with BucketArchive(f"s3://changes/{prefix}").opened() as opened:
        yield opened


def at(number):
    return f"{number:040}"


class Faulty:
    """A client whose calls fail as S3's do: before they are applied, or when their reply is lost."""

    def __init__(self, client, *faults):
        self.client = client
        self.faults = list(faults)

    def __getattr__(self, name):
        async def call(**arguments):
            fault = self.faults.pop(0) if self.faults else None
            if fault == "lost":
                await getattr(self.client, name)(**arguments)
                raise ReadTimeoutError(endpoint_url="s3")
            if fault is not None:
                status, code = fault
                reply = {
                    "Error": {"Code": code},
                    "ResponseMetadata": {"HTTPStatusCode": status},
                }
                raise ClientError(reply, name)
            return await getattr(self.client, name)(**arguments)

        return call


async def test_of_many_writers_at_once_one_decides(objects):
    chain = Chain(objects, "T/now", "s1")
    found = []

    async def write(last):
        link = chain.link(ORIGIN, at(last))
        found.append(await chain.add(link, lines_of(*range(1, last + 1))))

    async with anyio.create_task_group() as group:
        for last in range(1, 9):
            group.start_soon(write, last)
    assert len(set(found)) == 1
    link, _ = await chain.at(START)
    assert link in found
    assert await chain.positions() == [ORIGIN]


async def test_an_object_is_what_other_tools_read(objects, bucket):
    chain = Chain(objects, "T/now", "s1")
    await chain.add(chain.link(ORIGIN, at(3)), lines_of(1, 2, 3))
    (entry,) = (await bucket.list_objects_v2(Bucket="changes", Prefix="test_an_object_is"))[
        "Contents"
    ]
    assert (
        entry["Key"] == f"test_an_object_is_what_other_tools_read/T/now/shards/s1/{at(0)}.jsonl.gz"
    )
    reply = await bucket.get_object(Bucket="changes", Key=entry["Key"])
    lines = gzip.decompress(await reply["Body"].read()).splitlines()
    assert [json.loads(each)["dynamodb"]["Keys"]["PK"]["S"] for each in lines] == [
        "item 1",
        "item 2",
        "item 3",
    ]


async def test_an_object_that_changed_is_not_replaced(objects):
    assert await objects.create("a/b", b"one")
    assert not await objects.create("a/b", b"again")
    stored = await objects.read("a/b")
    assert await objects.replace("a/b", b"two", stored.tag)
    assert (await objects.read("a/b")).body == b"two"
    assert await objects.read("a/none") is None


async def test_all_names_are_listed_in_order(objects):
    for number in range(30):
        assert await objects.create(f"a/{number:03}", b"")
    assert await all_names(objects, "a/") == [f"a/{n:03}" for n in range(30)]
    assert await all_names(objects, "a/", "a/027") == ["a/028", "a/029"]
    assert await all_names(objects, "b/") == []


@pytest.mark.parametrize(
    "fault",
    [
        (503, "SlowDown"),
        (500, "InternalError"),
        (409, "ConditionalRequestConflict"),
        "lost",
    ],
)
@pytest.mark.parametrize("call", ["put_object", "get_object", "list_objects_v2"])
async def test_a_call_that_fails_for_a_moment_is_made_again(objects, monkeypatch, call, fault):
    if fault == (409, "ConditionalRequestConflict") and call != "put_object":
        return
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    client = Faulty(objects.client, fault, fault)
    chain = Chain(module._Bucket(client, "changes", objects.prefix), "T/now", "s1")
    if call != "put_object":
        plain = Chain(objects, "T/now", "s1")
        await plain.add(plain.link(ORIGIN, at(2)), lines_of(1, 2))
    if call == "list_objects_v2":
        assert await chain.positions() == [ORIGIN]
    elif call == "get_object":
        assert (await chain.at(START))[0].last == at(2)
    else:
        link = await chain.add(chain.link(ORIGIN, at(2)), lines_of(1, 2))
        assert link == (await chain.at(START))[0]
    assert not client.faults


async def test_a_bucket_that_does_not_exist_is_named_by_every_call(bucket):
    async with BucketArchive("s3://chnages/deals").opened() as objects:
        calls = (
            lambda: objects.create("a/b", b""),
            lambda: objects.replace("a/b", b"", "tag"),
            lambda: objects.read("a/b"),
            lambda: objects.names("a/"),
            lambda: objects.try_writing("a/b"),
        )
        for call in calls:
            with pytest.raises(ArchiveRefused) as raised:
                await call()
            assert "the archive in s3://chnages/deals/ answers" in str(raised.value)
            assert "create the bucket chnages, or correct its name" in str(raised.value)


@pytest.mark.parametrize("url", ["changes", "s3://", "https://changes", "s3://changes?a=b"])
def test_a_url_of_another_form_is_refused(url):
    with pytest.raises(DeclarationError, match="s3://BUCKET"):
        BucketArchive(url)


async def test_writing_is_tried_again_and_again_and_leaves_an_empty_object_that_is_no_link(objects):
    await objects.try_writing("T/now/writable")
    await objects.try_writing("T/now/writable")
    assert await all_names(objects, "") == ["T/now/writable"]
    assert (await objects.read("T/now/writable")).body == b""
    assert await Chain(objects, "T/now", "s1").positions() == []

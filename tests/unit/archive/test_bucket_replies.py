"""A bucket's replies that break off, stall or find nothing are what the protocol of objects says."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest
import structlog
from botocore.exceptions import ClientError

from streamkit import aws
from streamkit.archive import BucketArchive, bucket, contents
from streamkit.archive.answers import WorkerObjects
from streamkit.archive.long_pages import NotDecided
from streamkit.archive.objects import ArchiveRefused, all_names

BODY = b"x" * 100_000
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}


class Body:
    """A body that fails a number of times before it can be read."""

    def __init__(self, failures):
        self.failures = failures

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def read(self):
        if self.failures:
            raise self.failures.pop(0)
        return BODY


class Client:
    """A client of S3 whose bodies break off at first, and which has nothing to replace."""

    def __init__(self, *failures):
        self.body = Body(list(failures))
        self.asked = 0

    async def head_object(self, **where):
        return {"ContentLength": len(BODY), "ETag": "a"}

    async def get_object(self, **where):
        self.asked += 1
        return {"Body": self.body, "ETag": "a"}

    async def put_object(self, **where):
        status = {"HTTPStatusCode": 404}
        raise ClientError({"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": status}, "PutObject")


@pytest.fixture
def use(monkeypatch):
    def use(client):
        @asynccontextmanager
        async def opened(service, *, read_seconds):
            yield client

        for module in (bucket, contents):
            monkeypatch.setattr(module, "open_client", opened)
        monkeypatch.setattr(aws, "_PAUSE_SECONDS", 0.0)
        return client

    return use


def broken():
    return aiohttp.ClientPayloadError("broken off"), TimeoutError("stalled")


async def test_an_object_whose_body_breaks_off_or_stalls_is_asked_for_again(use):
    client = use(Client(*broken()))
    async with BucketArchive("s3://changes").opened() as objects:
        stored = await objects.read("a")
    assert (stored.body, stored.tag, client.asked) == (BODY, "a", 3)


async def test_a_list_in_a_bucket_whose_body_breaks_off_or_stalls_is_read_again(use):
    client = use(Client(*broken()))
    async with contents.open_contents("s3://lists/a") as opened:
        assert await opened.read(0, len(BODY)) == BODY
    assert client.asked == 3


async def test_an_object_that_was_removed_meanwhile_is_not_replaced(use):
    use(Client())
    async with BucketArchive("s3://changes").opened() as objects:
        assert await objects.replace("a", b"", "tag") is False


class Listing(Client):
    """A client of S3 that lists two names, behind a page that is empty and cut off."""

    pages = {
        None: {"IsTruncated": True, "NextContinuationToken": "t"},
        "t": {"IsTruncated": False, "Contents": [{"Key": "a/1"}, {"Key": "a/2"}]},
    }

    async def list_objects_v2(self, **where):
        if where.get("StartAfter") == "a/2":
            return {"IsTruncated": False}
        return self.pages[where.get("ContinuationToken")]


async def test_an_empty_page_of_a_listing_that_is_cut_off_is_not_its_end(use):
    use(Listing())
    async with BucketArchive("s3://changes").opened() as objects:
        assert await all_names(objects, "a/") == ["a/1", "a/2"]


async def test_the_sdk_tells_of_a_body_that_breaks_off_what_is_expected_of_it(monkeypatch):
    """A server that closes its first connection half way, and the SDK as it is."""
    tries = []

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        tries.append(1)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\nETag: a\r\nConnection: close"
        writer.write(head.encode() + b"\r\n\r\n" + (BODY[:10] if len(tries) == 1 else BODY))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}).items():
            monkeypatch.setenv(name, value)
        async with BucketArchive("s3://changes").opened() as objects:
            assert (await objects.read("a")).body == BODY
    assert len(tries) == 2


class Refusing(Client):
    """A client of S3 whose role has lost its permissions, for as many calls as are left."""

    def __init__(self, code, left=1):
        super().__init__()
        self.code, self.left = code, left

    def __getattribute__(self, name):
        if name not in ("get_object", "put_object", "list_objects_v2"):
            return super().__getattribute__(name)

        async def call(**where):
            self.left -= 1
            if self.left < 0:
                return {"IsTruncated": False}
            called = {"get_object": "GetObject", "put_object": "PutObject"}
            called = called.get(name, "ListObjectsV2")
            status = {"HTTPStatusCode": 403}
            reply = {"Error": {"Code": self.code}, "ResponseMetadata": status}
            raise ClientError(reply, called)

        return call


@pytest.mark.parametrize(
    ("verb", "arguments", "needed"),
    [
        ("create", ("a", b""), "s3:PutObject"),
        ("replace", ("a", b"", "tag"), "s3:PutObject"),
        ("read", ("a",), "s3:GetObject, and s3:ListBucket"),
        ("names", ("a/",), "s3:ListBucket"),
    ],
)
async def test_a_refusal_names_the_permission_that_is_missing(use, verb, arguments, needed):
    use(Refusing("AccessDenied"))
    async with BucketArchive("s3://changes/deals").opened() as objects:
        with pytest.raises(ArchiveRefused) as raised:
            await getattr(objects, verb)(*arguments)
    assert str(raised.value).startswith("the archive in s3://changes/deals/ answers ")
    assert f"with AccessDenied: its role needs {needed}" in str(raised.value)


@pytest.mark.parametrize(
    "code", ["AccessDenied", "NoSuchBucket", "ExpiredToken", "PermanentRedirect"]
)
async def test_a_writer_waits_while_its_bucket_refuses_it_whatever_the_reason(
    use, monkeypatch, code
):
    waited = []

    async def wait(seconds):
        waited.append(seconds)
        assert code in objects.refused

    use(Refusing(code, left=3))
    monkeypatch.setattr(anyio, "sleep", wait)
    async with BucketArchive("s3://changes").opened() as opened:
        objects = WorkerObjects(opened, waits=True)
        with structlog.testing.capture_logs() as logs:
            assert await objects.create("a", b"")
    assert waited == [10.0] * 3
    assert objects.refused == ""
    assert {log["event"] for log in logs} == {"archive.refused"}
    assert code in logs[0]["reason"]


async def test_a_reader_is_told_that_nothing_is_decided_and_holds_no_place_meanwhile(use):
    use(Refusing("AccessDenied"))
    async with BucketArchive("s3://changes").opened() as opened:
        objects = WorkerObjects(opened, waits=False)
        with pytest.raises(NotDecided, match="s3:ListBucket"):
            await objects.names("a/")
        assert "s3:ListBucket" in objects.refused
        assert await objects.names("a/") == []
        assert objects.refused == ""

import asyncio
import gzip
import json
import logging
import random
import signal
import sys
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from zlib import crc32

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from streamkit.local.engine import Engine
from streamkit.local.server import serve

TABLE = {
    "TableName": "orders",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}
LIST_TABLES = {"X-Amz-Target": "DynamoDB_20120810.ListTables"}


class World:
    """An engine, its clock and its server."""

    def __init__(self):
        self.now = 1_700_000_000.0
        self.engine = Engine(clock=lambda: self.now, rng=random.Random(1))
        self.server = None


@pytest.fixture
async def world():
    world = World()
    async with await serve(world.engine, expire_every=None) as world.server:
        yield world


@contextmanager
def boto(url, service="dynamodb"):
    config = Config(retries={"total_max_attempts": 1})
    session = boto3.Session("key", "secret", region_name="us-east-1")
    client = session.client(service, endpoint_url=url, config=config)
    try:
        yield client
    finally:
        client.close()


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server):
        return cls(*await asyncio.open_connection(server.host, server.port))

    def send(self, method="POST", path="/", headers=None, body=b"{}", version="1.1"):
        lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
        named = {"Content-Length": str(len(body))} | (headers or {})
        lines += [f"{name}: {value}" for name, value in named.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def reply(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split(" ")[1]), headers, body

    async def ended(self):
        return await self.reader.read() == b""

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


@pytest.fixture
async def raw(world):
    connection = await Raw.open(world.server)
    yield connection
    await connection.close()


async def command(raw, name, **arguments):
    raw.send(path=f"/_control/{name}", body=json.dumps(arguments).encode())
    status, _, body = await raw.reply()
    return status, json.loads(body)


async def test_boto3_writes_reads_and_streams_over_http(world):
    def use():
        with (
            boto(world.server.url) as dynamodb,
            boto(world.server.url, "dynamodbstreams") as streams,
        ):
            arn = dynamodb.create_table(**TABLE)["TableDescription"]["LatestStreamArn"]
            for number in range(30):
                dynamodb.put_item(
                    TableName="orders", Item={"pk": {"S": "ä"}, "v": {"N": str(number)}}
                )
            item = dynamodb.get_item(TableName="orders", Key={"pk": {"S": "ä"}})["Item"]
            shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]
            iterator = streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            return item, streams.get_records(ShardIterator=iterator)["Records"]

    item, records = await asyncio.to_thread(use)

    assert item == {"pk": {"S": "ä"}, "v": {"N": "29"}}
    values = [int(record["dynamodb"]["NewImage"]["v"]["N"]) for record in records]
    assert values == list(range(30))
    assert records[0]["dynamodb"]["ApproximateCreationDateTime"].timestamp() == 1_700_000_000


async def test_concurrent_clients_lose_no_update(world):
    with boto(world.server.url) as dynamodb:
        await asyncio.to_thread(lambda: dynamodb.create_table(**TABLE))

    def count_up():
        with boto(world.server.url) as dynamodb:
            for _ in range(25):
                dynamodb.update_item(
                    TableName="orders",
                    Key={"pk": {"S": "counter"}},
                    UpdateExpression="ADD n :one",
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )

    await asyncio.gather(*(asyncio.to_thread(count_up) for _ in range(8)))

    key = {"TableName": "orders", "Key": {"pk": {"S": "counter"}}}
    assert world.engine.call("dynamodb", "GetItem", key)[1]["Item"]["n"] == {"N": "200"}


async def test_a_client_keeps_its_connection(world):
    def use():
        with boto(world.server.url) as dynamodb:
            for _ in range(10):
                dynamodb.list_tables()
            return len(world.server._tasks)

    assert await asyncio.to_thread(use) == 1


async def test_errors_arrive_over_http(world):
    def use():
        with boto(world.server.url) as dynamodb, pytest.raises(ClientError) as refused:
            dynamodb.describe_table(TableName="none")
        return refused.value.response

    response = await asyncio.to_thread(use)

    assert response["Error"]["Code"] == "ResourceNotFoundException"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400


async def test_a_reply_has_the_headers_that_sdks_read(raw):
    raw.send(headers=LIST_TABLES)
    status, headers, body = await raw.reply()

    assert (status, json.loads(body)) == (200, {"TableNames": []})
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers["x-amz-crc32"] == str(crc32(body))
    assert len(headers["x-amzn-requestid"]) == 52


async def test_requests_may_follow_each_other_without_waiting(raw):
    for _ in range(5):
        raw.send(headers=LIST_TABLES)
    replies = [await raw.reply() for _ in range(5)]

    assert [status for status, _, _ in replies] == [200] * 5
    assert len({headers["x-amzn-requestid"] for _, headers, _ in replies}) == 5


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        ("1.1", None, True),
        ("1.1", "close", False),
        ("1.0", None, False),
        ("1.0", "Keep-Alive", True),
    ],
)
async def test_a_connection_is_kept_as_the_client_asks(raw, version, connection, kept):
    headers = LIST_TABLES | ({"Connection": connection} if connection else {})
    raw.send(headers=headers, version=version)
    _, answered, _ = await raw.reply()
    assert answered["connection"] == ("keep-alive" if kept else "close")
    if kept:
        raw.send(headers=headers, version=version)
        assert (await raw.reply())[0] == 200
    else:
        assert await raw.ended()


async def test_a_client_that_waits_for_leave_to_send_gets_it(raw):
    raw.writer.write(
        b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\n"
        b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await raw.reply())[0] == 100
    raw.writer.write(b"{}")
    assert (await raw.reply())[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    ],
)
async def test_what_is_not_a_request_is_refused_and_ends_the_connection(raw, request_bytes, status):
    raw.writer.write(request_bytes)
    assert (await raw.reply())[0] == status


async def test_a_client_that_sends_too_much_gets_to_read_why(world):
    """It sends all of it before it reads, so the connection must not be closed meanwhile."""
    item = {"pk": {"S": "a"}, "data": {"B": b"x" * (26 << 20)}}  # 35 MB in base64

    def put():
        with boto(world.server.url) as dynamodb:
            dynamodb.put_item(TableName="orders", Item=item)

    with pytest.raises(ClientError, match="the body is too long") as caught:
        await asyncio.to_thread(put)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


@pytest.mark.parametrize("cut", [b"POST / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_request_that_breaks_off_is_refused(raw, cut):
    raw.writer.write(cut)
    raw.writer.write_eof()
    assert (await raw.reply())[0] == 400


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (None, "UnknownOperationException"),
        ("Kinesis_20131202.ListStreams", "UnknownOperationException"),
        ("DynamoDB_20120810.Explode", "UnknownOperationException"),
        ("DynamoDB_20120810", "UnknownOperationException"),
    ],
)
async def test_unknown_operations_are_refused_in_aws_s_words(raw, target, code):
    raw.send(headers={"X-Amz-Target": target} if target else {})
    status, _, body = await raw.reply()
    assert (status, json.loads(body)["__type"].rpartition("#")[2]) == (400, code)


async def test_a_body_that_is_no_json_is_refused_in_aws_s_words(raw):
    for body in (b"{", b"[]", b"\xff"):
        raw.send(headers=LIST_TABLES, body=body)
        status, _, answer = await raw.reply()
        assert status == 400
        assert json.loads(answer)["__type"].endswith("#SerializationException")


async def test_a_body_of_wrong_text_or_too_deep_is_refused_without_a_traceback(raw, caplog):
    for body in (b'{"a":"\xff"}', b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000):
        raw.send(headers=LIST_TABLES, body=body)
        assert (await raw.reply())[0] == 400
    assert caplog.text == ""


async def test_a_body_may_be_compressed(world, raw):
    gzipped = LIST_TABLES | {"Content-Encoding": "gzip"}
    world.engine.call("dynamodb", "CreateTable", dict(TABLE))
    raw.send(headers=gzipped, body=gzip.compress(b'{"Limit": 1}'))
    status, _, answer = await raw.reply()
    assert (status, json.loads(answer)) == (200, {"TableNames": ["orders"]})
    raw.send(headers=gzipped, body=b'{"Limit": 1}')
    status, _, answer = await raw.reply()
    assert (status, json.loads(answer)["__type"].rpartition("#")[2]) == (500, "InternalServerError")


async def test_web_pages_do_not_reach_the_data(raw):
    for origin in ("https://example.com", "http://localhost:8000", "null"):
        raw.send(headers=LIST_TABLES | {"Origin": origin})
        status, headers, answer = await raw.reply()
        assert status == 403
        assert json.loads(answer)["__type"].endswith("#AccessDeniedException")
        assert not [name for name in headers if name.startswith("access-control")]
    raw.send("OPTIONS", headers={"Origin": "https://example.com"})
    assert (await raw.reply())[0] == 405


async def test_a_client_of_another_region_or_account_has_other_tables(world):
    def names(key, region):
        session = boto3.Session(key, "secret", region_name=region)
        client = session.client("dynamodb", endpoint_url=world.server.url)
        try:
            if region == "eu-west-1":
                client.create_table(**TABLE | {"TableName": f"of-{key}"})
            return client.list_tables()["TableNames"]
        finally:
            client.close()

    found = [
        await asyncio.to_thread(names, key, region)
        for key, region in (
            ("key", "eu-west-1"),
            ("111122223333", "eu-west-1"),
            ("other", "us-east-1"),
        )
    ]
    assert found == [["of-key"], ["of-111122223333"], []]


async def test_a_defect_of_the_engine_fails_one_call_only(world, raw, monkeypatch, caplog):
    def fail(*_arguments):
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(world.engine, "call_bytes", fail)
        raw.send(headers=LIST_TABLES)
        status, _, body = await raw.reply()
    assert (status, json.loads(body)["__type"].rpartition("#")[2]) == (500, "InternalServerError")
    assert "a defect" in caplog.text
    raw.send(headers=LIST_TABLES)
    assert (await raw.reply())[0] == 200


async def test_it_says_that_it_is_there(raw):
    raw.send("GET", body=b"")
    assert (await raw.reply())[0] == 200
    raw.send("DELETE", body=b"")
    assert (await raw.reply())[0] == 405


async def test_commands_reach_the_engine_from_another_process(world, raw):
    world.engine.call("dynamodb", "CreateTable", dict(TABLE))

    status, answer = await command(raw, "split", table="orders")
    assert (status, len(answer["result"])) == (200, 2)
    status, answer = await command(raw, "roll", table="orders", shard=answer["result"][0])
    assert (status, len(answer["result"])) == (200, 1)
    _, shards = await command(raw, "shards", table="orders")
    assert [shard["open"] for shard in shards["result"]].count(True) == 2
    status, settings = await command(raw, "configure", publish_delay=1.5)
    assert settings["result"]["publish_delay"] == world.engine.streams.settings.publish_delay == 1.5
    assert await command(raw, "trim", table="orders") == (200, {"result": None})
    assert await command(raw, "disable", table="orders") == (200, {"result": None})
    (old,) = world.engine.streams.all("orders")
    status, answer = await command(raw, "enable", table="orders", view_type="NEW_IMAGE")
    assert status == 200
    assert (old.status, answer["result"] != old.arn) == ("DISABLED", True)


async def test_what_changes_the_engine_is_counted_so_that_it_is_kept(world, raw):
    for operation, changes in (("CreateTable", 1), ("Scan", 1), ("TransactGetItems", 1)):
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        raw.send(headers=headers, body=json.dumps(TABLE).encode())
        await raw.reply()
        assert world.server.changes == changes
    await command(raw, "split", table="orders")
    assert world.server.changes == 2


async def test_commands_that_cannot_be_carried_out_say_why(world, raw):
    for name, arguments, reason in [
        ("explode", {}, "no command"),
        ("split", {"table": "none"}, "no stream"),
        ("split", {"shard": 1}, "missing"),
        ("trim", {"table": "orders", "before": "noon"}, "noon"),
        ("expire", {"table": "none"}, "none"),
        ("advance", {"seconds": -1}, "only goes ahead"),
        ("advance", {"seconds": "soon"}, "soon"),
        ("advance", {}, "seconds"),
    ]:
        status, answer = await command(raw, name, **arguments)
        assert status == 400
        assert reason in answer["error"]
    raw.send(path="/_control/split", body=b"[")
    assert (await raw.reply())[0] == 400
    raw.send("GET", path="/_control/shards", body=b"")
    assert (await raw.reply())[0] == 405


async def test_the_clock_is_put_ahead_for_replies_and_records(world, raw):
    before, changes = world.engine.clock(), world.server.changes
    assert await command(raw, "advance", seconds=90_000) == (200, {"result": before + 90_000})
    assert world.server.changes == changes + 1
    raw.send(headers={"X-Amz-Target": "DynamoDB_20120810.ListTables"})
    _, headers, _ = await raw.reply()
    assert parsedate_to_datetime(headers["date"]).timestamp() == int(before) + 90_000
    assert world.engine.streams.clock() == before + 90_000


async def test_web_pages_cannot_give_commands(world, raw):
    raw.send(path="/_control/configure", headers={"Origin": "https://example.com"})
    assert (await raw.reply())[0] == 403


async def test_expired_items_are_deleted_while_the_server_runs():
    world = World()
    call = world.engine.call
    call("dynamodb", "CreateTable", dict(TABLE))
    specification = {"Enabled": True, "AttributeName": "ttl"}
    call(
        "dynamodb",
        "UpdateTimeToLive",
        {"TableName": "orders", "TimeToLiveSpecification": specification},
    )
    item = {"pk": {"S": "a"}, "ttl": {"N": str(int(world.now) + 10)}}
    call("dynamodb", "PutItem", {"TableName": "orders", "Item": item})
    (stream,) = world.engine.streams.all("orders")
    async with await serve(world.engine, expire_every=0) as server:
        for _ in range(20):
            await asyncio.sleep(0)
        assert (world.engine.tables["orders"].item_count, server.changes) == (1, 0)
        world.now += 20
        for _ in range(20):
            await asyncio.sleep(0)
        assert (world.engine.tables["orders"].item_count, server.changes) == (0, 1)

    _, removal = stream.shards()[0].records()
    assert removal.identity == {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


async def test_a_failing_clean_up_is_reported(caplog, monkeypatch):
    world = World()
    world.engine.call("dynamodb", "CreateTable", dict(TABLE))

    def fail(_table):
        raise RuntimeError("a defect")

    monkeypatch.setattr(world.engine, "expire", fail)
    with caplog.at_level(logging.ERROR):
        async with await serve(world.engine, expire_every=0):
            for _ in range(20):
                await asyncio.sleep(0)
    assert "a defect" in caplog.text


async def test_closing_ends_the_connections_and_frees_the_port():
    world = World()
    async with await serve(world.engine, expire_every=None) as server:
        raw = await Raw.open(server)
        raw.send(headers=LIST_TABLES)
        assert (await raw.reply())[0] == 200
        port = server.port
    assert await raw.ended()
    await raw.close()
    async with await serve(world.engine, port=port, expire_every=None) as again:
        assert again.url == f"http://127.0.0.1:{port}"


async def test_a_taken_port_is_an_error(world):
    with pytest.raises(OSError, match="in use"):
        await serve(world.engine, port=world.server.port)


async def test_an_address_of_ipv6_is_served_and_its_url_is_one(world):
    try:
        server = await serve(world.engine, "::1", expire_every=None)
    except OSError:
        pytest.skip("there is no ::1 here")
    async with server:
        assert server.url == f"http://[::1]:{server.port}"
        with boto(server.url) as dynamodb:
            assert (await asyncio.to_thread(dynamodb.list_tables))["TableNames"] == []


async def test_the_engine_runs_as_a_process_until_it_is_told_to_stop():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streamkit.local", "--port", "0", "--shards", "3", "--seed", "1",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    url = (await process.stdout.readline()).decode().strip()

    def use():
        with boto(url) as dynamodb, boto(url, "dynamodbstreams") as streams:
            arn = dynamodb.create_table(**TABLE)["TableDescription"]["LatestStreamArn"]
            return streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]

    suffixes = [shard["ShardId"].rpartition("-")[2] for shard in await asyncio.to_thread(use)]
    here = Engine(shards=3, rng=random.Random(1))
    here.call("dynamodb", "CreateTable", TABLE)
    (stream,) = here.streams.all()
    assert suffixes == [shard.id.rpartition("-")[2] for shard in stream.shards()]
    assert len(suffixes) == 3
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0

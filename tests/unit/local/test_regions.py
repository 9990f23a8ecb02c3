"""Regions and accounts: tables of one name in two of them have nothing in common."""

import gzip

import pytest

from streamkit.local.control import Control, ControlError
from streamkit.local.errors import ApiError
from streamkit.local.wire import MOST_BODY_BYTES, decoded, parse_host, parse_scope

STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}


def created(engine, name="orders"):
    request = {
        "TableName": name,
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": STREAM,
    }
    status, body = engine.call("dynamodb", "CreateTable", request)
    assert status == 200, body
    return body["TableDescription"]


def scanned(engine, name="orders"):
    return engine.call("dynamodb", "Scan", {"TableName": name})


def put(engine, pk, name="orders"):
    return engine.call("dynamodb", "PutItem", {"TableName": name, "Item": {"pk": {"S": pk}}})


def test_a_table_is_of_one_region_of_one_account(db):
    here = db.engine
    there, other = here.at("eu-west-1"), here.at(account="111122223333")
    assert here.at() is here.at("us-east-1", "000000000000") is here
    assert there.at("us-east-1") is here
    assert there is here.at("eu-west-1") is not here
    arns = {created(engine)["TableArn"] for engine in (here, there, other)}
    assert arns == {
        "arn:aws:dynamodb:us-east-1:000000000000:table/orders",
        "arn:aws:dynamodb:eu-west-1:000000000000:table/orders",
        "arn:aws:dynamodb:us-east-1:111122223333:table/orders",
    }
    assert put(there, "a")[0] == 200
    assert [scanned(engine)[1]["Count"] for engine in (here, there, other)] == [0, 1, 0]
    there.call("dynamodb", "DeleteTable", {"TableName": "orders"})
    assert scanned(there)[1]["__type"].endswith("#ResourceNotFoundException")
    assert scanned(here)[0] == 200


def test_a_stream_is_of_one_region_and_its_records_say_which(db):
    here, there = db.engine, db.engine.at("eu-west-1")
    created(here)
    created(there)
    put(there, "a")
    (stream,) = there.streams.all("orders")
    (record,) = stream.shards()[0].records()
    assert record.wire()["awsRegion"] == "eu-west-1"
    status, body = here.call("dynamodbstreams", "DescribeStream", {"StreamArn": stream.arn})
    assert (status, body["__type"].rpartition("#")[2]) == (400, "ResourceNotFoundException")
    assert there.call("dynamodbstreams", "ListStreams", {})[1]["Streams"][0]["StreamArn"] in (
        stream.arn
    )


def test_regions_share_clock_settings_lag_and_observers(db):
    there = db.engine.at("eu-west-1")
    seen = []
    db.engine.observers.append(seen.append)
    db.engine.index_lag = 3.0
    db.engine.streams.settings.listing_page = 7
    created(there)
    assert [call.operation for call in seen] == ["CreateTable"]
    assert (there.index_lag, there.streams.settings.listing_page) == (3.0, 7)
    assert there.clock() == db.now
    assert set(db.engine.everywhere()) == {db.engine, there}


def test_an_arn_names_a_table_of_its_own_region_and_account_only(db):
    there = db.engine.at("eu-west-1")
    arn = created(there)["TableArn"]
    assert scanned(there, arn)[0] == 200
    assert db.invalid("Scan", TableName=arn) == (
        f"1 validation error detected: Invalid AWS region in '{arn}'"
    )
    foreign = arn.replace("eu-west-1", "us-east-1").replace("000000000000", "111122223333")
    assert db.refused("Scan", TableName=foreign)[0] == "AccessDeniedException"
    assert db.refused("DescribeTable", TableName="arn:aws")[0] == "ValidationException"


def test_commands_find_a_table_in_its_region(db):
    control, there = Control(db.engine), db.engine.at("eu-west-1")
    created(there)
    assert len(control.split("orders")) == 2
    control.disable("orders")
    assert control.enable("orders").startswith("arn:aws:dynamodb:eu-west-1:")
    third = created(db.engine.at("ap-south-1"))["TableArn"]
    with pytest.raises(ControlError, match="several Regions have a table orders: give its ARN"):
        control.shards("orders")
    assert len(control.shards(third)) == 1
    created(db.engine)
    assert len(control.shards("orders")) == 1
    assert control.expire(third) == 0


def test_the_region_and_the_account_are_read_from_the_signature():
    scope = "20260101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
    signed = f"AWS4-HMAC-SHA256 Credential={{}}/{scope}"
    assert parse_scope(signed.format("local")) == ("eu-west-1", None)
    assert parse_scope(signed.format("111122223333").encode()) == ("eu-west-1", "111122223333")
    for nothing in (None, "", "Basic abc", "Credential=a/b", 'Credential=k/20260101/"x"/s/t'):
        assert parse_scope(nothing) == (None, None)


def test_the_region_of_an_unsigned_call_is_that_of_its_endpoint():
    for prefix in ("", "streams."):
        assert parse_host(f"https://{prefix}dynamodb.eu-west-1.amazonaws.com/") == "eu-west-1"
    for other in ("http://localhost:8000/", "https://dynamodb/", ""):
        assert parse_host(other) is None


# -- the body of a request -------------------------------------------------------------------------


def test_a_body_may_be_compressed():
    body = b'{"TableName": "orders"}'
    assert decoded(body, None) == decoded(body, "identity") == body
    assert decoded(gzip.compress(body), "gzip") == body
    assert decoded(gzip.compress(body[:5]) + gzip.compress(body[5:]), b"gzip") == body


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"{}", "gzip"),
        (b"", "gzip"),
        (gzip.compress(b"{}", mtime=0)[:-1], "gzip"),
        (gzip.compress(b"{}", mtime=0) + b"junk", "gzip"),
        (b"{}", "br"),
    ],
)
def test_a_body_that_cannot_be_decoded_is_an_internal_error_as_with_aws(body, encoding):
    with pytest.raises(ApiError) as caught:
        decoded(body, encoding)
    assert (caught.value.code, caught.value.status) == ("InternalServerError", 500)


def test_a_small_body_does_not_become_a_huge_one():
    bomb = gzip.compress(b" " * (MOST_BODY_BYTES + 1))
    assert len(bomb) < 100_000
    half = gzip.compress(b" " * (MOST_BODY_BYTES // 2 + 1))
    for body in (bomb, half + half):
        with pytest.raises(ApiError) as caught:
            decoded(body, "gzip")
        assert caught.value.status == 413
    assert len(decoded(gzip.compress(b" " * MOST_BODY_BYTES), "gzip")) == MOST_BODY_BYTES

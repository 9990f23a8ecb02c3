"""Frequent calls go botocore's way with what it computes: endpoint, Region, signature, credentials.

That replies, refusals and retries are the same is compared in `local/test_shortcut.py`.
"""

import asyncio
import json
import zlib
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest import mock

import pytest
from aiobotocore.awsrequest import AioAWSResponse
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError
from hypothesis import given
from hypothesis import strategies as st

from streamkit.aws import connect
from streamkit.model.sdk.sessions import HttpSession
from streamkit.model.sdk.signature import Signer
from tests.calls import botocores_way

TARGET = "DynamoDB_20120810.GetItem"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
URLS = [
    "https://dynamodb.us-east-1.amazonaws.com/",
    "https://dynamodb-fips.us-gov-west-1.amazonaws.com:443/",
    "http://localhost:8000/",
    "http://[::1]:8000/",
]


@given(
    url=st.sampled_from(URLS),
    region=st.sampled_from(["us-east-1", "eu-central-1"]),
    body=st.binary(max_size=50),
    token=st.one_of(st.none(), st.text("abcXYZ+/= ", min_size=1)),
    secret=st.text(min_size=1, max_size=40),
)
def test_a_request_is_signed_as_botocore_signs_it(url, region, body, token, secret):
    credentials = SimpleNamespace(access_key="AKID", secret_key=secret, token=token)
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": TARGET}
    request = AWSRequest("POST", url, headers, body)
    with mock.patch.object(auth, "get_current_datetime", return_value=NOON):
        auth.SigV4Auth(credentials, "dynamodb", region).add_auth(request)
    Signer(url, region, "dynamodb").sign(headers, body, credentials, f"{NOON:%Y%m%dT%H%M%SZ}")
    assert headers == dict(request.headers.items())


def test_a_signer_follows_credentials_and_days():
    def signed(signer, secret, day):
        headers = {"X-Amz-Target": TARGET}
        credentials = SimpleNamespace(access_key="AKID", secret_key=secret, token=None)
        signer.sign(headers, b"{}", credentials, f"202601{day}T000000Z")
        return headers["Authorization"]

    place = URLS[0], "us-east-1", "dynamodb"
    signer = Signer(*place)
    for secret, day in (("a", "01"), ("b", "01"), ("b", "02"), ("a", "01")):
        assert signed(signer, secret, day) == signed(Signer(*place), secret, day)


@asynccontextmanager
async def sent(monkeypatch, *, replies=(), traced=False, **options):
    """Open clients whose requests go nowhere; yield them, and the list of what they sent."""
    seen, left = [], list(replies)

    async def send(_session, request):
        seen.append(request)
        headers, body = left.pop(0) if left else ({}, b"{}")
        answer = AioAWSResponse(request.url, 200, headers, None)
        answer._content = body
        return answer

    monkeypatch.setattr(HttpSession, "send", send)
    with botocores_way() if traced else nullcontext():
        async with connect(**options) as aws:
            yield aws, seen


CONFIGURED = {
    "keys": {},
    "a session's token": {"AWS_SESSION_TOKEN": "token=="},
    "another Region": {"AWS_REGION": "eu-central-1"},
    "FIPS": {"AWS_USE_FIPS_ENDPOINT": "true"},
    "dual-stack": {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
    "an endpoint for the service": {"AWS_ENDPOINT_URL_DYNAMODB": "http://localhost:8000"},
    "an endpoint with a path": {"AWS_ENDPOINT_URL": "http://localhost:8000/dynamodb"},
    "China": {"AWS_REGION": "cn-north-1"},
    "a Lambda function that is traced": {
        "AWS_LAMBDA_FUNCTION_NAME": "deals",
        "_X_AMZN_TRACE_ID": "Root=1-2;Parent=3",
    },
}


def facts(request):
    """Return what of a request must be as botocore makes it."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    own = {"amz-sdk-invocation-id", "amz-sdk-request", "authorization", "content-length"}
    shown = {name: as_text(value) for name, value in headers.items() if name not in own}
    scope = as_text(headers["authorization"]).partition(",")[0]
    return request.method, request.url, shown, scope, json.loads(request.body)


def as_text(value):
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("configured", CONFIGURED.values(), ids=CONFIGURED)
async def test_a_request_is_what_botocore_makes_of_the_configuration(monkeypatch, configured):
    keys = {
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    for name, value in (keys | configured).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("time.gmtime", NOON.timetuple)
    monkeypatch.setattr(auth, "get_current_datetime", lambda: NOON)
    found = {}
    for traced in (True, False):
        with monkeypatch.context() as patched:
            async with sent(patched, traced=traced) as (aws, seen):
                key = {"pk": {"B": b"\x00"}}
                await aws.dynamodb.get_item(TableName="t", Key=key)
                await aws.beats.batch_get_item(RequestItems={"t": {"Keys": [key]}})
                await aws.beats.put_item(TableName="t", Item=key)
                await aws.streams.get_records(ShardIterator="s")
            found[traced] = [facts(request) for request in seen]
    assert found[True] == found[False]


async def test_credentials_that_are_refreshed_sign_the_next_request(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with sent(monkeypatch, region="us-east-1") as (aws, seen):
        await aws.dynamodb.get_item(TableName="t", Key={})
        aws.dynamodb._request_signer._credentials.access_key = "second"
        await aws.dynamodb.get_item(TableName="t", Key={})
    assert ["Credential=second/" in request.headers["Authorization"] for request in seen] == [
        False,
        True,
    ]


async def test_without_credentials_nothing_is_sent(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    async with sent(monkeypatch, region="us-east-1") as (aws, seen):
        with pytest.raises(NoCredentialsError):
            await aws.dynamodb.get_item(TableName="t", Key={})
    assert seen == []


async def test_a_reply_that_was_damaged_on_its_way_is_asked_for_again(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
    body = b'{"Item":{"pk":{"S":"a"}}}'
    right = {"x-amz-crc32": str(zlib.crc32(body))}
    replies = [(right, b'{"Item":{"pk":{"S":"x"}}}'), (right, body)]
    async with sent(monkeypatch, replies=replies, region="us-east-1") as (aws, seen):
        reply = await aws.dynamodb.get_item(TableName="t", Key={})
    assert reply["Item"] == {"pk": {"S": "a"}}
    assert reply["ResponseMetadata"]["RetryAttempts"] == 1
    assert len(seen) == 2


async def test_values_that_are_no_plain_json_go_botocores_way(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    class Text(str):
        __slots__ = ()

    broken = b'{"Item":{"pk":{"S":"\\ud800"}}}'
    async with sent(
        monkeypatch, replies=[({}, b"{}"), ({}, b"{}"), ({}, broken)], region="us-east-1"
    ) as (aws, seen):
        for text in (Text("a"), "half \ud800"):
            await aws.dynamodb.put_item(TableName="t", Item={"pk": {"S": text}})
        reply = await aws.dynamodb.get_item(TableName="t", Key={})
    assert [json.loads(request.body)["Item"] for request in seen[:2]] == [
        {"pk": {"S": "a"}},
        {"pk": {"S": "half \ud800"}},
    ]
    assert reply["Item"] == {"pk": {"S": "\ud800"}}

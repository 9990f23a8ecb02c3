"""Webhooks against a real server on a socket."""

import asyncio
import json
import ssl
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import format_datetime

import anyio
import httpx
import pytest

from streamkit import DeclarationError, PoisonChange, RetryableError, Webhook
from streamkit.sinks.endpoint import Refused, seconds_of
from streamkit.sinks.sink import Delivery
from streamkit.testing.loop import run_virtually
from tests.certificates import certificate
from tests.integration.http_server import http_server
from tests.pages import example, module_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class AtNoon:
    def time(self):
        return NOON.timestamp()

    def monotonic(self):
        return anyio.current_time()


def delivery(number, body=None, *, group="g", **fields):
    values = {"key": f"{number:032x}", "id": group, "group": group, "sequence": f"{number:040d}"}
    return Delivery(**values | {"body": body, "created_at": NOON} | fields)


def always(status, headers=None, body=b""):
    return lambda _request: (status, headers or {}, body)


async def answers(server, *deliveries, path="", **settings):
    sink = Webhook("hook", server.url + path, clock=AtNoon(), **settings)
    async with sink.opened() as sender:
        return await sender.deliver(deliveries)


async def test_a_delivery_is_a_post_of_json_with_its_key_and_sequence():
    async with http_server(always(204)) as server:
        body = {"total": Decimal("1.50"), "at": NOON, "name": "Zoë"}
        headers = {"Authorization": "Bearer x"}
        sent = delivery(7, body, id="or der/ü", attributes={"kind": "€"})
        assert await answers(server, sent, path="/in?x=1", headers=headers) == [None]
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/in?x=1")
    assert json.loads(request.body) == {
        "total": "1.50",
        "at": "2026-03-01T12:00:00+00:00",
        "name": "Zoë",
    }
    expected = {
        "content-type": "application/json",
        "authorization": "Bearer x",
        "idempotency-key": f"{7:032x}",
        "x-streamkit-sequence": f"{7:040d}",
        "x-streamkit-group": "g",
        "x-streamkit-id": "or%20der/%C3%BC",
        "x-streamkit-attributes": '{"kind": "\\u20ac"}',
    }
    assert expected.items() <= request.headers.items()
    assert not {"x-streamkit-signature", "x-streamkit-deleted"} & set(request.headers)


async def test_a_deletion_is_null_and_says_so_in_a_header():
    async with http_server(always(200)) as server:
        assert await answers(server, delivery(1, None)) == [None]
    (request,) = server.requests
    assert (request.body, request.headers["x-streamkit-deleted"]) == (b"null", "true")


@pytest.mark.parametrize("body", [{}, [], "", 0, False])
async def test_what_is_empty_or_zero_is_no_deletion(body):
    async with http_server(always(200)) as server:
        assert await answers(server, delivery(1, body)) == [None]
    (request,) = server.requests
    assert "x-streamkit-deleted" not in request.headers


async def test_text_is_sent_as_it_is():
    async with http_server(always(200)) as server:
        assert await answers(server, delivery(1, "héllo")) == [None]
    (request,) = server.requests
    assert request.body == "héllo".encode()
    assert request.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_header_of_the_user_replaces_the_type_of_the_content():
    kind = "application/vnd.shop+json"
    async with http_server(always(200)) as server:
        await answers(server, delivery(1, {}), headers={"Content-Type": kind})
    (request,) = server.requests
    assert request.headers["content-type"] == kind


def verifier():
    """The function that the page gives to receivers."""
    return module_of(example("docs/sinks.md", "hmac"))["verify"]


async def test_the_pages_snippet_accepts_the_signature_and_nothing_else():
    async with http_server(always(200)) as server:
        await answers(server, delivery(1, {"a": 1}), secret="s3cret")
    (request,) = server.requests
    header, now, verify = request.headers["x-streamkit-signature"], NOON.timestamp(), verifier()
    assert verify("s3cret", header, request.body, now + 100)
    assert not verify("s3cret", header, request.body + b" ", now)
    assert not verify("other", header, request.body, now)
    assert not verify("s3cret", header, request.body, now + 1000)
    later = header.replace(f"t={int(now)}", f"t={int(now) + 900}")
    assert not verify("s3cret", later, request.body, now + 1000)


HEALING = [*range(401, 411), 421, 423, 425, 429, 500, 502, 503, 504, 599]


@pytest.mark.parametrize("status", sorted({*HEALING} - {402, 406}))
async def test_statuses_that_may_heal_are_tried_again(status):
    async with http_server(always(status)) as server:
        (error,) = await answers(server, delivery(1, {}))
    assert isinstance(error, RetryableError)
    assert str(status) in str(error)
    assert error.status == status


@pytest.mark.parametrize("status", [400, 402, 406, 411, 413, 415, 422, 431, 451])
async def test_other_refusals_park_the_change(status):
    async with http_server(always(status, {}, b"the customer's data")) as server:
        (error,) = await answers(server, delivery(1, {}))
    assert isinstance(error, PoisonChange)
    assert str(error) == f"hook answered {status}"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_its_receiver_takes_nothing_for_now(status):
    async with http_server(always(status, {"Location": "/elsewhere"})) as server:
        sent = [delivery(1, {}, group="a"), delivery(2, {}, group="b")]
        error, other = await answers(server, *sent)
    assert (type(error), error.status, error.away) == (Refused, status, True)
    assert "give the sink the new address" in str(error)
    assert other is error
    assert len(server.requests) == 1


async def test_a_connection_that_is_cut_or_refused_is_tried_again_without_naming_the_address():
    async with http_server(lambda _request: None) as server:
        (cut,) = await answers(server, delivery(1, {}), path="/token")
    (refused,) = await answers(server, delivery(1, {}), path="/token")
    assert isinstance(cut, Refused)
    assert isinstance(refused, Refused)
    assert "token" not in f"{cut} {refused}"


async def test_a_server_that_never_ends_its_answer_is_given_up_after_the_timeout():
    async def trickle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 -\r\nContent-Length: 1000\r\n\r\n")
        try:
            for _ in range(500):
                writer.write(b"x")
                await asyncio.sleep(0.02)
        finally:
            writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = Webhook("hook", f"http://127.0.0.1:{port}", timeout=0.2)
    async with sink.opened() as sender:
        (error,) = await sender.deliver([delivery(1, {})])
    server.close()
    assert isinstance(error, Refused)
    assert "TimeoutError" in str(error)


async def test_a_long_answer_is_not_read_to_its_end_and_short_ones_share_a_connection():
    async with http_server(always(200, {}, b"x" * 5_000_000)) as server:
        sink = Webhook("hook", server.url)
        async with sink.opened() as sender:
            assert await sender.deliver([delivery(1, {})]) == [None]
            assert await sender.deliver([delivery(2, {})]) == [None]
        assert server.connections == 2
    async with http_server(always(200, {}, b"fine")) as server:
        sink = Webhook("hook", server.url)
        async with sink.opened() as sender:
            assert await sender.deliver([delivery(1, {})]) == [None]
            assert await sender.deliver([delivery(2, {})]) == [None]
        assert server.connections == 1


async def test_a_success_counts_whose_answer_is_not_encoded_as_it_says():
    async with http_server(always(200, {"Content-Encoding": "gzip"}, b"thanks")) as server:
        assert await answers(server, delivery(1, {})) == [None]
    assert len(server.requests) == 1


async def test_the_pause_that_a_server_asks_for_is_in_the_error():
    date = format_datetime(NOON.replace(minute=2), usegmt=True)
    for status, text, seconds in ((429, "7", 7.0), (503, date, 120.0), (503, "soon", None)):
        async with http_server(always(status, {"Retry-After": text})) as server:
            (error,) = await answers(server, delivery(1, {}))
        assert error.retry_after == seconds


def test_a_pause_in_the_past_is_none_at_all_and_nonsense_is_not_one():
    now = NOON.timestamp()
    assert seconds_of("Sun, 01 Mar 2026 11:00:00 GMT", now) == 0.0
    assert seconds_of("Sun, 01 Mar 2026 12:00:30 -0000", now) == 30.0
    for nonsense in (None, "", "-3", "1.5", "٣", "Sun, 99 Mar 2026 12:00:00 GMT", "never"):
        assert seconds_of(nonsense, now) is None


def pauses(*headers, **settings):
    """When each call of a busy server came, in virtual seconds, and the end."""

    async def run():
        times = []

        def answer(_request):
            times.append(anyio.current_time())
            pause = headers[len(times) - 1] if len(times) <= len(headers) else None
            return (
                httpx.Response(429, headers={"Retry-After": pause})
                if pause
                else httpx.Response(200)
            )

        sink = Webhook("hook", "https://x", transport=httpx.MockTransport(answer), **settings)
        async with sink.opened() as sender:
            for number in range(len(headers) + 1):
                await sender.deliver([delivery(number, {})])
        return times

    return run_virtually(run)


def test_further_calls_wait_as_long_as_the_server_asked_for():
    assert pauses("7", "20") == pytest.approx([0, 7, 27])


def test_no_pause_is_longer_than_the_longest():
    assert pauses("86400", "3", pause_max=30) == pytest.approx([0, 30, 33])


def test_of_two_pauses_that_a_server_asks_for_at_once_the_longer_one_counts():
    async def run():
        times = []

        async def answer(_request):
            times.append(anyio.current_time())
            number = len(times)
            await anyio.sleep(number)
            if number > 2:
                return httpx.Response(200)
            return httpx.Response(429, headers={"Retry-After": "20" if number == 1 else "3"})

        sink = Webhook("hook", "https://x", transport=httpx.MockTransport(answer))
        async with sink.opened() as sender:
            async with anyio.create_task_group() as group:
                for number in range(2):
                    group.start_soon(sender.deliver, [delivery(number, {})])
            await sender.deliver([delivery(2, {})])
        return times

    assert run_virtually(run) == pytest.approx([0, 0, 21])


async def test_a_receiver_that_does_not_answer_is_tried_once_in_a_call():
    tried = []

    def answer(request):
        tried.append(request)
        raise httpx.ConnectError("refused")

    sink = Webhook("hook", "https://x", transport=httpx.MockTransport(answer))
    async with sink.opened() as sender:
        errors = await sender.deliver([delivery(1, 1, group="a"), delivery(2, 2, group="b")])
    assert [type(error) for error in errors] == [Refused, Refused]
    assert len(tried) == 1


async def test_nothing_of_an_item_overtakes_what_failed_and_a_busy_server_is_left_alone():
    def answer(request):
        return (int(json.loads(request.body)), {}, b"")

    async with http_server(answer) as server:
        sent = [
            delivery(1, 500, group="a"),
            delivery(2, 200, group="a"),
            delivery(3, 200, group="b"),
        ]
        first, second, third = await answers(server, *sent)
        assert (type(first), type(second), third) == (Refused, Refused, None)
        assert len(server.requests) == 2
        sent = [delivery(1, 503, group="a"), delivery(2, 200, group="b")]
        assert [type(error) for error in await answers(server, *sent)] == [Refused, Refused]
        assert len(server.requests) == 3


async def test_a_batch_is_one_list_in_order():
    async with http_server(always(200)) as server:
        sent = [delivery(1, {"n": 1}, group="a"), delivery(2, None, group="b")]
        assert await answers(server, *sent, batch=True, secret="s") == [None, None]
        await answers(server, *reversed(sent), batch=True)
        await answers(server, *sent, batch=True)
        await answers(server, sent[0], delivery(3, 3), batch=True)
    first, other, again, longer = server.requests
    assert json.loads(first.body) == [
        {
            "key": f"{number:032x}",
            "id": group,
            "group": group,
            "sequence": f"{number:040d}",
            "created_at": "2026-03-01T12:00:00+00:00",
            "body": body,
        }
        for number, group, body in ((1, "a", {"n": 1}), (2, "b", None))
    ]
    keys = [request.headers["idempotency-key"] for request in (first, other, again)]
    assert keys[0] == keys[2] != keys[1]
    assert longer.headers["idempotency-key"] not in keys
    assert "x-streamkit-signature" in first.headers


async def test_of_a_batch_that_is_refused_for_good_only_those_at_fault_are_parked():
    def answer(request):
        bad = any(member["body"] == "bad" for member in json.loads(request.body))
        return (422 if bad else 200, {}, b"")

    async with http_server(answer) as server:
        bodies = ["good", "bad", "good"]
        sent = [delivery(n, body, group=f"{n}") for n, body in enumerate(bodies)]
        errors = await answers(server, *sent, batch=True)
    assert [type(error) for error in errors] == [type(None), PoisonChange, type(None)]


async def test_of_a_batch_that_is_refused_for_good_nothing_overtakes_what_is_parked():
    def answer(request):
        bad = any(member["body"] == "bad" for member in json.loads(request.body))
        return (422 if bad else 200, {}, b"")

    async with http_server(answer) as server:
        sent = [delivery(1, "bad"), delivery(2, "good"), delivery(3, "good", group="b")]
        errors = await answers(server, *sent, batch=True)
    assert [type(error) for error in errors] == [PoisonChange, Refused, type(None)]
    assert len(server.requests) == 3


async def test_a_batch_that_may_heal_is_tried_again_as_a_whole():
    async with http_server(always(500)) as server:
        errors = await answers(server, delivery(1, 1, group="a"), delivery(2, 2), batch=True)
    assert [type(error) for error in errors] == [Refused, Refused]
    assert len(server.requests) == 1


async def test_what_has_no_json_parks_its_change():
    async with http_server(always(200)) as server:
        (error,) = await answers(server, delivery(1, {"x": object()}))
    assert isinstance(error, PoisonChange)
    assert server.requests == []


def test_an_address_that_is_none_is_refused_at_once_and_no_secret_is_shown():
    with pytest.raises(DeclarationError, match="'hook'"):
        Webhook("hook", "ftp://x")
    assert Webhook("hook", "https://token", secret="s3cret", headers={"A": "key"}).__repr__() == (
        "Webhook(name='hook', timeout=10.0, calls=4, pause_max=60.0, batch=False, items=100)"
    )


@pytest.mark.parametrize(
    "url",
    ["https://", "https:///in", "https://x:99999/", "https://[x/", "https://x /", "https://x\n"],
)
def test_an_address_to_which_no_request_could_be_made_is_refused_where_it_is_declared(url):
    with pytest.raises(DeclarationError, match="sink 'hook': its URL has no host, a port"):
        Webhook("hook", url)


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ("Bearer s3cret\n", "strip what you read"),
        (" s3cret", "strip what you read"),
        ("s3cr€t", "plain ASCII"),
        (None, "of type NoneType, no text; is a variable not set"),
        (7, "of type int, no text"),
    ],
)
def test_a_header_that_no_request_could_have_is_refused_where_it_is_declared(value, flaw):
    with pytest.raises(DeclarationError, match=f"'hook'.*'Authorization'.*{flaw}") as caught:
        Webhook("hook", "https://x", headers={"Authorization": value})
    assert "cr" not in str(caught.value).replace("secret", "")


async def test_a_header_that_goes_wrong_later_is_an_outage_and_no_fault_of_the_deliveries():
    headers = {"Authorization": "Bearer x"}
    async with http_server(always(200)) as server:
        sink = Webhook("hook", server.url, headers=headers)
        headers["Authorization"] = "Bearer €"
        async with sink.opened() as sender:
            (error,) = await sender.deliver([delivery(1, {})])
    assert isinstance(error, Refused)
    assert error.why == "hook: no request can be made of its headers (UnicodeEncodeError)"


@pytest.mark.parametrize(
    ("trusted", "what"), [(False, "self-signed certificate"), (True, "IP address mismatch")]
)
async def test_a_certificate_that_does_not_fit_says_what_is_wrong_with_it(tmp_path, trusted, what):
    key, cert = certificate(tmp_path, "other.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(cert) if trusted else None)

    async with await asyncio.start_server(None, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        transport = httpx.AsyncHTTPTransport(verify=ours)
        sink = Webhook("hook", f"https://127.0.0.1:{port}", transport=transport)
        async with sink.opened() as sender:
            (error,) = await sender.deliver([delivery(1, {})])
    assert error.why == (
        f"hook gave no answer: its certificate is not valid here: {what} (ConnectError)"
    )
    assert "127.0.0.1" not in str(error)


async def test_who_is_not_there_is_told_apart_from_who_has_no_name():
    async with http_server(always(200)) as server:
        pass
    (refused,) = await answers(server, delivery(1, {}))
    async with Webhook("hook", "http://nobody.invalid").opened() as sender:
        (unknown,) = await sender.deliver([delivery(1, {})])
    assert refused.why == "hook gave no answer: nothing listens at its address (ConnectError)"
    assert "its name does not resolve; look at the sink's URL" in unknown.why
    assert "invalid" not in unknown.why


def test_one_call_takes_one_delivery_unless_it_is_a_batch():
    assert Webhook("hook", "https://x").limits.items == 1
    assert Webhook("hook", "https://x", batch=True, items=20).limits.items == 20

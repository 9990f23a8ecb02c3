"""Requests of a webhook: what their headers say, alone and in a list."""

from datetime import UTC, datetime
from urllib.parse import unquote

import httpx
import pytest

from streamkit.sinks.sink import Delivery
from streamkit.sinks.webhook import Webhook
from streamkit.testing.loop import run_virtually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def one(key, **fields):
    known = {"id": "i", "group": "g", "sequence": "0" * 40, "body": {}, "created_at": NOON}
    return Delivery(key=key, **known | fields)


def requested(deliveries, status=204, **options):
    """Deliver; return the headers of each request."""
    got = []

    def answer(request):
        got.append(request.headers)
        return httpx.Response(status)

    async def run():
        sink = Webhook("hook", "http://hook", transport=httpx.MockTransport(answer), **options)
        async with sink.opened() as sender:
            errors = await sender.deliver(deliveries)
        assert [error is None for error in errors] == [status == 204] * len(deliveries)

    run_virtually(run)
    return got


def test_a_declared_header_replaces_the_type_of_the_content():
    (headers,) = requested([one("k")], headers={"Content-Type": "application/vnd.shop+json"})
    assert headers.get_list("content-type") == ["application/vnd.shop+json"]


def test_the_key_of_a_list_stands_for_the_keys_in_it():
    """Deliveries of two changes have equal ids, and are no repetition of each other."""
    keys = [
        requested(list(map(one, some)), batch=True)[0]["idempotency-key"]
        for some in ("ab", "ab", "ac", "ba")
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_an_id_is_sent_so_that_it_can_be_read_back():
    for text in ("50%25", "50%", "a b", "é", "a/b?c=d#e"):
        (headers,) = requested([one("k", id=text)])
        assert unquote(headers["x-streamkit-id"]) == text


@pytest.mark.parametrize(("count", "requests"), [(1, 1), (2, 3)])
def test_a_list_that_is_refused_is_sent_one_by_one_unless_it_holds_one(count, requests):
    deliveries = [one(f"k{n}", group=f"g{n}") for n in range(count)]
    assert len(requested(deliveries, 400, batch=True)) == requests

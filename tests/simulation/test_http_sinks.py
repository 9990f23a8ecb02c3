"""Webhook and search behind the real worker, in virtual time: what arrives through crashes."""

from types import SimpleNamespace

import anyio
import httpx
import pytest
from structlog.testing import capture_logs

from streamkit import (
    App,
    Change,
    Entity,
    Policy,
    Search,
    Send,
    Webhook,
)
from tests.integration.search_cluster import SearchCluster


class Song(Entity, pk="SONG#{name}", sk="SONG"):
    name: str
    plays: int = 0


def answering(answer):
    """A transport that asks a function of the tests' servers, without sockets."""

    def handle(request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = SimpleNamespace(
            method=request.method, path=request.url.path, headers=headers, body=request.content
        )
        status, headers, body = answer(asked)
        return httpx.Response(status, headers=headers, content=body)

    return httpx.MockTransport(handle)


def searching(cluster):
    app = App("songs", table="Songs")
    transport = answering(cluster.answer)
    search = app.sink(Search("search", "https://search", "songs", transport=transport))

    @app.on
    def follow(change: Change[Song]) -> Send:
        return Send(search, change.new, id=(change.new or change.old).name)

    return app


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_index_follows_the_table_through_crashes(harness_of, moment):
    for call in range(3, 36, 4):
        cluster = SearchCluster()
        harness = harness_of(searching(cluster))
        harness.crash(at=call, moment=moment)
        harness.put(Song(name="a"), Song(name="b"))
        harness.put(Song(name="a", plays=1))
        harness.delete(Song.key(name="b"))
        harness.settle()
        assert cluster.documents == {("songs", "a"): {"name": "a", "plays": 1}}


def test_a_busy_receiver_gets_its_pause_and_then_everything_in_order(harness_of):
    seen, times = [], []

    def answer(request):
        times.append(anyio.current_time())
        if len(times) <= 3:
            return (429, {"Retry-After": "5"}, b"")
        seen.append(request.headers["x-streamkit-sequence"])
        return (204, {}, b"")

    app = App("songs", table="Songs", policy=Policy(on_failure="block"))
    hook = app.sink(Webhook("hook", "https://hook", calls=1, transport=answering(answer)))

    @app.on
    def tell(change: Change[Song]) -> Send:
        return Send(hook, {"name": change.key.pk})

    harness = harness_of(app)
    for plays in range(4):
        harness.put(Song(name="a", plays=plays))
    harness.settle()
    assert len(seen) == 4
    assert seen == sorted(seen)
    assert times[3] - times[0] >= 15


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405])
def test_a_receiver_that_refuses_our_credentials_or_is_not_there_is_an_outage_that_heals(
    harness_of, status
):
    seen, refuses = set(), [True]

    def answer(request):
        if refuses:
            return (status, {}, b"")
        seen.add(request.headers["idempotency-key"])
        return (204, {}, b"")

    app = App("songs", table="Songs", policy=Policy(attempts=2))
    hook = app.sink(Webhook("hook", "https://hook", transport=answering(answer)))

    @app.on
    def tell(change: Change[Song]) -> Send:
        return Send(hook, {"name": change.key.pk})

    harness = harness_of(app)
    for number in range(10):
        harness.put(Song(name=f"s{number}"))
    with capture_logs() as lines:
        harness.settle(parks=True)
        harness.advance(120, parks=True)
    logged = {line["event"]: line for line in lines}
    assert logged["sink.failed"]["status"] == status
    assert "queue.stuck" not in logged
    refuses.clear()
    harness.advance(1_000)
    assert len(seen) == 10
    assert harness.parked() == []


def test_a_receiver_that_is_still_busy_with_the_same_key_gets_it_again_and_nothing_is_parked_for_good(
    harness_of,
):
    """As draft-ietf-httpapi-idempotency-key-header has it: 409 while the first request runs."""
    began = {}

    def answer(request):
        key, now = request.headers["idempotency-key"], anyio.current_time()
        if key not in began:
            began[key] = now
            raise httpx.ReadTimeout("it works on the request for a minute")
        return (200 if now - began[key] > 60 else 409, {}, b"")

    app = App("songs", table="Songs")
    hook = app.sink(Webhook("hook", "https://hook", transport=answering(answer)))

    @app.on
    def tell(change: Change[Song]) -> Send:
        return Send(hook, {"name": change.key.pk})

    harness = harness_of(app)
    harness.put(Song(name="a"))
    with capture_logs() as lines:
        harness.settle(parks=True)
        harness.advance("10m")
    assert "queue.stuck" not in {line["event"] for line in lines}
    assert len(began) == 1
    assert harness.parked() == []

"""The search sink against a stand-in that enforces external versions, over a socket."""

import asyncio
import json
import random
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit import ConfigurationError, Entity, PoisonChange, RetryableError, Search
from streamkit.sinks.endpoint import Refused
from streamkit.sinks.newest import Newest
from streamkit.sinks.sink import Delivery
from tests.integration.http_server import http_server
from tests.integration.search_cluster import SearchCluster, failure

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def delivery(number, body, identity="a"):
    return Delivery(
        key=f"{number:032x}",
        id=identity,
        group=identity,
        sequence=f"{number:040d}",
        body=body,
        created_at=NOON,
    )


@asynccontextmanager
async def opened(answer, **values):
    """An open sink of a cluster, or of whatever answers."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(http_server(getattr(answer, "answer", answer)))
        sink = Search("search", server.url + "/", "orders", **values)
        yield await stack.enter_async_context(sink.opened())


class Order(Entity, pk="O#{order_id}", sk="-"):
    order_id: str
    total: Decimal


async def test_documents_are_put_replaced_and_deleted():
    cluster = SearchCluster()
    async with opened(cluster) as sender:
        sent = [
            delivery(1, {"n": 1, "text": "two\nlines"}),
            delivery(2, Order(order_id="1", total=Decimal("1.5")), "b"),
            delivery(3, {"n": 3}, "c"),
        ]
        assert await sender.deliver(sent) == [None] * 3
        assert await sender.deliver([delivery(4, {"n": 4}), delivery(5, None, "c")]) == [None] * 2
        assert await sender.deliver([delivery(6, None, "never there")]) == [None]
        assert await sender.deliver([delivery(7, {}, "empty")]) == [None]
    assert cluster.documents == {
        ("orders", "empty"): {},
        ("orders", "a"): {"n": 4},
        ("orders", "b"): {"order_id": "1", "total": "1.5"},
    }


async def test_an_older_change_counts_as_delivered_and_changes_nothing():
    cluster = SearchCluster()
    async with opened(cluster) as sender:
        assert await sender.deliver([delivery(5, {"n": 5}), delivery(6, None, "b")]) == [None] * 2
        late = [delivery(4, {"n": 4}), delivery(3, None), delivery(5, {"n": 1}, "b")]
        assert await sender.deliver(late) == [None] * 3
    assert cluster.documents == {("orders", "a"): {"n": 5}}


async def test_what_another_worker_has_outdated_counts_as_delivered():
    cluster = SearchCluster()
    async with opened(cluster) as first, opened(cluster) as second:
        assert await first.deliver([delivery(5, {"n": 5}), delivery(6, None, "b")]) == [None] * 2
        late = [delivery(4, {"n": 4}), delivery(4, None), delivery(5, {"n": 1}, "b")]
        assert await second.deliver(late) == [None] * 3
    assert cluster.documents == {("orders", "a"): {"n": 5}}
    trouble = {"a": failure(409, "another_conflict_exception")}
    async with opened(SearchCluster(trouble=trouble)) as sender:
        assert [type(e) for e in await sender.deliver([delivery(1, {"n": 1})])] == [Refused]


NAMES = st.sampled_from("abc")
# The upper part grows with time; the lower one counts, but may fall when the upper one has grown.
STEPS = st.tuples(st.integers(0, 2), st.integers(1, 2**20))
CHANGES = st.lists(st.tuples(NAMES, st.booleans(), STEPS), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(CHANGES, st.integers(0, 2**32))
def test_random_orders_duplicates_and_batches_end_in_the_latest_state(changes, seed):
    upper, lower, expected, deliveries = 10**6, 0, {}, []
    for number, (name, alive, (ticks, step)) in enumerate(changes):
        lower = step if ticks else lower + step
        upper += ticks
        body = {"n": number} if alive else None
        deliveries.append(delivery(upper * 10**20 + lower, body, name))
        expected.pop(("orders", name), None)
        expected |= {("orders", name): body} if alive else {}

    async def run():
        rng, cluster = random.Random(seed), SearchCluster()
        left = deliveries + rng.choices(deliveries, k=rng.randrange(10))
        rng.shuffle(left)
        async with opened(cluster) as sender:
            while left:
                size = rng.randint(1, 5)
                assert set(await sender.deliver(left[:size])) == {None}
                del left[:size]
        return cluster.documents

    assert asyncio.run(run()) == expected


async def test_a_replay_in_order_ends_in_the_latest_state_also_where_versions_are_equal():
    numbers = [9 * 10**39 + step for step in range(4)]
    cluster = SearchCluster()
    async with opened(cluster) as sender:
        for first in (0, 2, 1):
            for place in range(first, 4):
                await sender.deliver([delivery(numbers[place], {"n": place})])
    assert len(set(cluster.versions.values())) == 1
    assert cluster.documents == {("orders", "a"): {"n": 3}}


async def test_what_one_worker_sends_late_is_left_out_also_where_versions_are_equal():
    numbers = [9 * 10**39 + step for step in range(4)]
    cluster = SearchCluster()
    async with opened(cluster) as sender:
        sent = [delivery(number, {"n": number}) for number in numbers]
        assert await sender.deliver([sent[2], sent[1]]) == [None, None]
        assert cluster.documents == {("orders", "a"): sent[2].body}
        assert await sender.deliver([sent[0], delivery(numbers[1], None)]) == [None, None]
        assert cluster.documents == {("orders", "a"): sent[2].body}
        cluster.trouble["a"] = failure(503, "unavailable_shards_exception")
        assert await sender.deliver([sent[3]]) != [None]
        cluster.trouble.clear()
        assert await sender.deliver([delivery(numbers[2], {"same": 2})]) == [None]
    assert cluster.documents == {("orders", "a"): {"same": 2}}


def test_only_so_many_ids_are_remembered():
    newest = Newest(ids_max=2)
    for number, name in ((5, "a"), (6, "b"), (4, "a"), (7, "c")):
        newest.note(delivery(number, None, name))
    assert newest.outdates(delivery(4, None, "a"))
    assert not newest.outdates(delivery(5, None, "a"))
    assert not newest.outdates(delivery(1, None, "b"))


async def test_each_operation_has_its_own_fate():
    trouble = {
        "bad": failure(400, "mapper_parsing_exception"),
        "busy": failure(429, "es_rejected_execution_exception"),
        "full": failure(403, "cluster_block_exception"),
        "missing": failure(404, "index_not_found_exception"),
        "down": failure(503, "unavailable_shards_exception"),
    }
    cluster = SearchCluster(trouble=trouble)
    names = ["fine", *trouble, "also fine"]
    async with opened(cluster) as sender:
        sent = [delivery(n, {"n": n}, name) for n, name in enumerate(names)]
        errors = await sender.deliver(sent)
        assert errors[0] is errors[-1] is None
        kinds = [PoisonChange, *[Refused] * 4]
        assert [type(error) for error in errors[1:-1]] == kinds
        assert str(errors[1]) == "search answered 400 (mapper_parsing_exception)"
        (gone,) = await sender.deliver([delivery(9, None, "missing")])
        assert isinstance(gone, Refused)
    assert set(cluster.documents) == {("orders", "fine"), ("orders", "also fine")}


async def test_what_is_no_document_parks_its_change_and_the_rest_is_sent():
    cluster = SearchCluster()
    async with opened(cluster) as sender:
        bodies = ["text", {"n": 1}, {"x": object()}, [1]]
        sent = [delivery(n, body, f"{n}") for n, body in enumerate(bodies)]
        errors = await sender.deliver(sent)
        assert [type(e) for e in errors] == [PoisonChange, type(None), PoisonChange, PoisonChange]
        assert await sender.deliver(sent[:1]) != [None]
    assert list(cluster.documents.values()) == [{"n": 1}]
    assert cluster.calls == 1


async def test_what_spoils_a_whole_call_is_found_in_halves():
    class Strict(SearchCluster):
        def answer(self, request):
            return (400, {}, b"") if b"spoilt" in request.body else super().answer(request)

    async with opened(Strict()) as sender:
        sent = [delivery(n, {"text": "spoilt" if n == 3 else "x"}, f"{n}") for n in range(8)]
        errors = await sender.deliver(sent)
    assert [type(error) for error in errors if error is not None] == [PoisonChange]
    assert errors[3] is not None


async def test_an_answer_for_fewer_operations_is_none_for_any_of_them():
    class Forgetful(SearchCluster):
        def answer(self, request):
            status, headers, body = super().answer(request)
            return (status, headers, json.dumps({"items": json.loads(body)["items"][1:]}).encode())

    async with opened(Forgetful()) as sender:
        with pytest.raises(Refused, match="does not belong to a bulk request"):
            await sender.deliver([delivery(n, {"n": n}, f"{n}") for n in range(3)])


async def test_a_call_that_is_too_large_is_made_in_halves():
    cluster = SearchCluster(bytes_max=400)
    async with opened(cluster) as sender:
        sent = [delivery(n, {"text": "x" * 20}, f"{n}") for n in range(8)]
        sent[3] = delivery(3, {"text": "x" * 500}, "3")
        errors = await sender.deliver(sent)
    assert [n for n, error in enumerate(errors) if error is not None] == [3]
    assert isinstance(errors[3], PoisonChange)
    assert len(cluster.documents) == 7


@pytest.mark.parametrize(
    ("status", "expected"),
    [(429, Refused), (503, Refused), (401, Refused), (405, Refused), (406, ConfigurationError)],
)
async def test_a_refusal_of_the_whole_call_is_raised_and_parks_nothing(status, expected):
    async with opened(lambda _request: (status, {"Retry-After": "9"}, b"")) as sender:
        with pytest.raises(expected, match=str(status)) as caught:
            await sender.deliver([delivery(1, {}), delivery(2, {}, "b")])
    if status == 429:
        assert caught.value.retry_after == 9


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": []}', b'{"items": [3]}'])
async def test_an_answer_that_is_none_of_a_bulk_request_is_tried_again(body):
    async with opened(lambda _request: (200, {}, body)) as sender:
        with pytest.raises(RetryableError, match="does not belong to a bulk"):
            await sender.deliver([delivery(1, {})])


async def test_an_answer_for_fewer_operations_than_were_sent_is_tried_again():
    body = b'{"items": [{"index": {"status": 200}}]}'
    async with opened(lambda _request: (200, {}, body)) as sender:
        with pytest.raises(RetryableError, match="does not belong to a bulk"):
            await sender.deliver([delivery(1, {}), delivery(2, {}, "b")])


async def test_user_and_password_are_sent_and_not_shown():
    seen = []

    def answer(request):
        seen.append(request.headers.get("authorization"))
        return SearchCluster().answer(request)

    async with opened(answer, auth=("ann", "pw")) as sender:
        await sender.deliver([delivery(1, {})])
        assert "pw" not in repr(sender.sink)
    assert seen == ["Basic YW5uOnB3"]

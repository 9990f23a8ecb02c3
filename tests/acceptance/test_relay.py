"""Relay, one statement of its README at a time, and under traffic."""

import random
import time
from decimal import Decimal

import httpx
import pytest

from handlers.relay.entities import Follower, Order
from handlers.relay.handlers import SHAPE, CustomerOrders, app
from handlers.relay.places import Addresses, Places
from handlers.relay.receiver import HookReceiver, SearchIndex
from handlers.relay.traffic import Traffic
from streamkit.sinks.webhook import signature
from streamkit.testing import trial
from streamkit.testing.recording import recording
from tests.seeds import seeds


def an_order(order_id="1", **fields):
    return Order(**{"customer": "ann", "order_id": order_id, "total": Decimal("9.50"), **fields})


@pytest.fixture
def relay(harness_of):
    with recording(app) as sent:
        harness = harness_of(app, shape=SHAPE)
        harness.sent = sent
        yield harness


def bodies(relay, sink):
    return [delivery.body for delivery in relay.sent[sink].once]


@pytest.mark.parametrize("seed", seeds(2))
def test_everything_arrives_everywhere_whatever_happens(seed):
    ran = trial(app, Traffic(), shape=SHAPE, seed=seed, acts=60)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_there_is_a_sink_of_each_kind():
    kinds = {type(sink) for sink in Places.at(Addresses()).by_name.values()}
    assert len(kinds) == 9
    registered = {sink.name for one in (app, *app.listeners.values()) for sink in one.sinks}
    assert registered == Places.at(Addresses()).by_name.keys()


def test_an_order_that_is_shipped_is_announced_once_and_each_follower_is_told(relay):
    relay.put(*(Follower(customer="ann", username=f"u{n}") for n in range(8)), an_order())
    relay.settle()
    relay.put(an_order(status="SHIPPED", revision=2))
    relay.settle()
    relay.put(an_order(status="SHIPPED", revision=3, total=Decimal(8)))
    relay.settle()
    assert bodies(relay, "topic") == bodies(relay, "bus") == [{"order_id": "1", "customer": "ann"}]
    assert sorted(body["to"] for body in bodies(relay, "hook")) == [f"u{n}" for n in range(8)]


def test_the_warehouse_hears_of_each_change_in_order_and_of_the_end(relay):
    for revision in range(1, 5):
        relay.put(an_order(revision=revision))
    relay.delete(an_order().item_key)
    relay.settle()
    told = [body and body.revision for body in bodies(relay, "queue")]
    assert told == [1, 2, 3, 4, None]


def test_what_expires_is_archived_as_it_was_and_what_is_deleted_is_not(relay):
    noon = relay.world.clock.time()
    relay.put(an_order("1", expires=int(noon) + 60), an_order("2", expires=int(noon) + 60))
    relay.delete(an_order("2").item_key)
    relay.advance("2m")
    assert relay.expire() == 1
    relay.settle()
    assert [body.order_id for body in bodies(relay, "archive")] == ["1"]


class Unlucky(random.Random):
    """With this, whatever may fail fails whole: what is refused has not arrived."""

    def random(self):
        return 0.75


def test_an_index_that_is_down_holds_up_nobody_else_and_catches_up_later(relay):
    relay.settle()
    relay.sent["documents"].trouble, relay.sent["documents"].rng = 1.0, Unlucky()
    orders = [an_order(str(number)) for number in range(20)]
    relay.put(*orders)
    relay.advance("10m", parks="follow_documents")
    assert bodies(relay, "documents") == []
    assert len(bodies(relay, "rows")) == len(bodies(relay, "queue")) == 20
    assert relay.get(CustomerOrders.key(customer="ann")).orders == 20
    relay.sent["documents"].trouble = 0.0
    relay.advance("30m")
    assert {body.order_id for body in bodies(relay, "documents")} == {o.order_id for o in orders}


def test_the_index_keeps_the_newer_document_whatever_comes_later():
    index = SearchIndex()
    assert index._result("a", 7, {"n": 7})["status"] == 200
    assert index._result("a", 6, {"n": 6})["status"] == 409
    assert index._result("a", 8, None)["status"] == 200
    assert index._result("a", 7, {"n": 7})["status"] == 409
    assert index.documents == {}


def test_a_post_that_is_not_signed_with_the_secret_is_refused():
    receiver = HookReceiver("secret", Unlucky())
    url, body, now = "http://hook.invalid/", b"{}", int(time.time())
    for secret, status in (("other", 401), ("secret", 204)):
        headers = {
            "X-Streamkit-Signature": signature(secret, now, body),
            "Idempotency-Key": "k",
            "X-Streamkit-Id": "i",
            "X-Streamkit-Sequence": "1",
        }
        request = httpx.Request("POST", url, content=body, headers=headers)
        assert receiver.answer(request).status_code == status
    assert [arrival.key for arrival in receiver.arrivals] == ["k"]

"""The harness tests what users test: sinks record, and what is parked fails the test."""

import pytest

from streamkit import (
    Add,
    App,
    Change,
    Completed,
    Completions,
    ConfigurationError,
    Entity,
    Inserted,
    Put,
    Send,
    Webhook,
    absent,
)
from streamkit.testing import Harness, Recorder, UnexpectedlyParked


class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{order_id}"):
    username: str
    order_id: str
    status: str = "PLACED"
    total: int = 0


class Customer(Entity, pk="CUSTOMER#{username}", sk="CUSTOMER"):
    username: str
    orders: int = 0


class Log(Entity, pk="LOG#{order_id}", sk="{kind}"):
    order_id: str
    kind: str


def an_app():
    app = App("shop", table="Shop")
    hook = app.sink(Webhook("hook", "https://shop.example/hook"))

    @app.on
    def told(change: Inserted[Order]) -> Send:
        return Send(hook, {"order": change.new.order_id})

    @app.on
    def logged(change: Change[Order]) -> Put[Log]:
        order = change.new or change.old
        if order.status == "WRONG":
            raise ValueError("a wrong status")
        return Put(Log(order_id=order.order_id, kind=type(change).__name__))

    return app


ANN = Order(username="ann", order_id="7")


def kinds(harness):
    return sorted(log.kind for log in harness.scan(Log))


def test_a_sink_is_a_recorder_and_no_address_is_called():
    app = an_app()
    (declared,) = app.sinks
    with Harness(app) as harness:
        harness.put(ANN)
        harness.settle()
        assert isinstance(harness.sent["hook"], Recorder)
        assert [delivery.body for delivery in harness.sent["hook"].once] == [{"order": "7"}]
    assert app.sinks == [declared]


def test_a_parked_change_fails_the_test_with_the_traceback_of_the_users_code(harness_of):
    harness = harness_of(an_app())
    harness.put(ANN.model_copy(update={"status": "WRONG"}))
    with pytest.raises(UnexpectedlyParked) as failed:
        harness.settle()
    text = str(failed.value)
    assert "logged parked a Order: ValueError: a wrong status at " in text
    assert 'raise ValueError("a wrong status")' in text
    assert "in logged" in text
    assert "streamkit/core" not in text
    harness.settle()  # it is told once
    assert len(harness.parked()) == 1


@pytest.mark.parametrize("parks", [True, "logged"])
def test_a_parked_change_that_a_test_expects_passes(harness_of, parks):
    harness = harness_of(an_app())
    harness.put(ANN.model_copy(update={"status": "WRONG"}))
    harness.settle(parks=parks)
    (parked,) = harness.parked()
    assert (parked.handler, parked.error) == ("logged", "ValueError")


def test_a_test_that_expects_another_parked_change_or_one_that_does_not_come_fails(harness_of):
    harness = harness_of(an_app())
    harness.put(ANN)
    for parks in (True, "logged"):
        with pytest.raises(UnexpectedlyParked, match="none is"):
            harness.settle(parks=parks)
    harness.update(ANN.item_key, status="WRONG")
    with pytest.raises(UnexpectedlyParked, match="logged parked"):
        harness.settle(parks="told")


def test_a_change_that_is_parked_while_time_passes_fails_the_test(harness_of):
    harness = harness_of(an_app())
    harness.settle()
    harness.put(ANN.model_copy(update={"status": "WRONG"}))
    with pytest.raises(UnexpectedlyParked):
        harness.advance("1h")


def test_a_parked_change_of_a_listener_fails_the_test_too(harness_of):
    app = an_app()

    @app.listener("search").on
    def indexed(change: Inserted[Order]) -> Put[Log]:
        raise RuntimeError("no index")

    harness = harness_of(app)
    harness.put(ANN)
    with pytest.raises(UnexpectedlyParked, match="indexed parked a Order: RuntimeError: no index"):
        harness.settle()
    assert [parked.handler for parked in harness.parked()] == ["indexed"]


def test_a_test_updates_deletes_and_puts_whatever_an_application_writes(harness_of):
    harness = harness_of(an_app())
    harness.put({"PK": "CUSTOMER#bob", "SK": "#ORDER#8", "total": 3, "tags": {"a", "b"}})
    harness.settle()
    bob = Order(username="bob", order_id="8", total=3)
    assert harness.get(bob.item_key) == bob
    harness.update(bob.item_key, total=4)
    harness.settle()
    assert harness.get(bob.item_key).total == 4
    harness.delete(bob.item_key)
    harness.settle()
    assert kinds(harness) == ["Inserted", "Modified", "Removed"]


def test_a_transaction_writes_all_or_nothing(harness_of):
    harness = harness_of(an_app())
    customer = Customer.key(username="ann")
    assert harness.transact(Put(ANN).only_if(absent), Add(customer, orders=1))
    assert not harness.transact(Put(ANN).only_if(absent), Add(customer, orders=1))
    harness.settle()
    assert harness.get(customer).orders == 1
    assert kinds(harness) == ["Inserted"]


def test_a_redelivery_sends_twice_with_one_key_and_writes_once(harness_of):
    app = an_app()
    runs = []

    @app.on
    def counted(change: Inserted[Order]) -> Add[Customer]:
        runs.append(change.idempotency_key)
        return Add(Customer.key(username=change.new.username), orders=1)

    harness = harness_of(app)
    harness.put(ANN)
    harness.redeliver()
    assert len(harness.sent["hook"].deliveries) == 2
    assert len(harness.sent["hook"].once) == 1
    assert len(runs) == 2
    assert len(set(runs)) == 1
    assert harness.get(Customer.key(username="ann")).orders == 1


def test_a_redelivery_repeats_what_has_effects_outside_alone(harness_of):
    app = App("shop", table="Shop")
    mails, completed = [], []

    @app.on(delivery="at_least_once")
    async def mail(change: Inserted[Order]) -> None:
        mails.append(change.idempotency_key)

    @app.on(delivery="at_least_once")
    async def careful(change: Inserted[Order], completions: Completions) -> Completed | None:
        if await completions.has(change):
            return None
        completed.append(change.idempotency_key)
        return Completed(change)

    harness = harness_of(app)
    harness.put(ANN)
    harness.redeliver()
    assert len(mails) == 2
    assert len(set(mails)) == 1


def test_a_lenient_harness_keeps_sinks_and_lets_changes_be_parked():
    app = an_app()
    (declared,) = app.sinks
    with Harness(app, lenient=True) as harness:
        harness.put(ANN.model_copy(update={"status": "WRONG"}))
        assert app.sinks == [declared]
        assert harness.sent == {}


def test_parked_changes_of_listeners_are_run_again_with_those_of_the_app(harness_of):
    app, broken = an_app(), [True]

    @app.listener("search").on
    def indexed(change: Inserted[Order]) -> Put[Log]:
        if broken:
            raise RuntimeError("no index")
        return Put(Log(order_id=change.new.order_id, kind="indexed"))

    harness = harness_of(app)
    harness.put(ANN)
    harness.settle(parks="indexed")
    broken.clear()
    harness.redrive()
    assert (harness.parked(), kinds(harness)) == ([], ["Inserted", "indexed"])


def test_items_are_those_of_the_application(harness_of):
    harness = harness_of(an_app())
    harness.put(ANN)
    harness.settle()
    assert {item["PK"]["S"] for item in harness.items()} == {"CUSTOMER#ann", "LOG#7"}


@pytest.mark.parametrize("before", [0, 2])
def test_what_writes_nothing_comes_again_too(harness_of, before):
    app, seen = App("shop", table="Shop"), []
    hook = app.sink(Webhook("hook", "https://shop.example/hook"))

    @app.on
    def told(change: Inserted[Order]) -> Send:
        return Send(hook, {"order": change.new.order_id})

    @app.listener("search").on
    def noted(change: Inserted[Customer]) -> None:
        seen.append(change.idempotency_key)

    harness = harness_of(app)
    for number in range(before):
        harness.put(Order(username="ann", order_id=f"{number}"))
        harness.settle()
    for item, again in ((ANN, harness.sent["hook"].deliveries), (Customer(username="ann"), seen)):
        known = len(again)
        harness.put(item)
        harness.redeliver()
        assert again[known] == again[known + 1]
        assert len(again) == known + 2
    assert len(harness.sent["hook"].once) == before + 1


def test_the_traceback_of_another_error_is_not_shown_for_a_parked_change(harness_of):
    app = App("shop", table="Shop")

    @app.on
    def checked(change: Inserted[Order]) -> None:
        raise {"7": ValueError, "8": KeyError}[change.new.order_id]("odd")

    harness = harness_of(app)
    harness.put(ANN)
    harness.settle(parks=True)
    harness.put(Order(username="ann", order_id="8"))
    with pytest.raises(UnexpectedlyParked) as failed:
        harness.settle()
    assert "KeyError" in str(failed.value)
    for one in harness.parked():
        assert ("Traceback" in harness._told(one)) is (one.error == "KeyError")


def test_what_never_expires_is_not_waited_for(harness_of):
    with pytest.raises(ConfigurationError, match="has no TTL attribute, so nothing expires"):
        harness_of(an_app()).expire()

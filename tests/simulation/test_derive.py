"""Derived items follow their source, and overwrite nobody else's."""

from streamkit import App, Entity
from streamkit.testing import Harness, every_crash


class Customer(Entity, pk="CUSTOMER#{username}", sk="CUSTOMER#{username}"):
    username: str
    email: str
    tags: frozenset[str] = frozenset()


class Email(Entity, pk="EMAIL#{email}", sk="EMAIL#{email}"):
    email: str
    username: str


class Tagged(Entity, pk="TAG#{tag}", sk="CUSTOMER#{username}"):
    tag: str
    username: str


def make_app():
    app = App("shop", table="Shop", entities=[Email, Tagged])

    @app.derive
    def marker(customer: Customer) -> Email:
        return Email(email=customer.email, username=customer.username)

    @app.derive
    def tagged(customer: Customer) -> list[Tagged]:
        return [Tagged(tag=tag, username=customer.username) for tag in sorted(customer.tags)]

    return app


def emails(harness):
    return {item.email: item.username for item in harness.scan(Email)}


def tags(harness):
    return {(item.tag, item.username) for item in harness.scan(Tagged)}


def live(harness):
    harness.put(Customer(username="ann", email="a@x", tags=frozenset("xy")))
    harness.put(Customer(username="bob", email="b@x"))
    harness.put(Customer(username="ann", email="a@y", tags=frozenset("yz")))
    harness.delete(Customer.key(username="bob"))
    harness.settle()
    assert emails(harness) == {"a@y": "ann"}
    assert tags(harness) == {("y", "ann"), ("z", "ann")}
    assert not harness.parked()


def test_derived_items_come_change_and_go_with_their_source(harness_of):
    live(harness_of(make_app()))


def test_no_crash_leaves_a_derived_item_behind():
    for _ in every_crash(live, lambda: Harness(make_app())):
        pass


def test_two_sources_that_want_one_place_are_a_conflict_until_it_is_free(harness_of):
    harness = harness_of(make_app())
    harness.put(Customer(username="ann", email="same@x"))
    harness.settle()
    harness.put(Customer(username="bob", email="same@x"))
    harness.settle()
    assert emails(harness) == {"same@x": "ann"}
    assert [parked.handler for parked in harness.parked()] == ["marker"]
    harness.put(Customer(username="ann", email="other@x"))
    harness.advance("1h")
    assert emails(harness) == {"other@x": "ann", "same@x": "bob"}
    assert not harness.parked()


def test_an_item_of_the_application_is_not_overwritten_and_not_deleted(harness_of):
    harness = harness_of(make_app())
    harness.put(Email(email="a@x", username="zoe"))
    harness.put(Customer(username="ann", email="a@x"))
    harness.settle()
    assert emails(harness) == {"a@x": "zoe"}
    harness.delete(Customer.key(username="ann"))
    harness.advance("1h")
    assert emails(harness) == {"a@x": "zoe"}


def test_an_equal_item_that_is_there_already_is_taken_over(harness_of):
    harness = harness_of(make_app())
    harness.put(Email(email="a@x", username="ann"))
    harness.put(Customer(username="ann", email="a@x"))
    harness.settle()
    assert not harness.parked()
    harness.delete(Customer.key(username="ann"))
    harness.settle()
    assert emails(harness) == {}


def test_a_conflict_that_is_skipped_leaves_nothing_behind(harness_of):
    app = App("shop", table="Shop")

    @app.derive(conflict="skip")
    def marker(customer: Customer) -> Email:
        return Email(email=customer.email, username=customer.username)

    harness = harness_of(app)
    harness.put(Customer(username="ann", email="a@x"), Customer(username="bob", email="b@x"))
    harness.settle()
    harness.put(Customer(username="ann", email="b@x"))
    harness.settle()
    assert emails(harness) == {"b@x": "bob"}
    harness.put(Customer(username="ann", email="c@x"))
    harness.settle()
    assert emails(harness) == {"b@x": "bob", "c@x": "ann"}
    assert not harness.parked()

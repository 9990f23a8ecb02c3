"""Derived items follow their source, and never overwrite those of another source."""

import random

import pytest

from streamkit import App, Entity, Put
from streamkit.kinds.derive import OWNER, Derivation
from streamkit.operate.permissions.place import AccountPlace
from streamkit.testing import every_crash, trial
from streamkit.testing.hosts import Functions
from tests.permissions import ACCOUNT, REGION, noted
from tests.rigs import Rig


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


def test_a_worker_killed_at_any_call_leaves_no_derived_item_behind():
    for _ in every_crash(live, lambda: Rig(make_app()), sample=6):
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


class Card(Entity, pk="CARD#{username}", sk="CARD"):
    username: str
    email: str
    tags: frozenset[str] = frozenset()


def test_a_derived_item_whose_key_stays_follows_what_its_source_says(harness_of):
    app = App("shop", table="Shop")

    @app.derive
    def card(customer: Customer) -> Card:
        return Card(username=customer.username, email=customer.email, tags=customer.tags)

    harness = harness_of(app)
    harness.put(Card(username="ann", email="a@x"))  # equal, with a set that is not stored
    for email, tags in (("a@x", ""), ("a@y", ""), ("a@y", "xy"), ("a@y", "")):
        harness.put(Customer(username="ann", email=email, tags=frozenset(tags)))
        harness.settle()
        assert harness.scan(Card) == [Card(username="ann", email=email, tags=frozenset(tags))]
    assert not harness.parked()


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


# -- sources that exchange what they imply -------------------------------------------------------


def together(harness, *items):
    """Write items in one transaction, as the application would."""
    puts = [
        {"Put": {"TableName": "Shop", "Item": item.attributes(harness.tables.table)}}
        for item in items
    ]
    harness._run(harness._aws.dynamodb.transact_write_items(TransactItems=puts))


def owning(order):
    """Customers, each with the address at its place in an order."""
    return [Customer(username=f"u{n}", email=f"{email}@x") for n, email in enumerate(order)]


def owned(order):
    return {f"{email}@x": f"u{n}" for n, email in enumerate(order)}


def rotate(harness, *orders):
    together(harness, *owning(orders[0]))
    harness.settle()
    for order in orders[1:]:
        together(harness, *owning(order))
    harness.settle()
    assert emails(harness) == owned(orders[-1])
    assert not harness.parked()


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize(
    "orders",
    [
        ("AB", "BA"),
        ("AB", "BA", "AB"),
        ("AB", "BA", "AB", "BA"),
        ("ABC", "BCA"),
        ("ABCDEFG", "BCDEFGA", "GABCDEF"),
        ("ABC", "BCD"),  # a chain: the last one moves to a place that was free
        ("ABCD", "BADC", "CDAB", "DCBA"),
    ],
    ids=" ".join,
)
def test_sources_that_exchange_what_they_imply_in_one_transaction_all_complete(
    harness_of, orders, shards
):
    rotate(harness_of(make_app(), shards=shards), *orders)


def test_a_worker_killed_at_any_call_of_an_exchange_leaves_it_not_half_done():
    for _ in every_crash(
        lambda harness: rotate(harness, "AB", "BA"), lambda: Rig(make_app(), shards=1), sample=6
    ):
        pass


def test_functions_of_different_entities_exchange_their_places_too(harness_of):
    app = make_app()

    class Shop(Entity, pk="SHOP#{name}", sk="SHOP#{name}"):
        name: str
        email: str

    @app.derive
    def of_shop(shop: Shop) -> Email:
        return Email(email=shop.email, username=shop.name)

    harness = harness_of(app)
    together(harness, Customer(username="ann", email="a@x"), Shop(name="kites", email="b@x"))
    harness.settle()
    together(harness, Customer(username="ann", email="b@x"), Shop(name="kites", email="a@x"))
    harness.settle()
    assert emails(harness) == {"a@x": "kites", "b@x": "ann"}
    assert not harness.parked()


def test_a_place_whose_source_is_gone_is_taken_at_once(harness_of):
    harness = harness_of(make_app())
    harness.put(Customer(username="bob", email="b@x"))
    harness.settle()
    harness.delete(Customer.key(username="bob"))
    harness.put(Customer(username="ann", email="b@x"))
    harness.settle()
    assert emails(harness) == {"b@x": "ann"}
    assert not harness.parked()


def test_a_place_is_taken_from_the_owner_that_was_asked_and_from_no_other(harness_of, monkeypatch):
    harness, asked = harness_of(make_app()), []
    harness.put(Customer(username="bob", email="b@x"))
    harness.settle()
    implied = Derivation._implied

    def write(item, **more):
        wire = item.attributes(harness.tables.table) | more
        harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": wire})

    async def overtaken(self, owner, key, table, **how):
        found = await implied(self, owner, key, table, **how)
        if "bob" in owner and not asked:
            asked.append(owner)
            write(Customer(username="carl", email="b@x"))
            place = Email(email="b@x", username="carl")
            write(place, **{OWNER: {"S": owner.replace("bob", "carl")}})
        return found

    monkeypatch.setattr(Derivation, "_implied", overtaken)
    harness.delete(Customer.key(username="bob"))
    harness.put(Customer(username="ann", email="b@x"))
    harness.settle()
    assert asked
    assert emails(harness) == {"b@x": "carl"}
    assert [(parked.handler, parked.error) for parked in harness.parked()] == [
        ("marker", "ConditionFailed")
    ]


def test_one_who_does_not_let_go_is_not_overwritten_in_a_circle_either(harness_of):
    harness = harness_of(make_app())
    together(harness, *owning("ABC"))
    harness.settle()
    together(harness, *owning("BC"))  # the third one keeps its own
    harness.advance("1h")
    assert emails(harness) == {"B@x": "u0", "C@x": "u2"}
    (parked,) = harness.parked()
    assert (parked.handler, parked.error) == ("marker", "ConditionFailed")
    together(harness, Customer(username="u2", email="A@x"))
    harness.advance("1h")
    assert emails(harness) == owned("BCA")
    assert not harness.parked()


def test_a_conflict_that_its_source_has_left_holds_up_nothing(harness_of):
    harness = harness_of(make_app())
    together(harness, *owning("AB"))
    harness.settle()
    harness.put(Customer(username="u0", email="B@x"))
    harness.put(Customer(username="u0", email="C@x"))
    harness.advance("1h")
    assert emails(harness) == {"C@x": "u0", "B@x": "u1"}
    assert not harness.parked()


@pytest.mark.parametrize("released", ["another release", "an item that does not fit"])
def test_of_an_owner_that_cannot_be_asked_nothing_is_taken(harness_of, released):
    harness = harness_of(make_app())
    harness.put(Email(email="b@x", username="bob"))
    owner = '["gone", "CUSTOMER#bob", "CUSTOMER#bob"]'
    if released != "another release":
        owner = '["marker", "CUSTOMER#bob", "CUSTOMER#bob"]'
        wire = Customer(username="bob", email="c@x").attributes(harness.tables.table)
        wire["email"] = {"N": "1"}
        harness._run(harness._aws.dynamodb.put_item(TableName="Shop", Item=wire))
    wire = Email(email="b@x", username="bob").attributes(harness.tables.table)
    wire["_sk_of"] = {"S": owner}
    harness._run(harness._aws.dynamodb.put_item(TableName="Shop", Item=wire))
    harness.put(Customer(username="ann", email="b@x"))
    harness.settle()
    assert emails(harness) == {"b@x": "bob"}
    assert "ConditionFailed" in {parked.error for parked in harness.parked()}


def test_who_may_run_the_app_may_look_at_who_holds_a_place(harness_of):
    with noted() as requests:
        rotate(harness_of(make_app()), "ABC", "BCA")
    assert any(r.action == "dynamodb:ConditionCheckItem" for r in requests.of("worker"))
    assert requests.refused(AccountPlace.of(account=ACCOUNT, region=REGION)) == []


class Exchanges:
    """Customers who exchange addresses in one transaction, some at a time, and come and go."""

    NAMES = "ABCDEF"

    def __init__(self):
        self.order = list(self.NAMES)

    async def open(self, writer):
        await writer.transact(*(Put(customer) for customer in owning(self.order)))

    async def act(self, writer):
        order, rng = list(self.order), random.Random(writer.rng.random())
        some = rng.sample(range(len(order)), rng.randrange(2, len(order) + 1))
        values = [order[n] for n in some]
        for n, value in zip(some, values[1:] + values[:1], strict=True):
            order[n] = value
        self.order = order
        customers = owning(order)
        await writer.transact(*(Put(customers[n]) for n in some))

    def expected(self, final):
        wanted = [Email(email=c.email, username=c.username) for c in final[Customer]]
        assert len({email.email for email in wanted}) == len(self.NAMES)
        yield final.compare(Email, wanted)


@pytest.mark.parametrize("host", [None, Functions])
@pytest.mark.parametrize("seed", range(3))
def test_exchanges_under_trouble_end_as_the_sources_are_on_workers_and_functions(seed, host):
    hosted = {} if host is None else {"host": host}
    ran = trial(make_app(), Exchanges(), seed=seed, acts=25, **hosted)
    assert all(comparison.holds for comparison in ran.comparisons)

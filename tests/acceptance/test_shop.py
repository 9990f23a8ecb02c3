"""The shop: what its handlers keep is right under any traffic and trouble; each promise once."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from handlers.shop.entities import Customer, CustomerEmail, Order, OrderItem, Status
from handlers.shop.handlers import (
    SHAPE,
    CustomerOrders,
    OrdersOfHour,
    RevenueOfDay,
    app,
)
from handlers.shop.traffic import Traffic
from streamkit.kinds.preflight import findings
from streamkit.testing import recording, trial
from streamkit.testing.loop import EPOCH
from tests.seeds import seeds

NOW = datetime.fromtimestamp(EPOCH, UTC)


@pytest.mark.parametrize("seed", seeds(4))
def test_the_table_is_what_its_history_says(seed):
    ran = trial(app, Traffic(customers=12), shape=SHAPE, seed=seed, acts=200)
    assert all(comparison.compared for comparison in ran.comparisons)
    assert ran.met["crash"]
    assert ran.met["split"]
    assert ran.met["roll"]


@pytest.fixture
def sent():
    with recording(app) as sent:
        yield sent


@pytest.fixture
def shop(harness_of, sent):
    return harness_of(app, shape=SHAPE)


def an_order(number="1", *, at=NOW, status=Status.PLACED, **fields):
    return Order(username="ann", order_id=number, status=status, created_at=at, **fields)


def an_item(number, price, quantity=1, order="1"):
    price = Decimal(price)
    return OrderItem(order_id=order, item_id=number, username="ann", price=price, quantity=quantity)


def ann(email="ann@example.com", username="ann"):
    return Customer(username=username, name="Ann", email=email)


def test_the_app_fits_its_table_without_a_finding(shop):
    assert findings(app, shop.tables) == []


def test_an_order_comes_to_what_its_items_cost(shop):
    shop.put(an_order(), an_item("a", "2.50", 2), an_item("b", "1.00"))
    shop.settle()
    order = shop.get(an_order().item_key)
    assert (order.total, order.items) == (Decimal("6.00"), 2)
    shop.delete(an_item("a", "2.50").item_key)
    shop.settle()
    assert shop.get(an_order().item_key).total == Decimal("1.00")


def test_the_items_of_a_deleted_order_leave_no_fragment_of_it(shop):
    shop.put(an_item("a", "2.50"))
    shop.settle()
    assert shop.get(an_order().item_key) is None
    assert shop.scan(Order) == []


def test_a_changed_status_moves_an_order_and_its_total(shop):
    shop.put(an_order(), an_order("2"), an_item("a", "5"), an_item("b", "7", order="2"))
    shop.settle()
    order = shop.get(an_order().item_key)
    shop.put(order.model_copy(update={"status": Status.PAID}))
    shop.settle()
    found = {group.status: (group.orders, group.revenue) for group in shop.scan(CustomerOrders)}
    assert found == {Status.PLACED: (1, Decimal(7)), Status.PAID: (1, Decimal(5))}


def test_a_status_without_orders_is_not_there(shop):
    shop.put(an_order())
    shop.settle()
    shop.delete(an_order().item_key)
    shop.settle()
    assert shop.scan(CustomerOrders) == []


def test_a_cancelled_order_is_no_revenue(shop):
    shop.put(an_order(), an_order("2"), an_item("a", "5"), an_item("b", "7", order="2"))
    shop.settle()
    order = shop.get(an_order("2").item_key)
    shop.put(order.model_copy(update={"status": Status.CANCELLED}))
    shop.settle()
    (day,) = shop.scan(RevenueOfDay)
    assert (day.orders, day.revenue) == (1, Decimal(5))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Midnight in Berlin is 23:00 UTC in winter, and 22:00 in summer.
        (datetime(2027, 1, 14, 22, 59, tzinfo=UTC), datetime(2027, 1, 14, 23, 0, tzinfo=UTC)),
        (datetime(2026, 7, 14, 21, 59, tzinfo=UTC), datetime(2026, 7, 14, 22, 0, tzinfo=UTC)),
    ],
    ids=["winter", "summer"],
)
def test_a_day_begins_when_it_does_in_the_shops_time_zone(shop, before, after):
    shop.put(an_order("1", at=before), an_order("2", at=after))
    shop.settle()
    days = sorted(group.day.day for group in shop.scan(RevenueOfDay))
    assert days == [14, 15]


def test_the_revenue_of_some_days_is_one_query(shop):
    days = [NOW - timedelta(days=number) for number in range(4)]
    shop.put(*(an_order(str(n), at=day) for n, day in enumerate(days)))
    shop.settle()
    some = RevenueOfDay.query(year=NOW.year).between(days[2].date(), days[1].date())
    assert [day.day for day in shop.query(some)] == [days[2].date(), days[1].date()]


def test_the_hours_of_a_week_ago_are_swept_away(shop):
    shop.put(an_order(at=NOW - timedelta(days=6, hours=20)))
    shop.settle()
    (hour,) = shop.scan(OrdersOfHour)
    assert hour.orders == 1
    shop.advance("5h")
    assert shop.expire() == 1
    shop.settle()
    assert shop.scan(OrdersOfHour) == []


def test_a_shipped_order_is_told_once(shop, sent):
    shop.put(an_order(status=Status.PAID))
    shop.settle()
    for status in (Status.SHIPPED, Status.DELIVERED):
        shop.put(an_order(status=status))
    shop.settle()
    (delivery,) = sent["notices"].deliveries
    assert delivery.body == {"order_id": "1", "username": "ann"}


def test_an_email_address_follows_its_customer(shop):
    shop.put(ann(), ann("bob@example.com", "bob"))
    shop.put(ann("new@example.com"))
    shop.delete(Customer.key(username="bob"))
    shop.settle()
    assert shop.scan(CustomerEmail) == [CustomerEmail(email="new@example.com", username="ann")]


def test_a_second_customer_with_an_email_is_parked_and_has_it_once_it_is_free(shop):
    shop.put(ann())
    shop.settle()
    shop.put(ann(username="bob"))
    shop.advance("1m", parks="email_marker")
    (marker,) = shop.scan(CustomerEmail)
    assert marker.username == "ann"
    assert [parked.handler for parked in shop.parked()] == ["email_marker"]
    shop.put(ann("other@example.com"))
    shop.advance("1h")
    shop.redrive()
    shop.settle()
    found = {marker.email: marker.username for marker in shop.scan(CustomerEmail)}
    assert found == {"ann@example.com": "bob", "other@example.com": "ann"}
    assert shop.parked() == []


def test_an_order_and_its_items_are_one_query(shop):
    shop.put(an_order(), an_item("a", "1"), an_item("b", "2"), an_item("c", "3", order="2"))
    items = shop.query(OrderItem.query(index=OrderItem.by_order, order_id="1"))
    assert [item.item_id for item in items] == ["a", "b"]
    orders = shop.query(Order.query(index=Order.by_order, order_id="1"))
    assert [order.order_id for order in orders] == ["1"]


def test_a_customers_orders_come_newest_first(shop):
    shop.put(ann(), an_order("1"), an_order("2"))
    shop.settle()
    newest_first = shop.query(Order.query(username="ann").reverse())
    assert [order.order_id for order in newest_first] == ["2", "1"]

"""What follows from what in the shop: totals, counts and revenue, unique e-mails, notifications."""

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

from handlers.shop.entities import (
    CartItem,
    Customer,
    CustomerAddress,
    CustomerEmail,
    Order,
    OrderItem,
    Status,
)
from streamkit import (
    Aggregate,
    App,
    Count,
    EpochSeconds,
    Key,
    Modified,
    Send,
    Sns,
    Sum,
    TableShape,
    Until,
    became,
    bucket,
)

ZONE = "Europe/Berlin"
"""Where the shop's days begin."""
HOURS_KEPT = timedelta(days=7)

app = App(
    "shop",
    table="Shop",
    entities=[Customer, CustomerEmail, CustomerAddress, CartItem, Order, OrderItem],
)

SHAPE = TableShape(ttl="expires")

notices = app.sink(
    Sns("notices", os.environ.get("SHOP_TOPIC", "arn:aws:sns:eu-central-1:000000000000:shipped"))
)


@app.derive
def email_marker(customer: Customer) -> CustomerEmail:
    """Take the customer's e-mail address; who comes second is parked until it is free."""
    return CustomerEmail(email=customer.email, username=customer.username)


@app.aggregate
class OrderTotals(Aggregate[OrderItem], onto=Order, missing="skip"):
    """What an order comes to, on the order itself; what is left of a deleted one adds nothing."""

    total: Annotated[Decimal, Sum(lambda item: item.amount)] = Decimal(0)
    items: Annotated[int, Count()] = 0


@app.aggregate
class CustomerOrders(
    Aggregate[Order], pk="CUSTOMERORDERS#{username}", sk="STATUS#{status}", remove_empty=True
):
    """A customer's orders and what they come to, by status; a status without any is not there."""

    username: str
    status: Status
    orders: Annotated[int, Count()] = 0
    revenue: Annotated[Decimal, Sum("total")] = Decimal(0)


def counts(order: Order) -> bool:
    """Return whether an order is revenue."""
    return order.status is not Status.CANCELLED


@app.aggregate
class RevenueOfDay(Aggregate[Order], pk="REVENUE#{year}", sk="DAY#{day:%Y-%m-%d}", spread=4):
    """Orders and revenue of a day, of which every order of today writes the same group."""

    year: int
    day: date
    orders: Annotated[int, Count(when=counts)] = 0
    revenue: Annotated[Decimal, Sum("total", when=counts)] = Decimal(0)

    @classmethod
    def group(cls, order: Order) -> Key["RevenueOfDay"]:
        """Count by the day it is in the shop's time zone."""
        day = bucket(order.created_at, "day", tz=ZONE).date()
        return cls.key(year=day.year, day=day)


@app.aggregate
class OrdersOfHour(Aggregate[Order], pk="HOURS#{hour:%Y-%m-%d}", sk="HOUR#{hour:%H}"):
    """How many orders were placed in an hour of UTC; kept for a week."""

    hour: datetime
    orders: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("hour", keep=HOURS_KEPT)] = None

    @classmethod
    def group(cls, order: Order) -> Key["OrdersOfHour"]:
        """Count by the hour."""
        return cls.key(hour=bucket(order.created_at, "hour", tz=UTC))


@app.on(when=became("status", "SHIPPED"))
def shipped(change: Modified[Order]) -> Send:
    """Tell the customer that an order is on its way."""
    order = change.new
    return Send(notices, {"order_id": order.order_id, "username": order.username})

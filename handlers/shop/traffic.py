"""The application of the demo: customers order, and a shop ships."""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from handlers.shop.entities import Address, Customer, CustomerEmail, Order, OrderItem, Status
from handlers.shop.handlers import (
    HOURS_KEPT,
    ZONE,
    CustomerOrders,
    OrdersOfHour,
    RevenueOfDay,
)
from streamkit import Attr, Check, Delete, Put, Query, Set, present
from streamkit.testing import Comparison, Final, Writer

AFTER = {
    Status.PLACED: (Status.PAID, Status.PAID, Status.CANCELLED),
    Status.PAID: (Status.SHIPPED, Status.SHIPPED, Status.CANCELLED),
    Status.SHIPPED: (Status.DELIVERED,),
}
"""What an order may become."""

Act = Callable[[Writer], Awaitable[None]]


class Traffic:
    """Customers and the shop.

    Args:
        customers: how many there are at the beginning.
    """

    def __init__(self, *, customers: int = 60) -> None:
        self._customers = [f"user{number:03d}" for number in range(customers)]
        self._orders: list[tuple[str, str]] = []
        self._next = 0

    async def open(self, writer: Writer) -> None:
        """Write the customers."""
        for username in self._customers:
            await writer.put(self._customer(writer.rng, username))

    async def act(self, writer: Writer) -> None:
        """Do one small thing that a user does."""
        acts: dict[Act, float] = {
            self._place: 5,
            self._advance: 9,
            self._add_item: 3,
            self._change_item: 3,
            self._remove_item: 2,
            self._forget: 0.5,
            self._change_customer: 2,
            self._come: 0.5,
            self._go: 0.3,
        }
        (act,) = writer.rng.choices(list(acts), list(acts.values()))
        await act(writer)

    # -- customers -----------------------------------------------------------------------------

    async def _come(self, writer: Writer) -> None:
        username = f"new{self._number()}"
        self._customers.append(username)
        await writer.put(self._customer(writer.rng, username))

    async def _change_customer(self, writer: Writer) -> None:
        """Change the addresses, and often the e-mail address."""
        username = writer.rng.choice(self._customers)
        customer = await writer.table.get(Customer.key(username=username))
        if customer is not None:
            changed = self._customer(writer.rng, username)
            if writer.rng.random() < 0.4:
                changed = changed.model_copy(update={"email": customer.email})
            await writer.write(Put(changed).only_if(present))

    async def _go(self, writer: Writer) -> None:
        if len(self._customers) > 10:
            username = writer.rng.choice(self._customers)
            self._customers.remove(username)
            await writer.delete(Customer.key(username=username))

    def _customer(self, rng: random.Random, username: str) -> Customer:
        address = Address(street=f"Street {rng.randrange(100)}", city="Berlin", country="DE")
        email = f"{username}.{self._number()}@example.com"
        name = username.title()
        return Customer(username=username, name=name, email=email, addresses={"home": address})

    # -- orders --------------------------------------------------------------------------------

    async def _place(self, writer: Writer) -> None:
        """Place an order with its items, in one transaction."""
        rng = writer.rng
        order = Order(
            username=rng.choice(self._customers),
            order_id=f"{self._number():08d}",
            status=Status.PLACED,
            created_at=writer.now - timedelta(minutes=rng.randrange(72 * 60)),
        )
        items = [self._item(rng, order.username, order.order_id) for _ in range(rng.randint(1, 4))]
        await writer.transact(Put(order), *map(Put, items))
        self._orders.append((order.username, order.order_id))

    async def _advance(self, writer: Writer) -> None:
        order = await self._some_order(writer)
        if order is not None and order.status in AFTER:
            after = writer.rng.choice(AFTER[order.status])
            unchanged = Attr("status").eq(order.status)
            await writer.write(Set(order.item_key, status=after).only_if(unchanged))

    async def _add_item(self, writer: Writer) -> None:
        order = await self._some_order(writer)
        if order is not None:
            item = self._item(writer.rng, order.username, order.order_id)
            await writer.transact(Put(item), Check(order.item_key, present))

    async def _change_item(self, writer: Writer) -> None:
        item = await self._some_item(writer)
        if item is not None:
            quantity = Set(item.item_key, quantity=writer.rng.randint(1, 9))
            await writer.write(quantity.only_if(present))

    async def _remove_item(self, writer: Writer) -> None:
        item = await self._some_item(writer)
        if item is not None:
            await writer.delete(item.item_key)

    async def _forget(self, writer: Writer) -> None:
        """Delete an order with its items."""
        order = await self._some_order(writer)
        if order is not None:
            items = [item async for item in writer.table.query(_items_of(order.order_id))]
            await writer.transact(*(Delete(thing.item_key) for thing in (order, *items)))

    async def _some_order(self, writer: Writer) -> Order | None:
        if not self._orders:
            return None
        username, order_id = writer.rng.choice(self._orders[-200:])
        return await writer.table.get(Order.key(username=username, order_id=order_id))

    async def _some_item(self, writer: Writer) -> OrderItem | None:
        if not self._orders:
            return None
        _, order_id = writer.rng.choice(self._orders[-200:])
        items = [item async for item in writer.table.query(_items_of(order_id))]
        return writer.rng.choice(items) if items else None

    def _item(self, rng: random.Random, username: str, order_id: str) -> OrderItem:
        price = Decimal(rng.randrange(100, 10_000)) / 100
        return OrderItem(
            order_id=order_id,
            item_id=f"{self._number():08d}",
            username=username,
            price=price,
            quantity=rng.randint(1, 5),
        )

    def _number(self) -> int:
        self._next += 1
        return self._next

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        yield final.compare(
            CustomerEmail,
            [
                CustomerEmail(email=customer.email, username=customer.username)
                for customer in final[Customer]
            ],
        )
        items: dict[str, list[Decimal]] = defaultdict(list)
        for item in final[OrderItem]:
            items[item.order_id].append(item.price * item.quantity)
        orders = [
            order.model_copy(
                update={
                    "total": sum(items[order.order_id], Decimal(0)),
                    "items": len(items[order.order_id]),
                }
            )
            for order in final[Order]
        ]
        yield final.compare(Order, orders, title="totals of orders")
        yield final.compare(CustomerOrders, _by_customer(orders))
        yield final.compare(RevenueOfDay, _by_day(orders))
        yield final.compare(OrdersOfHour, _by_hour(orders))
        told = {delivery.body["order_id"]: 1 for delivery in final.sent["notices"].once}
        yield Comparison.of("notices of what is shipped", told, dict.fromkeys(_shipped(final), 1))


def _items_of(order_id: str) -> Query[OrderItem]:
    return OrderItem.query(index=OrderItem.by_order, order_id=order_id)


def _by_customer(orders: list[Order]) -> list[CustomerOrders]:
    groups: dict[tuple[str, Status], list[Decimal]] = defaultdict(list)
    for order in orders:
        groups[order.username, order.status].append(order.total)
    return [
        CustomerOrders(username=name, status=status, orders=len(totals), revenue=sum(totals))
        for (name, status), totals in groups.items()
    ]


def _by_day(orders: list[Order]) -> list[RevenueOfDay]:
    days: dict[date, list[Decimal]] = defaultdict(list)
    for order in orders:
        if order.status != "CANCELLED":
            days[order.created_at.astimezone(ZoneInfo(ZONE)).date()].append(order.total)
    return [
        RevenueOfDay(year=day.year, day=day, orders=len(totals), revenue=sum(totals))
        for day, totals in days.items()
    ]


def _by_hour(orders: list[Order]) -> list[OrdersOfHour]:
    hours: Counter[datetime] = Counter()
    for order in orders:
        moment = order.created_at.astimezone(UTC)
        hours[moment.replace(minute=0, second=0, microsecond=0)] += 1
    return [
        OrdersOfHour(hour=hour, orders=count, expires=hour + HOURS_KEPT)
        for hour, count in hours.items()
    ]


def _shipped(final: Final) -> set[str]:
    """Return the orders that were ever shipped, as the application's writes tell."""
    return {
        str(written.effect.key.sk).removeprefix("#ORDER#")
        for written in final.log
        if isinstance(written.effect, Set) and written.effect.fields.get("status") == "SHIPPED"
    }

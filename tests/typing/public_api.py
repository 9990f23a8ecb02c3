"""The typed use of the public API: what a user writes must type-check as it stands, strictly.

Not run by pytest: mypy (strict) and pyright (strict) read it.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, assert_type

from streamkit import (
    Add,
    Aggregate,
    App,
    Attr,
    Avg,
    Change,
    Check,
    Completed,
    Completions,
    Count,
    Delete,
    Distinct,
    Effect,
    Entity,
    EpochSeconds,
    Expired,
    Index,
    Inserted,
    Key,
    Modified,
    Policy,
    Put,
    Query,
    Removed,
    Set,
    Sum,
    Table,
    Until,
    absent,
    became,
    bucket,
    changed,
    crossed,
)

app = App("typed", table="Typed", policy=Policy(attempts=2))


class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{order_id}"):
    username: str
    order_id: str
    status: str = "PLACED"
    total: Decimal = Decimal(0)
    by_id: ClassVar = Index("GSI1", pk="ORDER#{order_id}", sk="ORDER#{order_id}")


class Notice(Entity, pk="NOTICE#{order_id}", sk="NOTICE#{order_id}"):
    order_id: str
    text: str = ""


@app.aggregate
class CustomerOrders(Aggregate[Order], pk="ORDERS#{username}", sk="ORDERS#{username}"):
    username: str
    orders: Annotated[int, Count()] = 0
    revenue: Annotated[Decimal, Sum("total")] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("total")] = None

    @classmethod
    def group(cls, item: Order) -> "Key[CustomerOrders]":
        return cls.key(username=item.username)


@app.on(when=became("status", "SHIPPED") & changed("status"))
def shipped(change: Modified[Order]) -> list[Effect]:
    assert_type(change.new, Order)
    assert_type(change.old.total, Decimal)
    notice = Put(Notice(order_id=change.new.order_id)).only_if(absent, otherwise="omit")
    assert_type(notice, Put[Notice])
    return [notice, Set(change.new.item_key, status="SENT").only_if(Attr("status").eq("SHIPPED"))]


@app.on
def gone(change: Removed[Order] | Expired[Order]) -> Delete[Notice]:
    assert_type(change.new, None)
    return Delete(Notice.key(order_id=change.old.order_id))


@app.on(when=crossed("total", above=100))
async def large(change: Inserted[Order], table: Table) -> Add[CustomerOrders] | None:
    found = await table.get(CustomerOrders.key(username=change.new.username))
    assert_type(found, CustomerOrders | None)
    async for order in table.query(Order.query(username=change.new.username)):
        assert_type(order, Order)
    query = Order.query(username="ann").reverse().limit(3)
    assert_type(query, Query[Order])
    return Add(CustomerOrders.key(username="ann"), orders=1) if found else None


@app.on(name="any")
def anything(change: Change[Order]) -> Check[Order]:
    assert_type(change.new, Order | None)
    return Check(Order.key(username="a", order_id="1"), Attr("status").exists())


class Mailer:
    """Something that a handler asks for by its type."""


@app.lifespan
async def resources() -> AsyncIterator[Mailer]:
    yield Mailer()


class CustomerDays(
    Aggregate[Order], pk="DAYS#{username}", sk="{day:%Y-%m-%d}", spread=8, remove_empty=True
):
    username: str
    day: datetime
    statuses: Annotated[int, Distinct("status")] = 0
    expires: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=3))] = None

    @classmethod
    def group(cls, item: Order) -> "Key[CustomerDays]":
        day = bucket(datetime.now(UTC), "day", tz="Europe/Berlin")
        assert_type(day, datetime)
        return cls.key(username=item.username, day=day)


class OntoNotice(Aggregate[Order], onto=Notice, missing="skip", approximate=True):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, item: Order) -> Key[Notice]:
        return Notice.key(order_id=item.order_id)


class Archived(Entity, pk="ARCHIVED#{order_id}", sk="ARCHIVED"):
    order_id: str


@app.on(start="2026-10-01")
def late(change: Modified[Order]) -> None: ...


@app.on(writes=(Notice, Order), cycle="bounded", shadow="log")
def told(change: Modified[Order]) -> list[Effect]:
    assert_type(change.origin, Literal["application", "handler", "migration"])
    assert_type(change.hops, int)
    return [Set(change.new.item_key, status="TOLD").to("Archive")]


@app.on(delivery="at_least_once")
async def mailed(
    change: Inserted[Order], mailer: Mailer, completions: Completions, table: Table
) -> Completed | Put[Archived] | None:
    archived = Put(Archived(order_id=change.new.order_id)).to("Archive")
    assert_type(archived, Put[Archived])
    if await completions.has(change):
        return archived
    found = await table.of("Archive").get(Archived.key(order_id=change.new.order_id))
    assert_type(found, Archived | None)
    return Completed(change)


def a_name_that_does_not_exist_is_an_error() -> None:
    import streamkit

    print(streamkit.Tabel)  # type: ignore[attr-defined]  # pyright: ignore

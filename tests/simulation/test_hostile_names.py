"""No name in a user's table clashes with one of streamkit's: every kind of handler, on each table."""

from decimal import Decimal
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

from streamkit import (
    Add,
    Aggregate,
    App,
    Avg,
    Count,
    Distinct,
    Entity,
    Index,
    IndexShape,
    Inserted,
    Max,
    Modified,
    Query,
    Remove,
    Scan,
    Set,
    Sum,
    Table,
    TableShape,
    Top,
    became,
)
from streamkit.testing.migrations import migrate
from tests.rigs import Rig

NAMES = {
    "pk and sk": ("pk", "sk", "mirror", "source"),
    "ours": ("source", "copied", "pk", "sk"),
    "control's": ("kind", "position", "owner", "expires"),
    "dots": ("a.b", "c.d", "e.f.g", "h[0]"),
    "placeholders": ("#pk", ":pk", "#u1", ":u1"),
    "reserved words": ("key", "value", "type", "size"),
    "python's": ("None", "__class__", "model_fields", "__entity__"),
    "fields": ("shop", "order", "state", "buyer"),
}


class Order(Entity, pk="SHOP#{shop}", sk="ORDER#{order}"):
    shop: str
    order: str
    state: str = Field(default="NEW", alias="model.state")
    buyer: str = Field(alias="#buyer")
    amount: Decimal = Field(default=Decimal(1), alias=":v0")
    label: str = Field(default="", alias="item_key")
    self: str = "me"
    cls: int = 0

    by_buyer: ClassVar = Index("GSI1", pk="BUYER#{buyer}", sk="ORDER#{order}")


class Buyer(Entity, pk="BUYER#{cls}", sk="BUYER#{cls}"):
    cls: str
    name: str = Field(alias="a.name")
    seen: int = Field(default=0, alias="#n0")


class Mark(Entity, pk="MARK#{order}", sk="MARK#{shop}"):
    shop: str
    order: str
    state: str = Field(alias="x.y[0]")


class Totals(Aggregate[Order], pk="TOTAL#{shop}", sk="TOTAL"):
    shop: str
    count: Annotated[int, Count()] = Field(default=0, alias="c.count")
    amount: Annotated[Decimal, Sum("amount")] = Field(default=Decimal(0), alias="#amount")
    mean: Annotated[Decimal | None, Avg("amount")] = Field(default=None, alias=":mean")
    buyers: Annotated[int, Distinct("buyer")] = Field(default=0, alias="d[1]")


class Best(Aggregate[Order], pk="BEST#{shop}", sk="BEST"):
    shop: str
    most: Annotated[Decimal | None, Max("amount")] = Field(default=None, alias="m.most")
    three: Annotated[tuple[Decimal, ...], Top(3, by="amount")] = Field(default=(), alias="#three")

    @classmethod
    def members(cls, shop: str) -> Query[Order]:
        return Order.query(shop=shop)


class Empty(Aggregate[Order], pk="LEFT#{state}", sk="LEFT", spread=3, remove_empty=True):
    state: str = Field(alias="s.state")
    orders: Annotated[int, Count()] = Field(default=0, alias="size.")


def make_app(**options: Any) -> App:
    app = App("shop", table="Shop", entities=[Order, Buyer, Mark], **options)
    for aggregate in (Totals, Best, Empty):
        app.aggregate(aggregate)

    @app.on(when=became("state", "PAID"))
    async def paid(change: Inserted[Order] | Modified[Order], table: Table) -> Add[Buyer] | None:
        buyer = await table.get(Buyer.key(cls=change.new.buyer))
        return buyer and Add(buyer.item_key, seen=1)

    def orders_of(buyer: Buyer) -> Query[Order]:
        return Order.query(index=Order.by_buyer, buyer=buyer.cls)

    @app.mirror(copies=orders_of, source=lambda order: Buyer.key(cls=order.buyer))
    def label(buyer: Buyer, copy: Order) -> Set[Order]:
        return Set(copy.item_key, label=buyer.name)

    @app.derive
    def mark(order: Order) -> Mark | None:
        if order.state == "NEW":
            return None
        return Mark(shop=order.shop, order=order.order, state=order.state)

    def everybody(change: Inserted[Buyer]) -> list[Scan[Order] | Query[Order]]:
        return [Scan(Order), orders_of(change.new)]

    @app.fan_out(everybody, inline=0, cycle="bounded")
    def greet(change: Inserted[Buyer], to: Order) -> Set[Order]:
        return Set(to.item_key, cls=7)

    return app


@pytest.mark.parametrize(
    ("names", "typed"),
    [*((name, None) for name in NAMES), ("pk and sk", "type"), ("dots", "model.config")],
)
def test_every_kind_of_handler_works_whatever_attributes_are_called(names, typed):
    pk, sk, *index = NAMES[names]
    shape = TableShape(pk=pk, sk=sk, indexes={"GSI1": IndexShape(*index)})
    with Rig(make_app(type_attribute=typed), shape=shape) as harness:
        for order in range(4):
            shop = "ab"[order % 2]
            harness.put(Order(shop=shop, order=str(order), buyer="ann", amount=order))
        harness.settle()
        harness.put(Buyer(cls="ann", name="Ann"))
        harness.settle()
        harness.put(Order(shop="a", order="0", buyer="ann", state="PAID", amount=9, cls=7))
        harness.delete(Order.key(shop="b", order="3"))
        harness.crash()
        harness.settle()
        assert not harness.parked()
        orders = {order.order: order for order in harness.scan(Order)}
        assert {(o.label, o.cls) for o in orders.values()} == {("Ann", 7)}
        assert harness.get(Buyer.key(cls="ann")).seen == 1
        totals = {t.shop: (t.count, t.amount, t.mean, t.buyers) for t in harness.scan(Totals)}
        assert totals == {"a": (2, 11, Decimal("5.5"), 1), "b": (1, 1, 1, 1)}
        assert {(b.shop, b.most) for b in harness.scan(Best)} == {("a", 9), ("b", 1)}
        assert {(e.state, e.orders) for e in harness.scan(Empty)} == {("NEW", 2), ("PAID", 1)}
        assert [mark.order for mark in harness.scan(Mark)] == ["0"]
        _, found = harness.world.engine.call(
            "dynamodb", "Scan", {"TableName": "Shop", "IndexName": "GSI1"}
        )
        assert found["Count"] == 3, "what is in an index of the application's is its own"


# -- migrations ------------------------------------------------------------------------------------


class Old(Entity, pk="OLD#{shop}", sk="{order}", type="old"):
    shop: str
    order: str
    state: str = Field(default="NEW", alias="model.state")
    twice: str | None = Field(default=None, alias="#t")


class New(Entity, pk="NEW#{shop}", sk="{order}", type="new"):
    shop: str
    order: str
    state: str = Field(default="NEW", alias=":s[0]")


class Part(Entity, pk="PART#{shop}", sk="{order}", type="part"):
    shop: str
    order: str
    twice: str = Field(alias="t.t")


class Writer:
    """Puts items of the old shape until they move."""

    async def open(self, aws, schema, rng):
        for number in range(8):
            one = Old(shop="a", order=str(number), state="PAID", twice="x" if number % 2 else None)
            await aws.dynamodb.put_item(TableName=schema.name, Item=one.attributes(schema))

    async def act(self, aws, schema, rng, phase):
        if phase == "backfilling":
            one = Old(shop="a", order=str(rng.randrange(8)), state="PAID", twice="x")
            await aws.dynamodb.put_item(TableName=schema.name, Item=one.attributes(schema))


def changed_in_place(state: str) -> Set[Old]:
    return Set(twice=state * 2)


def to_new(old: Old) -> New:
    return New(shop=old.shop, order=old.order, state=old.state)


def part(old: Old) -> list[Part | Remove[Old]]:
    if old.twice is None:
        return []
    return [Part(shop=old.shop, order=old.order, twice=old.twice), Remove("twice")]


def beside(old: Old) -> Part:
    return Part(shop=old.shop, order=old.order, twice=old.state)


MODES = {
    "in_place": (changed_in_place, ("apply",), Old),
    "touch": (changed_in_place, ("apply",), Old),
    "rekey": (to_new, ("apply", "switch", "contract"), New),
    "split": (part, ("apply", "switch", "contract"), Old),
    "derive": (beside, ("apply",), Part),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_migration_works_whatever_attributes_are_called(mode):
    pk, sk, *_ = NAMES["dots"]
    function, steps, result = MODES[mode]
    app = App("shop", table="Shop", entities=[Old, New, Part])
    app.migration("0001", Old, mode=mode)(function)
    ran = migrate(
        app, "0001", Writer(), steps=steps, acts=4, processes=1, segments=2,
        shape=TableShape(pk=pk, sk=sk),
    )  # fmt: skip
    assert ran.states[-1].phase in ("done", "ready")
    assert [item.order for item in sorted(ran.items(result), key=lambda i: i.order)] == [
        str(number) for number in range(8)
    ]
    assert all(item.state == "PAID" for item in ran.items(result) if not isinstance(item, Part))

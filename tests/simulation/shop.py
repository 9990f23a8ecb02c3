"""A small shop with one handler of each sort, traffic for it, and what its table must hold.

`expected` recomputes everything from the log of writes alone, one item after the other.
"""

import random
from collections import Counter, defaultdict
from typing import Annotated

from streamkit import (
    Add,
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    Put,
    Set,
    Sum,
    Table,
    absent,
)
from tests.tables import streamed

TABLE = "Shop"


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str
    amount: int
    poison: bool = False
    revision: int = 0


class ShopSales(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    revenue: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["ShopSales"]:
        return cls.key(shop=sale.shop)


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT#{number}"):
    number: int
    amount: int


class Edits(Entity, pk="EDITS#{number}", sk="EDITS#{number}"):
    number: int
    edits: int = 0


UNTIMED = 86400.0
"""For a handler that must never park: a process that stands still uses up any shorter time."""


class Last(Entity, pk="LAST#{shop}", sk="LAST#{shop}"):
    shop: str
    seen: int = 0
    total: int = 0


def make_app():
    app = App("shop", table=TABLE, entities=[Receipt, Edits, Last])
    app.aggregate(ShopSales)

    @app.on
    def receipt(change: Inserted[Sale]) -> Put[Receipt]:
        sale = change.new
        return Put(Receipt(number=sale.number, amount=sale.amount)).only_if(
            absent, otherwise="omit"
        )

    @app.on
    def edits(change: Modified[Sale]) -> Add[Edits]:
        if change.new.poison:
            raise ValueError("cannot edit this one")
        return Add(Edits.key(number=change.new.number), edits=1)

    @app.on(timeout=UNTIMED)
    async def last(change: Change[Sale], table: Table) -> Set[Last]:
        sale = change.new or change.old
        before = await table.get(Last.key(shop=sale.shop))
        seen, total = (before.seen, before.total) if before else (0, 0)
        return Set(Last.key(shop=sale.shop), seen=seen + 1, total=total + sale.amount)

    return app


def create_table(world):
    status, _ = world.engine.call("dynamodb", "CreateTable", streamed(TABLE, "PK", "SK"))
    assert status == 200


class Traffic:
    """Writes sales, and remembers every change of each in order."""

    def __init__(self, world, seed):
        self.world, self.rng = world, random.Random(seed)
        self.log = defaultdict(list)
        self.sales = {}

    def write(self, count, *, poison=0.0):
        for _ in range(count):
            number = self.rng.randrange(8)
            old = self.sales.get(number)
            if old is not None and self.rng.random() < 0.3:
                self.send("DeleteItem", number, None)
                continue
            new = {
                "number": {"N": str(number)},
                "shop": {"S": self.rng.choice("ab")},
                "amount": {"N": str(self.rng.randrange(100))},
                "poison": {"BOOL": old is not None and self.rng.random() < poison},
            }
            self.send("PutItem", number, new)

    def send(self, operation, number, new):
        key = {"PK": {"S": f"SALE#{number}"}, "SK": {"S": f"SALE#{number}"}}
        body = {"Item": key | new} if new else {"Key": key}
        status, _ = self.world.engine.call("dynamodb", operation, {"TableName": TABLE, **body})
        assert status == 200
        old = self.sales.get(number)
        if old == new:
            return
        self.log[number].append((old, new))
        self.sales[number] = new
        if new is None:
            del self.sales[number]


def expected(traffic, lost=frozenset()):
    """Recompute, from the log alone, what the handlers owe.

    `lost` names changes that no handler has seen: the number of a sale, and which of its changes.
    """
    shops, revenue = Counter(), Counter()
    seen, total, edits, receipts = Counter(), Counter(), Counter(), {}
    for number, changes in kept(traffic, lost).items():
        held = False
        for old, new in changes:
            for image, sign in ((old, -1), (new, 1)):
                if image is not None:
                    shops[image["shop"]["S"]] += sign
                    revenue[image["shop"]["S"]] += sign * int(image["amount"]["N"])
            sale = new or old
            seen[sale["shop"]["S"]] += 1
            total[sale["shop"]["S"]] += int(sale["amount"]["N"])
            if old is None:
                receipts.setdefault(number, int(new["amount"]["N"]))
            elif new is not None:
                held = held or new["poison"]["BOOL"]
                edits[number] += not held
    return {
        "sales": {shop: n for shop, n in shops.items() if n},
        "revenue": {shop: n for shop, n in revenue.items() if n},
        "seen": dict(seen),
        "total": dict(total),
        "edits": {number: n for number, n in edits.items() if n},
        "receipts": receipts,
    }


def kept(traffic, lost):
    """Return the log without the changes that are lost."""
    return {
        number: [change for place, change in enumerate(changes) if (number, place) not in lost]
        for number, changes in traffic.log.items()
    }


def found(world):
    items = {item["PK"]["S"]: item for item in world.items(TABLE)}

    def numbers(prefix, attribute):
        values = {
            pk.removeprefix(prefix): int(item[attribute]["N"])
            for pk, item in items.items()
            if pk.startswith(prefix) and attribute in item
        }
        return {name: value for name, value in values.items() if value}

    return {
        "sales": numbers("SHOP#", "sales"),
        "revenue": numbers("SHOP#", "revenue"),
        "seen": numbers("LAST#", "seen"),
        "total": numbers("LAST#", "total"),
        "edits": {int(k): v for k, v in numbers("EDITS#", "edits").items()},
        "receipts": {
            int(pk.removeprefix("RECEIPT#")): int(item["amount"]["N"])
            for pk, item in items.items()
            if pk.startswith("RECEIPT#")
        },
    }

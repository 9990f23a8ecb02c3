"""What an aggregate costs, from the engine's own accounting: exact, spread and approximate."""

import random
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, Count, Key
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.pages import rows, section
from tests.simulation.bill import Bill
from tests.simulation.shop import TABLE, Sale, create_table

SHARDS, RATE, SECONDS = 4, 100, 10
WAYS = {"exact": {}, "spread=8": {"spread": 8}, "approximate": {"approximate": True}}


def app_of(keywords):
    class Sales(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES", **keywords):
        shop: str
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key["Sales"]:
            return cls.key(shop=sale.shop)

    app = App("shop", table=TABLE)
    app.aggregate(Sales)
    return app


async def units_per_1000_changes(keywords, shops):
    """Return the write units of the workers, positions included and heartbeats not."""
    world, rng = World.create(3, shards=SHARDS), random.Random(1)
    create_table(world)
    bill = Bill(world)

    async def write(worker):
        await anyio.sleep(20)
        bill.clear()
        for _ in range(RATE * SECONDS):
            number = rng.randrange(10**9)
            key = {"S": f"SALE#{number}"}
            item = {"PK": key, "SK": key, "number": {"N": str(number)}, "amount": {"N": "1"}}
            item |= {"shop": {"S": str(rng.randrange(shops))}, "poison": {"BOOL": False}}
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
            await anyio.sleep(1 / RATE)
        await anyio.sleep(5)
        bill.close()
        worker.stop()

    await world.run_worker(app_of(keywords), until_idle=False, started=write)
    counted = sum(int(i["sales"]["N"]) for i in world.items(TABLE) if "sales" in i)
    assert counted == RATE * SECONDS
    return (bill.total("write") - sum(bill.beats.values())) * 1000 / (RATE * SECONDS)


@pytest.mark.parametrize("shops", [1, 20])
def test_an_aggregate_costs_what_the_page_says(shops):
    column = {1: "one group", 20: "20 groups"}[shops]
    found = {}
    for name, keywords in WAYS.items():
        with repeatable(1):
            found[name] = run_virtually(units_per_1000_changes, keywords, shops)
        print(f"{column}, {name}: {found[name]:,.0f} write units per 1,000 changes")
        assert found[name] == pytest.approx(said(name)[column], rel=0.1)
    assert found["approximate"] < 0.8 * found["exact"]


def said(name):
    """Return the figures of one row of the page's table, by column."""
    found = rows(section("docs/aggregates.md", "Count, sum and average"))
    begin = next(number for number, row in enumerate(found) if "one group" in row)
    head, row = found[begin], next(row for row in found[begin:] if row[0] == name)
    return {key: float(cell.replace(",", "")) for key, cell in zip(head[1:], row[1:], strict=True)}

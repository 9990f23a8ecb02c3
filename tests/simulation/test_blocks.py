"""Changes that add up are committed as one; what is wrong with one of them concerns it alone."""

from typing import Annotated
from unittest import mock

import pytest

from streamkit import Aggregate, App, Count, Entity, Inserted, Modified, Put, Sum, Table
from streamkit.core.totals import Block
from tests.simulation.shop import TABLE


class Sale(Entity, pk="SALE#{number}", sk="-"):
    number: int
    shop: str
    pieces: int = 1


class Till(Aggregate[Sale], pk="TILL#{shop}", sk="-"):
    shop: str
    sales: Annotated[int, Count()] = 0
    pieces: Annotated[int, Sum("pieces")] = 0


class Visit(Entity, pk="VISIT#{number}", sk="-"):
    number: int
    shop: str


class Seen(Entity, pk="SEEN#{number}", sk="-"):
    number: int
    sales: int


def make_app():
    app = App("shop", table=TABLE, entities=[Sale, Seen])
    app.aggregate(Till)

    @app.on
    async def see(change: Inserted[Visit], table: Table) -> Put[Seen]:
        till = await table.get(Till.key(shop=change.new.shop))
        return Put(Seen(number=change.new.number, sales=till.sales if till else 0))

    return app


def sales(harness, shop):
    till = harness.get(Till.key(shop=shop))
    return None if till is None else (till.sales, till.pieces)


@pytest.fixture
def blocks():
    """The sizes of the blocks that were made."""
    sizes, close = [], Block.close

    def counted(self):
        sizes.append(len(self._records))
        close(self)

    with mock.patch.object(Block, "close", counted):
        yield sizes


def test_a_sum_that_its_item_refuses_parks_the_changes_of_that_item_alone(harness_of, blocks):
    harness = harness_of(make_app(), shards=1)
    wrong = {"PK": {"S": "TILL#b"}, "SK": {"S": "-"}, "shop": {"S": "b"}, "sales": {"S": "many"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": wrong})
    harness.put(*[Sale(number=n, shop="abc"[n % 3], pieces=n) for n in range(30)])
    harness.settle()
    assert max(blocks) == 30
    assert {parked.handler for parked in harness.parked()} == {"Till"}
    assert len(harness.parked()) == 10
    assert sales(harness, "a") == (10, sum(range(0, 30, 3)))
    assert sales(harness, "c") == (10, sum(range(2, 30, 3)))


def test_a_handler_that_reads_sees_the_block_before_it_and_nothing_behind(harness_of, blocks):
    harness = harness_of(make_app(), shards=1)
    harness.put(
        *[Sale(number=n, shop="a") for n in range(10)],
        Visit(number=1, shop="a"),
        *[Sale(number=n, shop="a") for n in range(10, 25)],
        Visit(number=2, shop="a"),
    )
    harness.settle()
    assert sorted(blocks)[-2:] == [10, 15]
    assert [harness.get(Seen.key(number=n)).sales for n in (1, 2)] == [10, 25]
    assert sales(harness, "a") == (25, 25)


def test_groups_that_fill_several_commits_are_counted_once_each(harness_of, blocks):
    harness = harness_of(make_app(), shards=1)
    harness.put(*[Sale(number=n, shop=f"shop-{n % 150}") for n in range(300)])
    harness.settle()
    assert {sales(harness, f"shop-{n}") for n in range(150)} == {(2, 2)}
    assert 30 <= max(blocks) <= 40


def test_a_change_of_a_block_queues_behind_an_earlier_one_of_its_item_that_failed(
    harness_of, blocks
):
    app, broken = App("shop", table=TABLE, entities=[Sale, Visit]), [3]
    app.aggregate(Till)

    @app.on
    def visit(change: Inserted[Sale] | Modified[Sale]) -> Put[Visit]:
        if change.new.number in broken and change.new.pieces == 1:
            raise ValueError("a sale that cannot be visited")
        return Put(Visit(number=change.new.number, shop=str(change.new.pieces)))

    harness = harness_of(app, shards=1)
    harness.put(*[Sale(number=n, shop="a") for n in range(6)])
    harness.put(*[Sale(number=n, shop="a", pieces=2) for n in range(6)])
    harness.settle()
    assert max(blocks) > 2
    assert sales(harness, "a") == (6, 12)
    first, second = sorted(harness.parked(), key=lambda parked: parked.position)
    assert first.queue == second.queue
    assert harness.get(Visit.key(number=3)) is None, "the later change has overtaken the parked one"
    assert harness.get(Visit.key(number=4)).shop == "2"
    broken.clear()
    harness.redrive()
    assert harness.get(Visit.key(number=3)).shop == "2"
    assert sales(harness, "a") == (6, 12)


def test_a_write_that_dynamodb_refuses_parks_its_change_alone(harness_of, blocks):
    app = App("shop", table=TABLE, entities=[Sale, Visit])
    app.aggregate(Till)

    @app.on
    def visit(change: Inserted[Sale]) -> Put[Visit]:
        text = "x" * (410_000 if change.new.number == 3 else 1)  # an item has at most 400 KB
        return Put(Visit(number=change.new.number, shop=text))

    harness = harness_of(app, shards=1)
    harness.put(*[Sale(number=n, shop="a") for n in range(6)])
    harness.settle()
    assert max(blocks) == 6
    assert [parked.handler for parked in harness.parked()] == ["visit"]
    assert sales(harness, "a") == (6, 6)
    there = [harness.get(Visit.key(number=n)) is not None for n in range(6)]
    assert there == [True, True, True, False, True, True]

"""Functions commit changes that add up as blocks, under the mark of each item of a block."""

import contextlib
from typing import Annotated
from unittest import mock

import pytest

from streamkit import Aggregate, App, Count, Entity, Key, Sum
from streamkit.aws_lambda.host import process_batch
from streamkit.core.dispatch import Dispatcher
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of

TABLE = "Shop"
DONE = {"batchItemFailures": []}


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str
    pieces: int = 1


class Till(Aggregate[Sale], pk="TILL#{shop}", sk="TILL#{shop}"):
    shop: str
    sales: Annotated[int, Count()] = 0
    pieces: Annotated[int, Sum("pieces")] = 0


class Shelf(Aggregate[Sale], pk="SHELF#{name}", sk="SHELF#{name}"):
    """Counts a sale on as many shelves as it has pieces."""

    name: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> list[Key["Shelf"]]:
        return [cls.key(name=f"{sale.shop}-{n}") for n in range(sale.pieces)]


class Floor(Shelf, pk="FLOOR#{name}", sk="FLOOR#{name}"):
    """Counts as many."""


def app_of(*kinds):
    app = App("shop", table=TABLE, entities=[Sale])
    for kind in kinds:
        app.aggregate(kind)
    return app


def put(world, number, shop, pieces=1):
    key = {"S": f"SALE#{number}"}
    item = {"PK": key, "SK": key, "number": {"N": str(number)}, "shop": {"S": shop}}
    item["pieces"] = {"N": str(pieces)}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200, body


def sums(world, kind):
    """What an aggregate's items have, by the last part of their key."""
    found = [item for item in world.items(TABLE) if item["PK"]["S"].startswith(f"{kind}#")]
    numbers = [
        [int(item[name]["N"]) for name in ("sales", "pieces") if name in item] for item in found
    ]
    return {item["PK"]["S"].partition("#")[2]: n for item, n in zip(found, numbers, strict=True)}


def counted(environment, before=None):
    """Count an environment's transactions; `before` runs instead ahead of one, by its number."""
    sent, transact = [], environment.aws.dynamodb.transact_write_items

    async def call(**request):
        sent.append(len(request["TransactItems"]))
        if before is not None:
            await before(len(sent))
        return await transact(**request)

    environment.aws.dynamodb.transact_write_items = call
    return sent


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


def test_a_batch_of_a_hundred_items_takes_two_transactions_that_are_nearly_full():
    async def main():
        app = app_of(Till)
        world = world_of(app)
        for number in range(100):
            put(world, number, "abcde"[number % 5])
        async with environment_of(world, app) as environment:
            sent = counted(environment)
            records = Stream(world, TABLE).traffic()
            with mock.patch.object(Dispatcher, "apart", side_effect=AssertionError("too large")):
                assert await process_batch(environment, event(records)) == DONE
            assert len(sent) == 2
            assert max(sent) > 85
            assert await process_batch(environment, event(records)) == DONE
        assert sums(world, "TILL") == {shop: [20, 20] for shop in "abcde"}
        assert len(own_items(world, TABLE, "mark")) == 100

    simulated(main)


@pytest.mark.parametrize("part", [slice(0, 3), slice(2, 12), slice(11, 20), slice(0, 20)])
def test_what_another_invocation_has_done_of_a_block_is_not_counted_again(part):
    async def main():
        app = app_of(Till)
        world = world_of(app)
        for number in range(20):  # each item changes several times
            put(world, number % 7, "ab"[number % 2], number)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as first, environment_of(world, app) as other:

            async def overtaken(number):
                assert number < 10, "the same plan is made again and again"
                if number == 1:
                    assert await process_batch(other, event(records[: part.stop])) == DONE

            await process_batch(other, event(records[: part.start]))
            counted(first, overtaken)
            assert await process_batch(first, event(records)) == DONE
        last = {number % 7: ("ab"[number % 2], number) for number in range(20)}
        expected = {
            shop: [len(pieces), sum(pieces)]
            for shop in "ab"
            if (pieces := [n for where, n in last.values() if where == shop])
        }
        assert sums(world, "TILL") == expected

    simulated(main)


@pytest.mark.parametrize("begins", [0, 1])
@pytest.mark.parametrize("dies_before", [1, 2, 3, 4])
def test_aggregates_that_do_not_fit_into_one_commit_count_a_change_once_each(dies_before, begins):
    """The mark of its item names the one that is done, and says nothing of the others in a block."""

    async def main():
        app = app_of(Shelf, Floor)
        world = world_of(app)
        for number, pieces in enumerate((5, 60, 5)):
            put(world, number, "abc"[number], pieces)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as dying, environment_of(world, app) as next_one:

            async def die(number):
                if number >= dies_before:
                    raise RuntimeError("the function is killed")

            counted(dying, die)
            with contextlib.suppress(RuntimeError):
                await process_batch(dying, event(records[begins:]))
            assert await process_batch(next_one, event(records)) == DONE
        for kind in ("SHELF", "FLOOR"):
            found = sums(world, kind)
            assert len(found) == 70
            assert set(map(tuple, found.values())) == {(1,)}

    simulated(main)

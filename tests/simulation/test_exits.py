"""`sys.exit()` in the user's code is a failure of one change or item, and ends no process."""

import random
import sys
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, Count, Inserted, Key, Put, Set
from streamkit.core.parked.queues import list_parked
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify import mending
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.mapping import EventSourceMapping, Habits
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import World
from tests.orders import Journal, Order
from tests.simulation.test_lambda import Function


def pure(app):
    @app.on(attempts=1)
    def exits(change: Inserted[Order]) -> None:
        sys.exit(3)


def asynchronous(app):
    @app.on(attempts=1)
    async def exits(change: Inserted[Order]) -> None:
        sys.exit(3)


def group(app):
    @app.aggregate
    class Exits(Aggregate[Order], pk="EXITS", sk="EXITS#{status}"):
        status: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["Exits"]:
            sys.exit(3)


@pytest.mark.parametrize("declare", [pure, asynchronous, group])
def test_a_change_whose_handler_exits_is_parked_with_its_line_and_others_go_on(harness_of, declare):
    app = App("shop", table="shop")
    declare(app)

    @app.on
    def journal(change: Inserted[Order]) -> Put[Journal]:
        return Put(Journal(number=change.new.number))

    harness = harness_of(app, lenient=True)
    harness.put(Order(number=1))
    harness.settle()
    assert harness.get(Journal.key(number=1)) is not None
    (parked,) = harness.parked()
    assert parked.error == "SystemExit"
    assert "test_exits.py:" in parked.detail


@pytest.mark.parametrize("declare", [pure, asynchronous, group])
def test_on_lambda_such_a_change_is_parked_and_the_function_lives(declare):
    app = App("shop", table="Shop")
    declare(app)

    @app.on
    def journal(change: Inserted[Order]) -> Put[Journal]:
        return Put(Journal(number=change.new.number))

    async def main():
        rng, world = random.Random(1), World.create(1, shards=1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            item = Order(number=1).attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            function = Function(world, app, rng)
            calm = Habits(repeated=0, abandoned=0)
            await EventSourceMapping(world, "Shop", function.invoke, rng, calm).run()
            store = (await survey(app, aws)).store(app, aws)
            return await list_parked(store), world.items("Shop")

    with repeatable(1):
        parked, items = run_virtually(main)
    assert [one.error for one in parked] == ["SystemExit"]
    assert [item for item in items if item["PK"] == {"S": "JOURNAL#1"}]


def leaves(status: str) -> Set[Order] | None:
    return sys.exit(3) if status == "BAD" else Set(text="seen")


def goes(order: Order) -> Journal | None:
    return Journal(number=order.number, lines=order.status)


def back(journal: Journal) -> Order:
    return sys.exit(3) if journal.lines == "BAD" else Order(number=journal.number, status="NEW")


def migrated(function, options):
    """Run a migration of three orders; return its plan's problems, its errors, and the items."""
    app = App("shop", table="Shop")
    app.migration("0001", Order, **options)(function)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            for number, status in enumerate(["NEW", "BAD", "NEW"]):
                item = Order(number=number, status=status).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            migration, rng = app.migrations["0001"], random.Random(1)
            plan = await plan_migration(app, aws, migration, clock=world.clock, rng=rng)
            await commands.begin(app, aws, migration, clock=world.clock)
            with anyio.fail_after(7200):
                await Runner(app, aws, migration, SETTINGS, world.clock, rng).run()
            errors = await mending.list_errors(app, aws, "0001")
            return plan.problems, errors, world.items("Shop")

    return run_virtually(main, seed=1)


def test_an_item_for_which_a_migrations_function_exits_is_an_error_with_its_line():
    problems, errors, items = migrated(leaves, {})
    assert [one.kind for one in problems if "SystemExit" in one.text] == ["transform"]
    assert [(one.kind, one.text) for one in errors] == [("transform", "SystemExit")]
    assert "test_exits.py:" in errors[0].place
    assert sum(item.get("text") == {"S": "seen"} for item in items) == 2


def test_an_item_for_which_a_migrations_check_exits_is_an_error_with_its_line():
    options = {"check": lambda order: sys.exit(3) if order.status == "BAD" else True}
    _, errors, _ = migrated(lambda status: Set(text="seen"), options)
    assert [(one.kind, one.text) for one in errors] == [("check", "SystemExit")]
    assert "test_exits.py:" in errors[0].place


def test_an_item_for_which_a_migrations_reverse_exits_is_an_error_with_its_line():
    problems, _, _ = migrated(goes, {"mode": "rekey", "reverse": back})
    assert [one.kind for one in problems if "SystemExit" in one.text] == ["reverse"]

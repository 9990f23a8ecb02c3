"""Touching: a pass only marks items, found by an index's keys; the stream's workers do the work."""

import random
from typing import ClassVar

import anyio
import pytest

from streamkit import App, DeclarationError, Entity, Index, Set, TableShape
from streamkit.core.table_shape import IndexShape, entities_of
from streamkit.core.tables import survey
from streamkit.migrate.items.rewrites import visible
from streamkit.migrate.operate import commands
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.work import TOUCH
from streamkit.migrate.verify.mending import list_errors
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrations import migrate
from streamkit.testing.world import World
from tests.seeds import seeds
from tests.simulation.migrating import Orders

SHAPE = TableShape(indexes={"ByState": IndexShape(project=())})


class Order(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "NEW"
    note: str | None = None
    label: str | None = None
    by_state: ClassVar = Index("ByState", pk="{status}", when=lambda order: order.status != "SENT")


class Filed(Entity, pk="FILED#{user}", sk="{order_id}"):
    user: str
    order_id: str
    status: str
    note: str | None = None


def labelled(status: str) -> Set[Order]:
    return Set(label=f"is {status}")


def filed(order: Order) -> Filed:
    return Filed(user=order.user, order_id=order.order_id, status=order.status, note=order.note)


def touching(function, **options):
    app = App("shop", table="Shop", entities=[Order, Filed])
    options = {"index": Order.by_state, **options}
    app.migration("0001", Order, mode="touch", **options)(function)
    return app


SAME, NEW = (labelled, {}), (filed, {"to": "New"})


# -- under live writes, crashes and several processes ----------------------------------------------


@pytest.mark.parametrize("seed", seeds(2))
def test_items_that_are_touched_become_items_of_another_table_under_live_writes(seed):
    others = (("New", TableShape()),)
    orders = Orders(lambda _: Order, items=40)
    ran = migrate(
        touching(filed, to="New"), "0001", orders, seed=seed, acts=20, shape=SHAPE, others=others
    )
    assert [state.phase for state in ran.states] == ["done"]
    expected = [filed(order) for order in ran.items(Order)]
    assert len(expected) > 20
    there = [visible(item) for item in ran.raw(Filed, table="New")]
    unknown = {(i["PK"]["S"], i["SK"]["S"]): i.get("unknown") for i in ran.raw(Order)}
    for one in expected:
        item = one.attributes(ran.schema)
        kept = unknown[f"C#{one.user}", f"#ORDER#{one.order_id}"]
        assert item | ({} if kept is None else {"unknown": kept}) in there
    assert len(there) == len(expected)


@pytest.mark.parametrize("seed", seeds(3))
def test_items_that_are_touched_are_rewritten_where_they_are_under_live_writes(seed):
    ran = migrate(
        touching(labelled), "0001", Orders(lambda _: Order), seed=seed, acts=20, shape=SHAPE
    )
    assert [state.phase for state in ran.states] == ["done"]
    orders = ran.items(Order)
    assert len(orders) > 20
    assert all(order.label == f"is {order.status}" for order in orders)


# -- who does what ---------------------------------------------------------------------------------


async def quiet(app, *, kept=30):
    """Migrate without other writers; return each item's writes by phase, and what there is.

    Every third order stands in no index.
    """
    world, phases = World.create(4), {}

    def saw(sighting):
        for write in sighting.writes:
            if not write.is_control and write.at >= began:
                phases.setdefault(write.keys["PK"]["S"], []).append(runner.state.phase)

    async with world.clients() as aws:
        await SHAPE.create(aws.dynamodb, "Shop", entities_of(app))
        await TableShape().create(aws.dynamodb, "New", ())
        schema = (await survey(app, aws)).table
        for number in range(kept):
            status = "SENT" if number % 3 == 0 else "NEW"
            order = Order(user=f"{number}", order_id="1", status=status)
            await aws.dynamodb.put_item(TableName="Shop", Item=order.attributes(schema))
        await anyio.sleep(900)  # what was written before is not in the capture any more
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, segments=2, clock=world.clock)
        runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
        began = world.clock.time()
        world.watchers.append(saw)
        assert (await runner.run()).phase == "done"
        verified = await verify_migration(app, aws, migration, clock=world.clock)
        assert verified.ok
        items = [i for i in world.items("Shop") if not i["PK"]["S"].startswith(CONTROL_PREFIX)]
        return phases, items


@pytest.mark.parametrize(("function", "options", "made"), [(*SAME, "C#{}"), (*NEW, "FILED#{}")])
def test_the_pass_touches_what_stands_in_the_index_and_the_stream_does_the_work(
    function, options, made
):
    phases, items = run_virtually(lambda: quiet(touching(function, **options)), seed=1)
    for item in items:
        number = item["PK"]["S"].removeprefix("C#")
        of_source, of_made = phases.get(f"C#{number}", []), phases[made.format(number)]
        if int(number) % 3 == 0:
            assert TOUCH not in item
            assert of_made == ["verifying"]  # the second pass brings what no index shows
            continue
        assert TOUCH in item
        assert of_source[0] == "scanning"
        assert set(of_made) <= {"scanning", "catching up"}
        assert len(of_source) == (2 if made == "C#{}" else 1)  # it does not go on and on
    assert len(items) == 30


def test_without_an_index_the_pass_touches_whatever_leads_to_an_item_elsewhere():
    app = touching(filed, to="New", index=None)
    phases, items = run_virtually(lambda: quiet(app), seed=1)
    assert all(TOUCH in item for item in items)
    assert all("verifying" not in each for each in phases.values())


def test_an_item_of_another_type_is_not_touched_where_the_index_shows_no_types():
    class Invoice(Entity, pk="C#{user}", sk="#ORDER#{order_id}", type="invoice"):
        user: str
        order_id: str
        status: str = "NEW"

    async def test():
        world = World.create(4)
        async with world.clients() as aws:
            await SHAPE.create(aws.dynamodb, "Shop", entities_of(app))
            schema = (await survey(app, aws)).table
            for one in (Order(user="1", order_id="1"), Invoice(user="2", order_id="1")):
                item = one.attributes(schema) | {"ByStatePK": {"S": "NEW"}}
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            await commands.begin(app, aws, migration, segments=2, clock=world.clock)
            runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
            await runner.run()
            return {i["PK"]["S"] for i in world.items("Shop") if TOUCH in i}

    app = App("shop", table="Shop", entities=[Order, Invoice], type_attribute="kind")
    app.migration("0001", Order, mode="touch", index=Order.by_state)(labelled)
    migration = app.migrations["0001"]
    assert run_virtually(test, seed=1) == {"C#1"}


# -- declarations ----------------------------------------------------------------------------------


def unfiled(filed: Filed) -> Order:
    return Order(user=filed.user, order_id=filed.order_id)


def test_what_comes_beside_an_item_in_another_table_has_no_reverse():
    with pytest.raises(DeclarationError, match="is deleted on rollback; leave reverse= out"):
        touching(filed, to="New", reverse=unfiled)


def test_what_goes_to_another_table_leaves_the_item_itself_alone():
    async def test():
        app = touching(labelled, to="New", index=None)
        world = World.create(4)
        async with world.clients() as aws:
            await SHAPE.create(aws.dynamodb, "Shop", entities_of(app))
            await TableShape().create(aws.dynamodb, "New", ())
            schema = (await survey(app, aws)).table
            item = Order(user="1", order_id="1").attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            migration = app.migrations["0001"]
            await commands.begin(app, aws, migration, segments=2, clock=world.clock)
            runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
            assert (await runner.run()).phase == "blocked"
            (error,) = await list_errors(app, aws, "0001")
            return error.text

    assert "to= leaves the item itself as it is" in run_virtually(test, seed=1)

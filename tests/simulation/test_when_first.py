"""`when=` is asked before the rest of an image is decoded: what it leaves out cannot park."""

from decimal import Decimal

import pytest

from streamkit import App, Entity, Modified, Put, became, changed
from streamkit.aws_lambda.host import process_batch
from streamkit.testing.loop import run_virtually
from tests.rigs import Rig
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    status: str
    total: Decimal = Decimal(0)


class Notice(Entity, pk="NOTICE#{order}", sk="NOTICE#{order}"):
    order: str


def make_app(when):
    app = App("shop", table="Shop", entities=[Notice])

    @app.on(when=when)
    def shipped(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(order=change.new.order))

    return app


def put(world, status, total):
    item = {name: {"S": "ORDER#1"} for name in ("PK", "SK")}
    item |= {"order": {"S": "1"}, "status": {"S": status}, "total": total}
    assert world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": item})[0] == 200


BROKEN = {"S": "much"}


@pytest.mark.parametrize(
    ("when", "parked"),
    [
        (became("status", "SHIPPED"), 0),
        (became("status", "LOST"), 1),
        (became("status", "SHIPPED") | changed("total"), 1),
        (changed("total"), 1),
    ],
)
def test_a_change_that_when_leaves_out_is_not_parked_for_what_cannot_be_read(when, parked):
    with Rig(make_app(when)) as harness:
        put(harness.world, "PLACED", {"N": "1"})
        put(harness.world, "LOST", BROKEN)
        harness.settle()
        assert [change.error for change in harness.parked()] == ["DecodeError"] * parked


@pytest.mark.parametrize(("status", "parked"), [("SHIPPED", 0), ("LOST", 1)])
def test_a_function_asks_when_first_too(status, parked):
    async def scenario():
        app = make_app(became("status", status))
        world = world_of(app)
        stream = Stream(world, "Shop")
        put(world, "PLACED", {"N": "1"})
        put(world, "LOST", BROKEN)
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(stream.records()), 60.0)
        assert len(own_items(world, "Shop", "parked")) == parked

    run_virtually(scenario)

"""What a rebuild has to leave out is reported, counted once, and not forgotten until it is mended."""

import random
from typing import Annotated

import pytest

from streamkit import Aggregate, App, Count, Entity, Key, Policy
from streamkit.fleet.generation import newest_generation
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.sweep import Sweeping
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.testing import every_crash
from tests.rigs import Rig
from tests.simulation.rebuilds import FAST, rebuild, state_of, store_of

TABLE = "Orders"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    amount: int = 1


class Shop(Entity, pk="SHOP#{shop}", sk="SHOP"):
    shop: int
    orders: int = 0


class Sales(Aggregate[Order], pk="SALES", sk="SALES"):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["Sales"]:
        return cls.key()


class OfShops(Aggregate[Order], onto=Shop, missing="park"):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key[Shop]:
        return Shop.key(shop=order.number % 2)


def make_app(*aggregates):
    app = App("orders", table=TABLE, policy=Policy(retry_limit=0, breaker=False))
    for aggregate in aggregates or (Sales,):
        app.aggregate(aggregate)
    return app


def write(harness, number, amount):
    """Write an order whose amount may be of a wrong type, as other code does."""
    key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
    item = {**key, "number": {"N": str(number)}, "amount": amount}
    call = harness.world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert call[0] == 200, call


def filled(harness, orders=9, unfit=(0, 4, 5, 8)):
    for number in range(orders):
        write(harness, number, {"S": "much"} if number in unfit else {"N": "1"})
    harness.settle()


def facts_of(harness, name="Sales"):
    found = harness._run(list_aggregates(harness.app, harness._aws))
    return next(one for one in found if one.name == name)


def verified(harness, name="Sales"):
    clock = harness.world.clock
    return harness._run(verify_aggregate(harness.app, harness._aws, name, clock=clock))


def sweep(harness):
    """Delete the ledger, as the worker that leads does after days."""
    store = store_of(harness)
    build = harness._run(newest_generation(store)).builds["Sales"]
    sweeping = Sweeping(store, harness.world.clock, random.Random(1))
    over = (*build.past, (build.number, build.segments))
    harness._run(sweeping._sweep("Sales", build, over))


def test_what_a_rebuild_leaves_out_is_said_until_another_one_leaves_out_nothing(harness_of):
    harness = harness_of(make_app(), settings=FAST)
    filled(harness)
    done = rebuild(harness)
    assert (done.done, done.left_out, done.items) == (True, 4, 9)
    assert list(done.reasons.values()) == [4]
    assert "much" not in str(done.reasons)
    facts = facts_of(harness)
    assert (facts.state, facts.left_out) == ("left out some", 4)
    found = verified(harness)
    assert (found.ok, found.unreadable, found.different) == (False, 4, ())
    sweep(harness)
    harness.advance("5m")
    assert facts_of(harness).state == "left out some"
    for number in (0, 4, 5, 8):
        write(harness, number, {"N": "1"})
    harness.settle()
    assert facts_of(harness).state == "left out some", "changes of what did not fit are parked"
    assert rebuild(harness).left_out == 0
    assert (state_of(harness), facts_of(harness).left_out) == ("live", 0)
    assert harness.get(Sales.key()).orders == 9
    assert verified(harness).ok


def test_what_is_for_items_that_are_not_there_is_left_out_where_changes_are_parked_for_it(
    harness_of,
):
    harness = harness_of(make_app(OfShops), settings=FAST)
    harness.put(Shop(shop=0))
    filled(harness, unfit=(0,))
    done = rebuild(harness, aggregate="OfShops")
    assert done.left_out == 5, "orders 1, 3, 5 and 7 of shop 1, which is not there, and order 0"
    assert facts_of(harness, "OfShops").left_out == 5


def rebuilt(harness):
    filled(harness)
    app, clock = harness.app, harness.world.clock
    harness.operate(
        lambda aws: rebuild_aggregate(app, aws, "Sales", segments=1, at_once=1, clock=clock)
    )
    assert facts_of(harness).left_out == 4
    assert harness.get(Sales.key()).orders == 5


@pytest.mark.parametrize("page", [1, 3, 300])
def test_a_scan_that_dies_at_any_call_counts_what_it_leaves_out_once(monkeypatch, page):
    monkeypatch.setattr("streamkit.kinds.aggregate.backfill.Backfill.page_items", page)

    def make():
        return Rig(make_app(), shards=1, settings=FAST)

    assert list(every_crash(rebuilt, make, part="operation", sample=3))

"""Migrations under live writers, crashes, freezes, splits and rolls; compared item by item."""

from collections import Counter
from dataclasses import replace

import anyio
import pytest

from streamkit import TableShape
from streamkit.core.matching import Matcher
from streamkit.migrate.items.rewrites import visible
from streamkit.migrate.run import in_place as migrate_in_place
from streamkit.model.conditions import absent, any_of, present
from streamkit.model.copies import COPY
from streamkit.testing.migrations import migrate
from tests.seeds import seeds
from tests.simulation.migrating import (
    Clicks,
    Customer,
    Customers,
    Email,
    NewCount,
    OldCount,
    OldOrder,
    Order,
    Orders,
    Profile,
    Stats,
    derive,
    in_place,
    old_then_new,
    rekey,
    split,
)


def phases(ran):
    return [state.phase for state in ran.states]


def counted(ran, aggregate):
    return {group.user: group.orders for group in ran.items(aggregate) if group.orders}


def per_user(ran, entity):
    return dict(Counter(order.user for order in ran.items(entity)))


def has_status_day(order):
    return order.status_day == f"{order.status}#{order.day}"


@pytest.mark.parametrize("seed", seeds(2))
def test_every_item_reaches_the_new_shape_and_no_write_is_lost(seed):
    ran = migrate(in_place(), "0001", Orders(), seed=seed, acts=20)
    assert phases(ran) == ["done"]
    assert all(has_status_day(order) for order in ran.items(Order))
    assert any("unknown" in item for item in ran.raw(Order))


def test_a_bug_that_is_planted_in_a_migration_is_found(monkeypatch):
    """An item is written although it is not any more what was read: one that was deleted is back."""
    always = [any_of(present, absent)]
    monkeypatch.setattr(migrate_in_place, "unchanged", lambda *_: always)

    def ten_seeds():  # whether a deletion comes between a read and its write is chance
        for seed in range(10):
            test_every_item_reaches_the_new_shape_and_no_write_is_lost(seed)

    with pytest.raises(AssertionError):
        ten_seeds()


def test_touch_marks_items_and_the_stream_brings_them_once():
    ran = migrate(in_place("touch"), "0001", Orders(), seed=2, acts=20)
    assert phases(ran) == ["done"]
    assert all(has_status_day(order) for order in ran.items(Order))


@pytest.mark.parametrize("mode", ["in_place", "touch"])
def test_a_rollback_runs_the_reverse_function_by_the_same_engine(mode):
    ran = migrate(in_place(mode), "0001", Orders(), seed=3, acts=20, steps=("apply", "rollback"))
    assert phases(ran) == ["done", "rolled back"]
    assert all(order.status_day is None for order in ran.items(Order))


@pytest.mark.parametrize("seed", [1])
def test_copies_equal_their_sources_and_count_nothing_until_the_switch(seed):
    orders = Orders(old_then_new(OldOrder, Order))
    ran = migrate(rekey(), "0001", orders, seed=seed, acts=20, worker=True)
    assert phases(ran) == ["ready"]
    old = {(o.user, o.order_id): o.status for o in ran.items(OldOrder)}
    assert old == {(o.user, o.order_id): o.status for o in ran.items(Order)}
    assert all(COPY in item for item in ran.raw(Order))
    assert counted(ran, OldCount) == per_user(ran, OldOrder)
    assert counted(ran, NewCount) == {}


@pytest.mark.parametrize("seed", [1])
def test_items_move_to_another_key_and_are_counted_once_all_the_while(seed):
    orders = Orders(old_then_new(OldOrder, Order))
    steps = ("apply", "switch", "contract")
    ran = migrate(rekey(), "0001", orders, seed=seed, acts=20, worker=True, steps=steps)
    assert phases(ran) == ["ready", "soaking", "done"]
    assert not ran.raw(OldOrder)
    assert not any(COPY in item for item in ran.raw())
    assert counted(ran, OldCount) == {}
    assert counted(ran, NewCount) == per_user(ran, Order)


@pytest.mark.parametrize("seed", [1])
def test_a_rollback_after_the_switch_loses_nothing_that_was_written_since(seed):
    orders = Orders(old_then_new(OldOrder, Order))
    steps = ("apply", "switch", "rollback")
    ran = migrate(rekey(), "0001", orders, seed=seed, acts=20, worker=True, steps=steps)
    assert phases(ran) == ["ready", "soaking", "rolled back"]
    assert not ran.raw(Order)
    assert not any(COPY in item for item in ran.raw())
    assert counted(ran, NewCount) == {}
    assert counted(ran, OldCount) == per_user(ran, OldOrder)


def test_a_rollback_before_the_switch_leaves_the_sources_alone():
    orders = Orders(old_then_new(OldOrder, Order))
    ran = migrate(rekey(), "0001", orders, seed=5, acts=15, steps=("apply", "rollback"))
    assert phases(ran) == ["ready", "rolled back"]
    assert ran.raw(OldOrder)
    assert not ran.raw(Order)


@pytest.mark.parametrize("end", ["contract", "rollback"])
def test_an_attribute_becomes_an_item_of_its_own_and_may_go_back(end):
    clicks = Clicks()
    ran = migrate(split(), "0001", clicks, seed=1, acts=15, steps=("apply", "switch", end))
    assert phases(ran) == ["ready", "soaking", "done" if end == "contract" else "rolled back"]
    if end == "contract":
        assert {one.name: one.click for one in ran.items(Stats)} == clicks.clicks
        assert not any("click" in item for item in ran.raw(Profile))
    else:
        assert {one.name: one.click for one in ran.items(Profile)} == clicks.clicks
        assert not ran.raw(Stats)


@pytest.mark.parametrize("worker", [False, True])
def test_markers_of_items_that_were_there_are_made_and_a_conflict_is_reported(worker):
    ran = migrate(derive(), "0001", Customers(), seed=1, acts=15, worker=worker)
    assert phases(ran) == ["blocked"]
    assert ran.states[-1].verified["errors"] == 1
    markers = {email.name: email.email for email in ran.items(Email)}
    for customer in ran.items(Customer):
        if customer.name not in ("u7", "u8"):
            assert markers.pop(customer.name) == customer.email
    assert list(markers.values()) == ["e8"]


def test_items_go_to_another_table_while_they_are_written():
    app = rekey()
    app.migrations.clear()
    app.migration("0001", OldOrder, mode="rekey", to="New")(as_it_is)
    orders = Orders(lambda _: OldOrder)
    ran = migrate(app, "0001", orders, seed=4, acts=15, others=[("New", TableShape())])
    assert phases(ran) == ["ready"]
    old = {repr(sorted(visible(item).items(), key=str)) for item in ran.raw(OldOrder)}
    new = {repr(sorted(visible(i).items(), key=str)) for i in ran.raw(OldOrder, table="New")}
    assert old == new


def as_it_is(order: OldOrder) -> OldOrder:
    return order


class Movers(Orders):
    """Orders whose application writes to the other table once they have moved there."""

    def __init__(self):
        super().__init__(old_then_new(OldOrder, OldOrder), items=12)
        self.there = self.back = None
        self.followed = False

    async def act(self, aws, schema, rng, phase):
        if phase == "soaking" and not self.followed:
            await self.delete_one(aws, schema)
        moved = phase in ("soaking", "contracting", "closing", "done")
        if phase in ("returning", "following", "unturning") and self.there is None:
            self.there = comparable((await aws.dynamodb.scan(TableName="New"))["Items"])
        if phase == "rolled back" and self.back is None:
            found = (await aws.dynamodb.scan(TableName=schema.name))["Items"]
            orders = Matcher(OldOrder, schema)
            self.back = comparable(item for item in found if orders.matches(item))
        await super().act(aws, replace(schema, name="New") if moved else schema, rng, phase)

    async def delete_one(self, aws, schema):
        """Delete an item at its new place, and wait until old code no longer finds it either."""
        item = (await aws.dynamodb.scan(TableName="New"))["Items"][0]
        key = {name: item[name] for name in schema.key_attributes}
        await aws.dynamodb.delete_item(TableName="New", Key=key)
        with anyio.move_on_after(60):
            while "Item" in await aws.dynamodb.get_item(TableName=schema.name, Key=key):
                await anyio.sleep(1)
            self.followed = True


def comparable(items):
    return sorted(repr(sorted(visible(item).items(), key=str)) for item in items)


@pytest.mark.parametrize("end", ["contract", "rollback"])
def test_items_go_to_another_table_and_come_back_with_what_was_written_there(end):
    app = rekey()
    app.migrations.clear()
    app.migration("0001", OldOrder, mode="rekey", to="New", reverse=as_it_is)(as_it_is)
    writer, others = Movers(), [("New", TableShape())]
    steps = ("apply", "switch", end)
    ran = migrate(app, "0001", writer, seed=4, acts=8, others=others, steps=steps)
    here, there = ran.raw(OldOrder), ran.raw(OldOrder, table="New")
    assert phases(ran)[-1] == ("done" if end == "contract" else "rolled back")
    assert writer.followed
    assert not [item for item in (*here, *there) if COPY in item]
    if end == "contract":
        assert not here
        assert there
    else:
        assert not there
        assert writer.back == writer.there
        assert any("note" in item for item in here)

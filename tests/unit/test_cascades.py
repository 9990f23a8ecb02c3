"""Handlers that could feed each other for ever are found before the first change."""

from typing import Annotated

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Change,
    Check,
    Count,
    Delete,
    Effect,
    Entity,
    Expired,
    Inserted,
    Key,
    Modified,
    Put,
    Removed,
    Set,
    became,
)
from streamkit.core.cascades import Cascades, cycles, same_items
from streamkit.core.handler import Handler
from streamkit.core.tables import AppTables
from streamkit.kinds.preflight import findings
from streamkit.model.schema import TableSchema

SCHEMA = TableSchema(
    "t", "pk", "sk", "S", "S", {}, stream_arn="arn/stream/1", view_type="NEW_AND_OLD_IMAGES"
)


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = ""
    customer: str = ""


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int


class OrderTotals(Entity, pk="ORDER#{order}", sk="ORDER"):
    """A view of the items of orders."""

    order: int
    total: int = 0


class Orders(Aggregate[Order], pk="ORDERS#{customer}", sk="ORDERS"):
    customer: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["Orders"]:
        return cls.key(customer=order.customer)


def registered(*functions, **said):
    app = App("test", table="t")
    for function in functions:
        app.on(**said)(function) if said else app.on(function)
    return app


def found(app):
    return cycles(app.handlers, app.cascades().same)


def names(app):
    return [[handler.name for handler in cycle.handlers] for cycle in found(app)]


def copy(change: Inserted[Order]) -> Put[Notice]: ...
def touch(change: Change[Notice]) -> list[Set[Order]] | None: ...
def restamp(change: Modified[Order]) -> Set[Order]: ...
def clean(change: Modified[Notice]) -> Delete[Order]: ...
def undo(change: Removed[Order]) -> Put[Notice]: ...
def vague(change: Change[Order]) -> list[Effect]: ...


def test_a_handler_that_feeds_itself_is_a_cycle():
    assert names(registered(restamp)) == [["restamp"]]


def test_a_cycle_of_two_is_found_once_and_its_error_names_both_with_their_lines():
    app = registered(copy, touch)
    (cycle,) = found(app)
    lines = [str(handler.declared) for handler in app.handlers]
    assert all(line.startswith(name) for line, name in zip(lines, ("copy", "touch"), strict=True))
    assert all(line in str(cycle) for line in lines)
    assert 'cycle="bounded"' in str(cycle)


def test_a_longer_cycle_is_found_beside_shorter_ones():
    class A(Entity, pk="A#{n}", sk="A"):
        n: int

    class B(Entity, pk="B#{n}", sk="B"):
        n: int

    def one(change: Change[Order]) -> Put[A]: ...
    def two(change: Change[A]) -> Put[B]: ...
    def three(change: Change[B]) -> Put[Order]: ...

    app = registered(one, two, three, restamp)
    assert sorted(map(len, names(app))) == [1, 3]


def test_a_handler_that_says_so_breaks_its_cycles():
    app = registered(copy)
    app.on(cycle="bounded")(touch)
    assert names(app) == []


def test_a_when_does_not_break_a_cycle():
    assert names(registered(restamp, when=became("status", "NEW"))) == [["restamp"]]


def test_what_cannot_follow_from_an_effect_is_no_cycle():
    def on_expiry(change: Expired[Order]) -> Put[Order]: ...
    def check(change: Change[Order]) -> Check[Order]: ...

    for fine in ((copy, clean), (undo, touch), (on_expiry,), (check,)):
        assert names(registered(*fine)) == [], fine
    assert names(registered(undo, clean)) == [["undo", "clean"]]


def test_a_handler_that_does_not_say_what_it_writes_is_left_to_the_hop_limit():
    assert names(registered(vague)) == []


def test_an_aggregate_is_part_of_a_cycle_through_its_own_items():
    def back(change: Change[Orders]) -> Add[Order]: ...

    app = App("test", table="t")
    app.aggregate(Orders)
    app.on(back)
    assert names(app) == [["Orders", "back"]]


def test_a_cycle_through_a_listener_is_found_in_both_apps():
    app = registered(copy)
    listener = app.listener("other")
    listener.on(touch)
    for one in (app, listener):
        cascades = one.cascades()
        assert cascades.leaves_origin(Notice)
        assert len(cycles(cascades.handlers, cascades.same)) == 1


def test_two_views_of_one_item_are_one_unless_a_type_tells_them_apart():
    def total(change: Modified[Order]) -> Set[OrderTotals]: ...

    app = registered(total)
    assert names(app) == [["total"]]
    app.type_attribute = "type"
    assert names(app) == []


@pytest.mark.parametrize("way", ["shadow", "converges"])
def test_handlers_that_apply_nothing_or_converge_are_left_out(way):
    (handler,) = registered(restamp).handlers
    quiet = Handler(
        handler.name,
        handler.entity,
        handler.kinds,
        handler.run,
        handler.declared,
        writes=handler.writes,
        causes=handler.causes,
        **{way: True},
    )
    same = same_items(typed=False)
    assert cycles([handler], same) != []
    assert cycles([quiet], same) == []


def test_only_what_a_handler_listens_to_is_marked_and_only_what_one_may_write_is_looked_at():
    cascades = registered(copy, restamp).cascades()
    assert cascades.leaves_origin(Order)
    assert cascades.leaves_origin(OrderTotals)
    assert not cascades.leaves_origin(Notice)
    assert cascades.fed() == {Order}
    assert registered(copy).cascades().fed() == frozenset()
    assert registered(copy, vague).cascades().fed() == {Order}
    assert Cascades().fed() == frozenset()


def test_marks_differ_between_writes_handlers_and_apps():
    one = Cascades("one")
    marks = {
        one.origin_text("h", "1".zfill(40), 0),
        one.origin_text("h", "2".zfill(40), 0),
        one.origin_text("g", "1".zfill(40), 0),
        Cascades("two").origin_text("h", "1".zfill(40), 0),
    }
    assert len(marks) == 4


def test_a_cycle_is_an_error_at_start():
    found = findings(registered(copy, touch), AppTables(SCHEMA, SCHEMA))
    (finding,) = [finding for finding in found if "for ever" in finding.text]
    assert finding.severity == "error"

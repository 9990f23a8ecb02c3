"""Handlers feed each other: a change tells which handler made it, and a loop comes to an end."""

from typing import Annotated

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Attr,
    Change,
    Count,
    Delete,
    Entity,
    Inserted,
    Key,
    Modified,
    Policy,
    Put,
    Removed,
    Set,
    absent,
)
from streamkit.model.origin import ORIGIN


class Order(Entity, pk="ORDER#{number}", sk="ORDER", extra="forbid"):
    number: int
    status: str = "NEW"
    rounds: int = 0


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE", extra="allow"):
    number: int
    text: str = ""


class Total(Entity, pk="TOTAL#{name}", sk="TOTAL"):
    name: str
    count: int = 0


class Orders(Aggregate[Order], pk="ORDERS#{status}", sk="ORDERS"):
    status: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["Orders"]:
        return cls.key(status=order.status)


class Witness:
    """What handlers saw."""

    def __init__(self):
        self.seen = []

    def note(self, change):
        item = change.new or change.old
        self.seen.append((type(item).__name__, change.origin, change.hops))


def chain(witness):
    """Order → notice → total: each wakes the next handler."""
    app = App("chain", table="Cascades")

    @app.on
    def tell(change: Inserted[Order] | Modified[Order]) -> Put[Notice]:
        witness.note(change)
        return Put(Notice(number=change.new.number, text=change.new.status))

    @app.on
    def count(change: Inserted[Notice] | Modified[Notice]) -> Add[Total]:
        witness.note(change)
        return Add(Total.key(name="notices"), count=1).only_if(
            Attr("count").not_exists(), otherwise="omit"
        )

    @app.on
    async def last(change: Change[Total]) -> None:
        witness.note(change)

    return app


def items(harness, prefix):
    return [i for i in harness.world.items("Cascades") if i["PK"]["S"].startswith(prefix)]


def test_a_change_tells_who_made_it_and_how_many_handlers_led_to_it(harness_of):
    witness = Witness()
    harness = harness_of(chain(witness))
    harness.put(Order(number=1))
    harness.settle()
    assert witness.seen == [
        ("Order", "application", 0),
        ("Notice", "handler", 1),
        ("Total", "handler", 2),
    ]
    # What the application writes afterwards is its own, whether it keeps the mark or not.
    harness.world.engine.call(
        "dynamodb",
        "UpdateItem",
        {
            "TableName": "Cascades",
            "Key": {"PK": {"S": "NOTICE#1"}, "SK": {"S": "NOTICE"}},
            "UpdateExpression": "SET #t = :t",
            "ExpressionAttributeNames": {"#t": "text"},
            "ExpressionAttributeValues": {":t": {"S": "edited"}},
        },
    )
    harness.settle()
    assert witness.seen[3:] == [("Notice", "application", 0)]
    harness.put(Notice(number=1, text="mine"))
    harness.settle()
    assert witness.seen[4:] == [("Notice", "application", 0)]


def test_only_items_that_a_handler_listens_to_carry_a_mark(harness_of):
    app = App("quiet", table="Cascades")

    @app.on
    def tell(change: Inserted[Order]) -> list[Put[Notice] | Add[Total]]:
        key = Total.key(name="orders")
        return [Put(Notice(number=change.new.number)), Add(key, count=1)]

    @app.on
    def hear(change: Inserted[Notice]) -> None: ...

    harness = harness_of(app)
    harness.put(Order(number=1))
    harness.settle()
    (notice,), (total,), (order,) = (items(harness, p) for p in ("NOTICE#", "TOTAL#", "ORDER#"))
    assert notice[ORIGIN]["S"].startswith("handler:1:")
    assert ORIGIN not in total
    assert ORIGIN not in order
    # Neither reading nor an entity that keeps unknown attributes sees it.
    assert harness.get(Notice.key(number=1)).model_extra == {}


def test_the_mark_survives_folding_and_deletions_have_none(harness_of):
    witness = Witness()
    app = App("folded", table="Cascades", entities=[Order])
    app.aggregate(Orders)

    @app.on
    def totals(change: Inserted[Order]) -> list[Put[Notice] | Set[Total]]:
        total = Set(Total.key(name="orders"), count=change.new.number)
        return [Put(Notice(number=1, text=str(change.new.number))), total]

    @app.on
    def clear(change: Removed[Order]) -> Delete[Notice]:
        return Delete(Notice.key(number=1))

    @app.on
    def hear_orders(change: Change[Orders]) -> None:
        witness.note(change)

    @app.on
    def hear_notices(change: Change[Notice]) -> None:
        witness.note(change)

    @app.on
    def hear_totals(change: Change[Total]) -> None:
        witness.note(change)

    harness = harness_of(app, shards=1)
    harness.put(*(Order(number=n) for n in range(5)))
    harness.settle()
    assert set(witness.seen) == {
        ("Orders", "handler", 1),
        ("Notice", "handler", 1),
        ("Total", "handler", 1),
    }
    assert len(witness.seen) < 15  # so that something was folded
    witness.seen.clear()
    harness.delete(Order.key(number=0))
    harness.settle()
    assert set(witness.seen) == {("Orders", "handler", 1), ("Notice", "application", 0)}


def looping(rounds=None, **policy):
    """A handler that feeds itself: for so many rounds, or for ever."""
    app = App("loop", table="Cascades", policy=Policy(**policy))

    @app.on(cycle="bounded")
    def again(change: Inserted[Order] | Modified[Order]) -> Set[Order] | None:
        if rounds is not None and change.new.rounds >= rounds:
            return None
        return Set(change.new.item_key, rounds=change.new.rounds + 1)

    return app


@pytest.mark.parametrize("on_failure", ["park", "block", "skip"])
def test_a_loop_ends_at_the_hop_limit_and_waits_for_a_person(harness_of, on_failure):
    harness = harness_of(looping(on_failure=on_failure))
    harness.put(Order(number=1))
    harness.settle()
    assert harness.get(Order.key(number=1)).rounds == 10
    (parked,) = harness.parked()
    assert (parked.error, parked.handler) == ("TooManyHops", "again")
    harness.advance("10m")
    assert harness.get(Order.key(number=1)).rounds == 10
    harness.redrive()
    assert len(harness.parked()) == 1


def derived(app, only=None):
    """A function that derives an item of its own entity: from all, or all up to one."""

    @app.derive
    def following(order: Order) -> Order | None:
        return None if order.number == only else Order(number=order.number + 1)


def undeclared(app):
    """Two handlers that feed each other, of which one does not say what it writes."""

    @app.on
    def forth(change: Inserted[Order]):
        return Put(Notice(number=change.new.number))

    @app.on
    def back(change: Inserted[Notice]) -> Put[Order]:
        return Put(Order(number=change.new.number + 1))


@pytest.mark.parametrize(
    ("declare", "names"), [(derived, "following"), (undeclared, "back, forth")]
)
def test_the_error_of_an_endless_loop_names_its_handlers_and_says_what_to_do(
    harness_of, declare, names
):
    app = App("loop", table="Cascades")
    declare(app)
    harness = harness_of(app)
    harness.put(Order(number=1))
    harness.settle()
    (parked,) = harness.parked()
    assert f"10 times in a row, among them {names}; let one of them return nothing" in parked.detail
    assert "Policy(hops_max=...)" in parked.detail


def test_what_derives_its_own_entity_may_come_to_an_end(harness_of):
    app = App("loop", table="Cascades")
    derived(app, only=4)
    harness = harness_of(app)
    harness.put(Order(number=1))
    harness.settle()
    assert len(items(harness, "ORDER#")) == 4
    assert harness.parked() == []


def test_a_loop_that_ends_by_itself_is_left_alone(harness_of):
    harness = harness_of(looping(rounds=9))
    harness.put(Order(number=1))
    harness.settle()
    assert harness.get(Order.key(number=1)).rounds == 9
    assert harness.parked() == []


def test_the_hop_limit_is_a_setting(harness_of):
    harness = harness_of(looping(hops_max=3))
    harness.put(Order(number=1))
    harness.settle()
    assert harness.get(Order.key(number=1)).rounds == 3
    assert len(harness.parked()) == 1


def test_hops_are_counted_over_parked_changes_too(harness_of):
    down = [True]
    app = App("loop", table="Cascades", policy=Policy(hops_max=3, attempts=1))

    @app.on(cycle="bounded")
    async def again(change: Inserted[Order] | Modified[Order]) -> Set[Order]:
        if down[0]:
            raise RuntimeError
        return Set(change.new.item_key, rounds=change.new.rounds + 1)

    harness = harness_of(app)
    harness.put(Order(number=1))
    harness.settle()
    down[0] = False
    harness.redrive()
    harness.settle()
    assert harness.get(Order.key(number=1)).rounds == 3
    assert [parked.error for parked in harness.parked()] == ["TooManyHops"]


def test_a_write_that_changes_nothing_ends_a_loop_as_it_would_without_own(harness_of):
    app = App("same", table="Cascades")

    @app.on(cycle="bounded")
    def normalise(change: Inserted[Order] | Modified[Order]) -> Set[Order]:
        return Set(change.new.item_key, status=change.new.status.upper())

    harness = harness_of(app)
    harness.put(Order(number=1, status="new"))
    harness.settle()
    assert harness.get(Order.key(number=1)).status == "NEW"
    assert harness.parked() == []
    (order,) = items(harness, "ORDER#")
    assert order[ORIGIN]["S"].startswith("handler:2:")


def test_an_undeclared_write_is_parked_and_heals_with_a_release_that_declares_it(harness_of):
    app = App("liar", table="Cascades")

    @app.on
    def tell(change: Inserted[Order]) -> Put[Notice]:
        return Put(Total(name="x"))

    harness = harness_of(app)
    harness.put(Order(number=1))
    harness.settle()
    (parked,) = harness.parked()
    assert parked.error == "UndeclaredWrite"
    assert "Notice" in parked.detail
    assert "Total" in parked.detail
    assert harness.scan(Total) == []
    harness.stop()
    app.handlers[0] = type(app.handlers[0])(
        **{**vars(app.handlers[0]), "writes": frozenset({Notice, Total})}
    )
    harness.advance("1m")
    harness.settle()
    assert harness.parked() == []
    assert harness.scan(Total) == [Total(name="x")]


def test_a_conditional_put_carries_the_mark(harness_of):
    witness = Witness()
    app = App("guarded", table="Cascades")

    @app.on
    def tell(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number)).only_if(absent, otherwise="omit")

    @app.on
    def hear(change: Inserted[Notice]) -> None:
        witness.note(change)

    harness = harness_of(app)
    harness.put(Order(number=1), Order(number=2))
    harness.settle()
    assert witness.seen == [("Notice", "handler", 1)] * 2

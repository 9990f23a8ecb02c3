"""An item that gets another type is removed for one entity, and inserted for the other one.

Neither entity can read both images, and each aggregate counted only what was of its own entity.
"""

from collections import Counter
from typing import Annotated

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Inserted,
    Modified,
    Policy,
    Put,
    Removed,
    Set,
    Sum,
    Table,
    absent,
)
from streamkit.testing import every_crash, trial
from streamkit.testing.crew import TrialCrew
from streamkit.testing.hosts import Functions
from tests.rigs import Rig
from tests.seeds import seeds


class Order(Entity, pk="C#{user}", sk="O#{number}", type="order"):
    user: str
    number: int
    total: int = 0


class Bill(Entity, pk="C#{user}", sk="O#{number}", type="bill"):
    user: str
    number: int
    due: int


class Orders(Aggregate[Order], pk="ORDERS#{user}", sk="ORDERS"):
    user: str
    orders: Annotated[int, Count()] = 0
    total: Annotated[int, Sum("total")] = 0


class Bills(Aggregate[Bill], pk="BILLS#{user}", sk="BILLS"):
    user: str
    bills: Annotated[int, Count()] = 0
    due: Annotated[int, Sum("due")] = 0


class Seen(Entity, pk="SEEN#{user}", sk="SEEN"):
    """What handlers were told: how often orders, and bills, came and went."""

    user: str
    orders: int = 0
    bills: int = 0


def shop(*, handlers=False, policy=None):
    known = [Order, Bill, Seen]
    app = App("shop", table="Shop", type_attribute="type", entities=known, policy=policy)
    app.aggregate(Orders)
    app.aggregate(Bills)
    if handlers:

        @app.on
        def orders(change: Inserted[Order] | Removed[Order]) -> Add[Seen]:
            one, step = (change.new, 1) if isinstance(change, Inserted) else (change.old, -1)
            return Add(Seen.key(user=one.user), orders=step)

        @app.on
        async def bills(change: Inserted[Bill] | Removed[Bill], table: Table) -> Add[Seen]:
            one, step = (change.new, 1) if isinstance(change, Inserted) else (change.old, -1)
            return Add(Seen.key(user=one.user), bills=step)

    return app


class Traffic:
    async def open(self, writer):
        pass

    async def act(self, writer):
        rng = writer.rng
        for _ in range(rng.randint(1, 4)):
            user, number, amount = rng.choice("ab"), rng.randrange(4), rng.randrange(9)
            item = rng.choice(
                [
                    Order(user=user, number=number, total=amount),
                    Bill(user=user, number=number, due=amount),
                ]
            )
            await (writer.put(item) if rng.random() < 0.8 else writer.delete(item.item_key))

    def expected(self, final):
        orders, bills = Counter(o.user for o in final[Order]), Counter(b.user for b in final[Bill])
        total, due = Counter(), Counter()
        for order in final[Order]:
            total[order.user] += order.total
        for bill in final[Bill]:
            due[bill.user] += bill.due
        wanted = [Orders(user=u, orders=n, total=total[u]) for u, n in orders.items()]
        yield final.compare(Orders, wanted)
        yield final.compare(Bills, [Bills(user=u, bills=n, due=due[u]) for u, n in bills.items()])
        for seen in final[Seen]:
            assert (seen.orders, seen.bills) == (orders[seen.user], bills[seen.user])


@pytest.mark.parametrize("seed", seeds(least=2))
@pytest.mark.parametrize("host", [TrialCrew, Functions])
@pytest.mark.parametrize("handlers", [False, True])
def test_counts_follow_items_that_change_their_type(handlers, host, seed):
    trial(shop(handlers=handlers), Traffic(), seed=seed, acts=60, host=host)


def scenario(harness):
    one, other = {"user": "a", "number": 1}, {"user": "a", "number": 2}
    harness.put(Order(**one, total=5), Order(**other, total=7))
    harness.settle()
    harness.put(Bill(**one, due=3), Order(**other, total=8), Bill(**other, due=4))
    harness.put(Order(**other, total=9))
    harness.settle()
    assert harness.scan(Orders) == [Orders(user="a", orders=1, total=9)]
    assert harness.scan(Bills) == [Bills(user="a", bills=1, due=3)]
    assert harness.scan(Seen) == [Seen(user="a", orders=1, bills=1)]
    assert harness.parked() == []


def test_a_worker_killed_at_any_call_leaves_them_right():
    assert [*every_crash(scenario, lambda: Rig(shop(handlers=True), shards=1), sample=6)]


def test_a_type_that_no_entity_has_is_as_no_item(harness_of):
    harness = harness_of(shop(handlers=True))
    harness.put(Order(user="a", number=1, total=5))
    harness.settle()
    key = {"PK": "C#a", "SK": "O#1"}
    harness.put({**key, "type": "draft"})
    harness.settle()
    assert harness.scan(Orders) == [Orders(user="a", orders=0, total=0)]
    harness.put({**key, "type": "bill", "due": 2})
    harness.settle()
    assert harness.scan(Bills) == [Bills(user="a", bills=1, due=2)]
    assert harness.scan(Seen) == [Seen(user="a", orders=0, bills=1)]


@pytest.mark.parametrize("payload", ["whole", "keys"])
def test_each_side_is_parked_and_tried_again_for_itself(payload):
    ill, told = {"on"}, []
    app = shop(policy=Policy(payload=payload, retry_limit=0))

    @app.on
    def left(change: Removed[Order]) -> Set[Seen]:
        if ill:
            raise ValueError("ill")
        told.append(("left", change.old.total, change.new))
        return Set(Seen.key(user=change.old.user), orders=1)

    @app.on
    async def came(change: Inserted[Bill], table: Table) -> Put[Seen] | None:
        if ill:
            raise ValueError("ill")
        told.append(("came", change.old, change.new.due))
        return Put(Seen(user="b")).only_if(absent, otherwise="skip")

    @app.on
    def changed(change: Modified[Bill]) -> None:
        told.append("changed")

    with Rig(app) as harness:
        harness.put(Order(user="a", number=1, total=5))
        harness.settle()
        harness.put(Bill(user="a", number=1, due=3))
        harness.settle()
        assert {(p.handler, p.entity) for p in harness.parked()} == {
            ("left", "Order"),
            ("came", "Bill"),
        }
        ill.clear()
        harness.redrive()
        assert harness.parked() == []
        assert sorted(told) == [("came", None, 3), ("left", 5, None)]


def test_an_event_has_both_sides_and_whoever_listens_to_all_changes_gets_its_own():
    app, told = shop(), []

    @app.on
    async def listen(change: Change[Order]) -> None:
        told.append((type(change).__name__, change.event_id, change.key.pk))

    @app.on
    async def too(change: Change[Bill]) -> None:
        told.append((type(change).__name__, change.event_id, change.key.pk))

    with Rig(app) as harness:
        harness.put(Order(user="a", number=1))
        harness.settle()
        told.clear()
        harness.put(Bill(user="a", number=1, due=3))
        harness.settle()
        (one, two) = sorted(told)
        assert (one[0], two[0]) == ("Inserted", "Removed")
        assert one[1:] == two[1:]

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
    Min,
    Modified,
    Policy,
    Put,
    Query,
    Removed,
    Set,
    Sum,
    Table,
    absent,
)
from streamkit.core.matching import Matcher
from streamkit.testing import every_crash, trial
from streamkit.testing.crew import TrialCrew
from streamkit.testing.hosts import Functions
from streamkit.testing.trial import Different
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


class Lowest(Aggregate[Order], pk="LOWEST#{user}", sk="LOWEST", type="lowest"):
    user: str
    orders: Annotated[int, Count()] = 0
    lowest: Annotated[int | None, Min("total")] = None

    @classmethod
    def members(cls, user):
        return Order.query(user=user)


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
    app.aggregate(Lowest)
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
        lowest = {u: min(o.total for o in final[Order] if o.user == u) for u in orders}
        wanted = [Lowest(user=u, orders=n, lowest=lowest[u]) for u, n in orders.items()]
        yield final.compare(Lowest, wanted)
        for seen in final[Seen]:
            assert (seen.orders, seen.bills) == (orders[seen.user], bills[seen.user])


@pytest.mark.parametrize("seed", seeds(least=2))
@pytest.mark.parametrize("host", [TrialCrew, Functions])
@pytest.mark.parametrize("handlers", [False, True])
def test_counts_follow_items_that_change_their_type(handlers, host, seed):
    trial(shop(handlers=handlers), Traffic(), seed=seed, acts=60, host=host)


def test_a_read_that_does_not_look_at_types_is_found(monkeypatch):
    monkeypatch.setattr(Matcher, "is_anothers", lambda matcher, item: False)
    with pytest.raises(Different, match="Lowest"):
        test_counts_follow_items_that_change_their_type(False, TrialCrew, 0)


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


# -- entities that share their keys -----------------------------------------------------------------


class Notice(Entity, pk="N#{user}", sk="N#{number}", type="notice"):
    user: str
    number: int


class User(Entity, pk="U#{user}", sk="U", type="user"):
    user: str
    name: str


class Robot(Entity, pk="U#{user}", sk="U", type="robot"):
    user: str
    name: str


class Owned(Entity, pk="OWNED#{number}", sk="{user}", type="owned"):
    user: str
    number: int
    name: str = ""


class Lent(Entity, pk="OWNED#{number}", sk="{user}", type="lent"):
    user: str
    number: int
    name: str = ""


def test_the_next_best_is_an_item_of_the_source_alone(harness_of):
    harness = harness_of(shop())
    harness.put(Order(user="a", number=1, total=1), Order(user="a", number=2, total=2))
    harness.put(Order(user="a", number=3, total=3))
    harness.settle()
    harness.put(Bill(user="a", number=1, due=1), {"PK": "C#a", "SK": "O#2", "type": "draft"})
    harness.settle()
    assert harness.scan(Lowest) == [Lowest(user="a", orders=1, lowest=3)]


def test_a_read_finds_no_item_of_another_type(harness_of):
    app, found = shop(), []

    @app.on
    async def look(change: Inserted[Seen], table: Table) -> None:
        key = Order.key(user="a", number=1)
        found.append([one async for one in table.query(Order.query(user="a"))])
        found.append([one async for one in table.scan(Order)])
        found.append([await table.get(key), (await table.batch_get([key])).get(key)])

    harness = harness_of(app)
    other = Order(user="a", number=2, total=5)
    harness.put(Bill(user="a", number=1, due=3), other, Seen(user="a"))
    harness.settle()
    assert found == [[other], [other], [None, None]]


def test_a_read_sees_the_type_that_an_earlier_change_gives(harness_of):
    app, found = shop(), {}

    @app.on
    def pay(change: Inserted[Notice]) -> Put[Bill]:
        return Put(Bill(user=change.new.user, number=change.new.number, due=1))

    @app.on
    async def look(change: Inserted[Notice], table: Table) -> None:
        for entity in (Order, Bill):
            queried = [one.number async for one in table.query(entity.query(user="a"))]
            scanned = [one.number async for one in table.scan(entity)]
            found[change.new.number, entity] = queried, sorted(scanned)

    harness = harness_of(app, shards=1)
    harness.put(Order(user="a", number=1), Order(user="a", number=2))
    harness.settle()
    harness.put(Notice(user="a", number=1), Notice(user="a", number=3))
    harness.settle()
    assert (found[3, Order], found[3, Bill]) == (([2], [2]), ([1], [1]))


def test_a_result_that_read_an_item_of_another_type_since_is_made_again(harness_of):
    app, runs = shop(), []

    @app.on
    async def notice(change: Inserted[Seen], table: Table) -> Put[Notice] | None:
        order = await table.get(Order.key(user="a", number=1))
        runs.append(order)
        if len(runs) == 1:
            item = {"PK": {"S": "C#a"}, "SK": {"S": "O#1"}, "type": {"S": "draft"}}
            item |= {"total": {"N": "5"}}
            harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": item})
        return Put(Notice(user="a", number=order.total)) if order else None

    harness = harness_of(app)
    harness.put({"PK": "C#a", "SK": "O#1", "type": "order", "total": 5})
    harness.put(Seen(user="a"))
    harness.settle()
    assert (runs[-1], harness.scan(Notice)) == (None, [])


def mirrored(*, gone="delete"):
    app = App("shop", table="Shop", type_attribute="type", entities=[User, Robot, Owned, Lent])

    @app.mirror(
        copies=lambda user: Owned.query(number=1),
        source=lambda copy: User.key(user=copy.user),
        gone=gone,
    )
    def named(user: User, copy: Owned) -> Set[Owned]:
        return Set(copy.item_key, name=user.name)

    def owners(change: Modified[User]) -> Query[Owned]:
        return Owned.query(number=1)

    @app.fan_out(owners)
    def tell(change: Modified[User], to: Owned) -> Put[Notice]:
        return Put(Notice(user=to.user, number=1))

    return app


def test_a_mirror_and_a_fan_out_leave_alone_what_shares_the_keys_of_their_copies(harness_of):
    harness = harness_of(mirrored())
    lent = Lent(user="c", number=1, name="mine")
    harness.put(User(user="a", name="ann"), Owned(user="a", number=1), lent)
    harness.settle()
    harness.put(User(user="a", name="anna"))
    harness.settle()
    assert harness.scan(Owned) == [Owned(user="a", number=1, name="anna")]
    assert harness.scan(Lent) == [lent]
    assert harness.scan(Notice) == [Notice(user="a", number=1)]


def test_a_source_of_another_type_is_gone_for_its_copies(harness_of):
    harness = harness_of(mirrored())
    harness.put(User(user="a", name="ann"), Owned(user="a", number=1))
    harness.settle()
    harness.put(Robot(user="a", name="r2"))
    harness.settle()
    assert harness.scan(Owned) == []


def test_what_shares_the_beginning_of_its_keys_alone_is_not_read(harness_of):
    class Sent(Entity, pk="P#{user}", sk="{number}#SENT"):
        user: str
        number: int

    class Held(Entity, pk="P#{user}", sk="{number}#HELD"):
        user: str
        number: int

    harness = harness_of(App("post", table="Post", entities=[Sent, Held]))
    harness.put(Sent(user="a", number=1), Held(user="a", number=2))
    assert harness.query(Sent.query(user="a")) == [Sent(user="a", number=1)]

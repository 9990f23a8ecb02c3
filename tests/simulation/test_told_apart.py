"""Entities that handlers and migrations name are known when items are told apart."""

from typing import Annotated

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Entity,
    Inserted,
    Put,
    Query,
    Scan,
    Set,
    Table,
    TableShape,
)
from streamkit.testing.migrations import migrate
from tests.rigs import Rig


class Session(Entity, pk="{token}"):
    token: str
    user: str


class Ends(Entity, pk="ENDS#{user}"):
    user: str
    sessions: int = 0


class Seen(Entity, pk="SEEN#{user}"):
    user: str
    times: int = 0


SIMPLE = TableShape(sk=None)


def test_what_a_handler_returns_is_not_taken_for_what_it_listens_to():
    app = App("sessions", table="Sessions")

    @app.on(cycle="bounded")
    def count(change: Inserted[Session]) -> Add[Ends]:
        return Add(Ends.key(user=change.new.user), sessions=1)

    with Rig(app, shape=SIMPLE) as harness:
        harness.put(*(Session(token=f"t{n}", user="ann") for n in range(3)))
        harness.settle()
        assert not harness.parked()
        assert harness.get(Ends.key(user="ann")).sessions == 3
        assert {session.token for session in harness.scan(Session)} == {"t0", "t1", "t2"}


def test_whom_a_fan_out_serves_is_not_taken_for_what_it_listens_to():
    app = App("sessions", table="Sessions")

    def everybody(change: Inserted[Session]) -> Scan[Ends]:
        return Scan(Ends)

    @app.fan_out(everybody, cycle="bounded")
    def count(change: Inserted[Session], to: Ends) -> Add[Seen]:
        return Add(Seen.key(user=to.user), times=1)

    with Rig(app, shape=SIMPLE) as harness:
        harness.put(Ends(user="ann"))
        harness.settle()
        harness.put(Session(token="t", user="ann"))
        harness.settle()
        assert not harness.parked()
        assert harness.get(Seen.key(user="ann")).times == 1


class Order(Entity, pk="C#{user}", sk="ORDER#{order}"):
    user: str
    order: str
    state: str = "NEW"


class Line(Entity, pk="C#{user}", sk="ORDER#{order}#LINE#{line}"):
    user: str
    order: str
    line: int
    state: str = "LINE"


class Orders(Aggregate[Order], pk="ORDERS#{user}", sk="ORDERS"):
    user: str
    orders: Annotated[int, Count()] = 0


def test_reads_tell_apart_what_shares_a_prefix():
    app = App("shop", table="Shop")
    app.aggregate(Orders)
    seen = []

    @app.on(name="look")
    async def look(change: Inserted[Order], table: Table) -> Put[Line]:
        order = change.new
        found = [one async for one in table.query(Order.query(user=order.user))]
        seen.append(sorted(one.order for one in found))
        return Put(Line(user=order.user, order=order.order, line=1))

    with Rig(app) as harness:
        for number in "12":
            harness.put(Order(user="ann", order=number))
            harness.settle()
        assert not harness.parked()
        assert seen == [["1"], ["1", "2"]]
        assert [order.order for order in harness.query(Order.query(user="ann"))] == ["1", "2"]
        assert len(harness.query(Line.query(user="ann", order="1"))) == 1
        assert harness.get(Orders.key(user="ann")).orders == 2


class Writer:
    async def open(self, aws, schema, rng):
        for one in (Order(user="a", order="1"), Line(user="a", order="1", line=1)):
            await aws.dynamodb.put_item(TableName=schema.name, Item=one.attributes(schema))

    async def act(self, aws, schema, rng, phase):
        pass


def test_a_migration_leaves_alone_what_its_app_or_its_own_function_names():
    def named_by_app(app):
        @app.on
        def lines(change: Inserted[Order]) -> Put[Line]:
            return Put(Line(user="z", order="z", line=1))

    def named_by_migration(_):
        pass

    for declare in (named_by_app, named_by_migration):
        app = App("shop", table="Shop", entities=[Order])
        declare(app)

        def paid(order: Order) -> Set[Order] | list[Line]:
            return Set(state="PAID")

        app.migration("0001", Order)(paid)
        ran = migrate(app, "0001", Writer(), acts=2, processes=1, segments=1)
        assert ran.states[-1].phase == "done"
        states = {item["SK"]["S"]: item["state"]["S"] for item in ran.raw()}
        assert states == {"ORDER#1": "PAID", "ORDER#1#LINE#1": "LINE"}


def test_a_fan_outs_audience_is_its_own_items_alone():
    app = App("shop", table="Shop", entities=[Line])

    def orders(change: Inserted[Orders]) -> Query[Order]:
        return Order.query(user=change.new.user)

    @app.fan_out(orders, inline=0)
    def mark(change: Inserted[Orders], to: Order) -> Set[Order]:
        return Set(to.item_key, state="SEEN")

    with Rig(app) as harness:
        harness.put(Order(user="a", order="1"), Line(user="a", order="1", line=1))
        harness.put(Orders(user="a"))
        harness.settle()
        assert not harness.parked()
        assert harness.get(Line.key(user="a", order="1", line=1)).state == "LINE"
        assert harness.get(Order.key(user="a", order="1")).state == "SEEN"

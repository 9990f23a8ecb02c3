"""Aggregates in all their forms are, in the end, what a recomputation says."""

import random
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
import pytest

from streamkit import (
    Aggregate,
    App,
    Attr,
    Avg,
    Change,
    ConfigurationError,
    Count,
    Distinct,
    Entity,
    EpochSeconds,
    Key,
    Modified,
    Set,
    Sum,
    Table,
    Until,
    bucket,
)
from streamkit.kinds.preflight import findings, require
from streamkit.model.parts import is_part
from streamkit.testing import every_crash
from tests.rigs import Rig

TABLE = "Shop"


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str
    amount: Decimal = Decimal(1)
    buyer: str | None = None


class Shop(Entity, pk="SHOP#{shop}", sk="SHOP"):
    shop: str
    name: str = ""
    sales: int = 0


class Receipt(Entity, pk="OF#{shop}", sk="SALES#{day}"):
    shop: str
    day: str


class Spread(Aggregate[Sale], pk="OF#{shop}", sk="SALES", spread=4, remove_empty=True):
    shop: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("amount")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Spread"]:
        return cls.key(shop=sale.shop)


class Buyers(Aggregate[Sale], pk="BUYERS#{shop}", sk="BUYERS", remove_empty=True):
    shop: str
    buyers: Annotated[int, Distinct("buyer")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Buyers"]:
        return cls.key(shop=sale.shop)


class OntoShop(Aggregate[Sale], onto=Shop, missing="skip"):
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key[Shop]:
        return Shop.key(shop=sale.shop)


def app_of(*aggregates, **named):
    app = App("shop", table=TABLE, entities=[Receipt, Shop], **named)
    for aggregate in aggregates:
        app.aggregate(aggregate)
    return app


def rows(harness, beginning):
    """Return the table's items whose partition key begins so."""
    items = harness.world.items(TABLE)
    return [item for item in items if item["PK"]["S"].startswith(beginning)]


def spread_of(sales):
    """Recompute `Spread` of each shop that has a sale."""
    shops = defaultdict(list)
    for sale in sales:
        shops[sale.shop].append(sale)
    return {
        shop: Spread(
            shop=shop,
            sales=len(found),
            total=sum(sale.amount for sale in found),
            mean=sum(sale.amount for sale in found) / len(found),
            buyers=len({sale.buyer for sale in found if sale.buyer is not None}),
        )
        for shop, found in shops.items()
    }


class Traffic:
    """Writes, edits, moves and removes sales; `sales` are those that are there."""

    def __init__(self, harness, seed, numbers=12, shops="abc"):
        self.harness, self.rng = harness, random.Random(seed)
        self.numbers, self.shops = numbers, shops
        self.sales = {}

    def write(self, count):
        for _ in range(count):
            number = self.rng.randrange(self.numbers)
            if number in self.sales and self.rng.random() < 0.4:
                self.harness.delete(self.sales.pop(number).item_key)
                continue
            sale = Sale(
                number=number,
                shop=self.rng.choice(self.shops),
                amount=Decimal(self.rng.randrange(-300, 300)) / 100,
                buyer=self.rng.choice(["ann", "bob", "eve", None]),
            )
            self.sales[number] = sale
            self.harness.put(sale)

    def clear(self):
        for sale in self.sales.values():
            self.harness.delete(sale.item_key)
        self.sales.clear()


# -- spread ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_spread_group_is_read_as_one_through_splits_and_crashes(harness_of, seed):
    harness = harness_of(app_of(Spread), shards=4, seed=seed)
    traffic = Traffic(harness, seed)
    for step in range(4):
        traffic.write(40)
        if step == 1:
            harness.split()
        if step == 2:
            harness.crash(at=30, moment="after")
        harness.settle()
    expected = spread_of(traffic.sales.values())
    assert {shop: harness.get(Spread.key(shop=shop)) for shop in expected} == expected
    assert {item.shop: item for item in harness.scan(Spread)} == expected
    assert {harness.query(Spread.query(shop=shop))[0].shop for shop in expected} == set(expected)
    assert any(is_part(item["SK"]["S"]) for item in rows(harness, "OF#")), "it was spread"
    traffic.clear()
    harness.settle()
    assert rows(harness, "OF#") == []


@pytest.mark.parametrize("attribute", [None, "type"])
def test_the_parts_of_a_group_are_no_rows_of_its_neighbours(harness_of, attribute):
    harness = harness_of(app_of(Spread, type_attribute=attribute), shards=8)
    harness.put(*(Receipt(shop="a", day=day) for day in ("1", "_2", "~3")))
    harness.put(*(Sale(number=n, shop="a") for n in range(40)))
    harness.settle()
    assert sum(is_part(item["SK"]["S"]) for item in rows(harness, "OF#")) > 1
    days = ["1", "_2", "~3"]
    assert [receipt.day for receipt in harness.query(Receipt.query(shop="a"))] == days
    assert [receipt.day for receipt in harness.query(Receipt.query(shop="a").limit(2))] == days[:2]
    assert sorted(receipt.day for receipt in harness.scan(Receipt)) == days
    assert harness.query(Spread.query(shop="a")) == [harness.get(Spread.key(shop="a"))]
    assert [item.sales for item in harness.scan(Spread)] == [40]


class Cities(Aggregate[Sale], pk="CITIES", sk="{shop}", spread=3):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Cities"]:
        return cls.key(shop=sale.shop)


def test_queries_of_spread_groups_keep_their_order_bounds_and_limits(harness_of):
    shops = ["a", "a!", "a#", "a#_sk", "ab", "b"]
    harness = harness_of(app_of(Cities), shards=8)
    harness.put(*(Sale(number=n, shop=shops[n % 6]) for n in range(60)))
    harness.settle()
    assert len(rows(harness, "CITIES")) > 6

    def found(query):
        items = harness.query(query)
        assert {item.sales for item in items} == {10}
        return [item.shop for item in items]

    query = Cities.query()
    assert found(query) == shops
    assert found(query.reverse()) == shops[::-1]
    assert found(query.limit(2)) == shops[:2]
    assert found(query.reverse().limit(2)) == ["b", "ab"]
    assert found(query.between("a#", "ab")) == ["a#", "a#_sk", "ab"]
    assert found(Cities.query(shop="a")) == ["a"]


SIMPLE = {
    "TableName": TABLE,
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}


class Session(Entity, pk="{token}"):
    token: str
    user: str


class Active(Aggregate[Session], pk="ACTIVE#{user}", spread=4, remove_empty=True):
    user: str
    active: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, session: Session) -> Key["Active"]:
        return cls.key(user=session.user)


def test_a_group_is_spread_over_keys_of_a_table_without_sort_key(harness_of):
    app = App("sessions", table=TABLE)
    app.aggregate(Active)
    harness = harness_of(app, create_table=SIMPLE, shards=8)
    sessions = [Session(token=f"t{n}", user="ann") for n in range(40)]
    harness.put(*sessions)
    harness.settle()
    assert len(rows(harness, "ACTIVE#")) > 1
    whole = Active(user="ann", active=40)
    assert harness.get(Active.key(user="ann")) == whole
    assert harness.query(Active.query(user="ann")) == harness.scan(Active) == [whole]
    for session in sessions:
        harness.delete(session.item_key)
    harness.settle()
    assert rows(harness, "ACTIVE#") == []
    assert harness.get(Active.key(user="ann")) is None


def test_nothing_may_listen_to_the_parts_of_a_group(harness_of):
    app = app_of(Spread)

    @app.on
    def listen(change: Modified[Spread]) -> None:
        pass

    with pytest.raises(ConfigurationError, match="shows only one part"):
        require(findings(app, harness_of(app).tables))


def test_keys_without_a_string_at_their_end_cannot_be_spread(harness_of):
    app = app_of(Spread)
    tables = harness_of(app).tables
    numbers = msgspec.structs.replace(tables, table=replace(tables.table, sk_type="N"))
    texts = [finding.text for finding in findings(app, numbers)]
    assert any("needs a string at the end of the key" in text for text in texts)
    assert not any("needs a string" in finding.text for finding in findings(app, tables))


def test_a_handler_that_reads_a_spread_group_sees_it_whole(harness_of):
    app = app_of(Spread)

    @app.on(cycle="bounded")
    async def note(change: Modified[Shop], table: Table) -> Set[Shop] | None:
        found = await table.get(Spread.key(shop=change.new.shop))
        if found is None or change.new.sales == found.sales:
            return None
        return Set(change.new.item_key, sales=found.sales)

    harness = harness_of(app, shards=8)
    harness.put(*(Sale(number=n, shop="a") for n in range(40)))
    harness.put(Shop(shop="a"))
    harness.settle()
    harness.put(Shop(shop="a", name="A"))
    harness.settle()
    assert harness.get(Shop.key(shop="a")).sales == 40


# -- emptied groups --------------------------------------------------------------------------------


def test_a_group_that_empties_and_fills_again_meanwhile_loses_nothing(harness_of):
    harness = harness_of(app_of(Buyers, Spread), shards=4)
    traffic = Traffic(harness, 1, numbers=3, shops="ab")
    for _ in range(25):
        traffic.write(6)
        harness.advance("1s")
    harness.settle()
    expected = spread_of(traffic.sales.values())
    assert {item.shop: item for item in harness.scan(Spread)} == expected
    buyers = {shop: item.buyers for shop, item in expected.items()}
    assert {i.shop: i.buyers for i in harness.scan(Buyers)} == {
        shop: count for shop, count in buyers.items() if count
    }


def emptied(harness_of, **update):
    """Empty a group; its item is updated between the look at it and its deletion."""
    harness = harness_of(app_of(Buyers), shards=1)
    sale = Sale(number=1, shop="a", buyer="ann")
    harness.put(sale)
    harness.settle()
    harness.delete(sale.item_key)
    key = Buyers.key(shop="a").wire(harness.tables.table)
    updated = []

    def between(call):
        if call.operation == "BatchGetItem" and "BUYERS#a" in str(call.payload) and not updated:
            updated.append(call)
            request = {"TableName": TABLE, "Key": key, **update}
            harness.world.engine.call("dynamodb", "UpdateItem", request)

    harness.world.engine.observers.append(between)
    harness.settle()
    assert updated
    return harness.get(Buyers.key(shop="a"))


def test_a_contribution_that_comes_before_the_deletion_is_not_lost(harness_of):
    """Another worker's commit, between the read of an empty group and its deletion."""
    group = emptied(
        harness_of,
        UpdateExpression="SET #last = :last ADD #x :one",
        ExpressionAttributeNames={"#last": "_sk_last", "#x": "buyers~other"},
        ExpressionAttributeValues={":last": {"S": "other"}, ":one": {"N": "1"}},
    )
    assert group.buyers == 1


def test_a_group_whose_last_contributions_cancel_out_is_deleted(harness_of):
    """One commit adds and takes away, between the read of an empty group and its deletion."""
    group = emptied(
        harness_of,
        UpdateExpression="SET #last = :last, #by = :by",
        ExpressionAttributeNames={"#last": "_sk_last", "#by": "_sk_by"},
        ExpressionAttributeValues={
            ":last": {"S": "other"},
            ":by": {"S": "handler:1:another write:Buyers"},
        },
    )
    assert group is None


# -- onto the application's items ------------------------------------------------------------------


def test_contributions_to_a_hot_item_fold_into_one_write(harness_of):
    harness = harness_of(app_of(OntoShop), shards=1)
    harness.put(Shop(shop="a", name="A"))
    harness.settle()
    commits = []
    harness.world.engine.observers.append(
        lambda call: commits.append(call) if "SHOP#a" in str(call.payload) else None
    )
    harness.put(*(Sale(number=n, shop="a") for n in range(200)))
    harness.settle()
    assert len([call for call in commits if call.operation == "TransactWriteItems"]) <= 3
    assert harness.get(Shop.key(shop="a")) == Shop(shop="a", name="A", sales=200)


def test_what_is_skipped_for_a_missing_item_takes_nothing_along(harness_of):
    """Many results share one action, and each of them also contributes elsewhere."""

    class Both(Aggregate[Sale], onto=Shop, missing="skip"):
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> list[Key[Shop]]:
            return [Shop.key(shop=sale.shop), Shop.key(shop="all")]

    harness = harness_of(app_of(Both, Buyers), shards=1)
    harness.put(Shop(shop="all"), Shop(shop="there"))
    sales = [Sale(number=n, shop=("there", "gone")[n % 2], buyer=str(n)) for n in range(60)]
    harness.put(*sales)
    harness.settle()
    assert harness.get(Shop.key(shop="gone")) is None
    assert harness.get(Shop.key(shop="there")).sales == 30
    assert harness.get(Shop.key(shop="all")).sales == 60
    assert harness.get(Buyers.key(shop="gone")).buyers == 30
    assert harness.parked() == []


def test_what_is_parked_for_a_missing_item_is_counted_once_it_is_there(harness_of):
    class Parking(Aggregate[Sale], onto=Shop, missing="park"):
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key[Shop]:
            return Shop.key(shop=sale.shop)

    harness = harness_of(app_of(Parking), shards=1)
    harness.put(Shop(shop="there"))
    harness.put(*(Sale(number=n, shop=("there", "late")[n % 2]) for n in range(20)))
    harness.settle()
    assert harness.get(Shop.key(shop="there")).sales == 10
    assert len(harness.parked()) == 10
    harness.put(Shop(shop="late"))
    harness.redrive()
    assert harness.get(Shop.key(shop="late")).sales == 10
    assert harness.parked() == []


def test_a_guarded_effect_of_another_handler_on_a_hot_item_keeps_its_own_outcome(harness_of):
    app = app_of(OntoShop)

    @app.on
    def rename(change: Change[Sale]) -> Set[Shop] | None:
        if change.new is None or change.new.buyer is None:
            return None
        key = Shop.key(shop=change.new.shop)
        return Set(key, name=change.new.buyer).only_if(Attr("name").eq("A"), otherwise="skip")

    harness = harness_of(app, shards=1)
    harness.put(Shop(shop="a", name="A"))
    harness.put(*(Sale(number=n, shop="a", buyer=f"b{n}") for n in range(20)))
    harness.settle()
    assert harness.get(Shop.key(shop="a")).sales == 20
    assert harness.get(Shop.key(shop="a")).name.startswith("b")
    assert harness.parked() == []


def scenario(harness):
    """A few sales of two shops, of which one is not there; then all of that one are removed."""
    harness.put(Shop(shop="a"))
    sales = [Sale(number=n, shop="ab"[n % 2], buyer="ann") for n in range(4)]
    harness.put(*sales)
    harness.advance("60s")
    for sale in (sales[0], sales[1], sales[3]):
        harness.delete(sale.item_key)
    harness.settle()
    assert {item.shop: item for item in harness.scan(Spread)} == spread_of([sales[2]])
    assert rows(harness, "OF#b") == []
    assert harness.get(Shop.key(shop="a")).sales == 1
    assert harness.get(Shop.key(shop="b")) is None
    assert harness.parked() == []


def test_a_worker_killed_at_any_call_leaves_spread_emptied_and_skipped_groups_right():
    for _ in every_crash(scenario, lambda: Rig(app_of(Spread, OntoShop), shards=2), sample=6):
        pass


# -- time buckets ----------------------------------------------------------------------------------


class Log(Entity, pk="LOG#{number}", sk="LOG#{number}"):
    number: int
    at: datetime


class PerHour(Aggregate[Log], pk="HOURS", sk="{hour}"):
    hour: datetime
    logs: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("hour", keep=timedelta(hours=3))] = None

    @classmethod
    def group(cls, log: Log) -> Key["PerHour"]:
        return cls.key(hour=bucket(log.at, "hour", tz="Europe/Berlin"))


class PerDay(Aggregate[Log], pk="DAYS", sk="{day:%Y-%m-%d}"):
    day: datetime
    logs: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, log: Log) -> Key["PerDay"]:
        return cls.key(day=bucket(log.at, "day", tz="Europe/Berlin"))


def test_hours_and_days_are_right_across_midnight_and_a_change_of_clocks(harness_of):
    app = App("logs", table=TABLE)
    app.aggregate(PerHour)
    app.aggregate(PerDay)
    harness = harness_of(app)
    begin = datetime(2030, 10, 26, 21, tzinfo=UTC)  # 23:00 in Berlin; clocks change at 1:00 UTC
    logs = [Log(number=n, at=begin + timedelta(minutes=20 * n)) for n in range(3 * 26 + 1)]
    harness.put(*logs)
    harness.settle()
    hours = {item.hour.astimezone(UTC): item.logs for item in harness.scan(PerHour)}
    assert hours == {begin + timedelta(hours=n): 3 if n < 26 else 1 for n in range(27)}
    days = {f"{item.day:%m-%d}": item.logs for item in harness.scan(PerDay)}
    assert days == {"10-26": 3, "10-27": 3 * 25, "10-28": 1}


def test_an_expired_bucket_is_gone_for_good_also_for_late_changes(harness_of):
    app = App("logs", table=TABLE)
    app.aggregate(PerHour)
    harness = harness_of(app)
    ttl = {"Enabled": True, "AttributeName": "expires"}
    harness.world.engine.call(
        "dynamodb", "UpdateTimeToLive", {"TableName": TABLE, "TimeToLiveSpecification": ttl}
    )
    now = datetime.fromtimestamp(harness.world.clock.time(), UTC)
    logs = [Log(number=n, at=now) for n in range(3)]
    harness.put(*logs)
    harness.settle()
    assert [item.logs for item in harness.scan(PerHour)] == [3]
    harness.advance("4h")
    assert harness.expire() == 1
    harness.settle()
    harness.delete(logs[0].item_key)
    harness.put(Log(number=9, at=now))
    harness.settle()
    assert harness.scan(PerHour) == []


def test_a_bucket_whose_end_is_not_the_tables_ttl_is_reported(harness_of):
    app = App("logs", table=TABLE)
    app.aggregate(PerHour)
    harness = harness_of(app)
    found = [finding.text for finding in findings(app, harness.tables)]
    assert any("Until writes 'expires'" in text for text in found)


# -- sums that do not fit --------------------------------------------------------------------------


class Totals(Aggregate[Sale], pk="TOTAL#{shop}", sk="TOTAL"):
    shop: str
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Totals"]:
        return cls.key(shop=sale.shop)


BIG = 10**37
CENT = Decimal("0.01")


@pytest.mark.parametrize("together", [True, False])
def test_a_sum_of_more_than_38_digits_parks_its_change_and_nothing_else(harness_of, together):
    """Both as it overflows inside a commit, and as DynamoDB refuses it."""
    harness = harness_of(app_of(Totals), shards=1)
    for number, amount in enumerate([Decimal(BIG), CENT, Decimal(5)]):
        harness.put(Sale(number=number, shop="a", amount=amount))
        if not together:
            harness.settle()
    harness.settle()
    assert harness.get(Totals.key(shop="a")) == Totals(shop="a", total=Decimal(BIG + 5), sales=2)
    (parked,) = harness.parked()
    assert (parked.handler, parked.error) == ("Totals", "ValidationError")
    harness.delete(Sale.key(number=0))
    harness.settle()
    harness.redrive()
    assert harness.get(Totals.key(shop="a")) == Totals(shop="a", total=5 + CENT, sales=2)


def test_a_page_of_many_different_values_of_one_group_is_counted(harness_of):
    """More than one update expression takes."""
    harness = harness_of(app_of(Buyers), shards=1)
    harness.put(*(Sale(number=n, shop="a", buyer=f"b{n}") for n in range(600)))
    refused = []
    harness.world.engine.observers.append(
        lambda call: refused.append(call) if call.status == 400 else None
    )
    harness.settle()
    assert not [call for call in refused if call.operation == "TransactWriteItems"]
    assert harness.get(Buyers.key(shop="a")).buyers == 600
    assert harness.parked() == []


# -- approximate -----------------------------------------------------------------------------------


class Views(Aggregate[Sale], pk="VIEWS#{shop}", sk="VIEWS", approximate=True):
    shop: str
    views: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Views"]:
        return cls.key(shop=sale.shop)


def updates_of(harness, key):
    found = []

    def saw(call):
        if call.operation == "UpdateItem" and key in str(call.payload):
            found.append(call)

    harness.world.engine.observers.append(saw)
    return found


def test_an_approximate_aggregate_writes_each_item_of_a_page_once_outside_the_commit(harness_of):
    harness = harness_of(app_of(Views), shards=1)
    updates = updates_of(harness, "VIEWS#")
    harness.put(*(Sale(number=n, shop="ab"[n % 2]) for n in range(300)))
    harness.settle()
    assert [harness.get(Views.key(shop=shop)).views for shop in "ab"] == [150, 150]
    assert 2 <= len(updates) <= 4


def test_what_an_approximate_aggregate_cannot_write_is_lost_and_nothing_is_parked(harness_of):
    class Refusing(Aggregate[Sale], onto=Shop, missing="skip", approximate=True):
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key[Shop]:
            if sale.shop == "broken":
                raise LookupError(sale.shop)
            return Shop.key(shop=sale.shop)

    harness = harness_of(app_of(Refusing), shards=1)
    harness.put(Shop(shop="a"))
    text = Shop(shop="text").attributes(harness.tables.table) | {"sales": {"S": "many"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": text})
    shops = ["a", "gone", "text", "broken"]
    harness.put(*(Sale(number=n, shop=shops[n % 4]) for n in range(12)))
    harness.settle()
    assert harness.get(Shop.key(shop="a")).sales == 3
    assert harness.get(Shop.key(shop="gone")) is None
    assert harness.parked() == []


@pytest.mark.parametrize(("moment", "views"), [("before", 0), ("after", 3)])
def test_a_crash_after_the_commit_loses_what_is_approximate_and_doubles_nothing(
    harness_of, moment, views
):
    harness = harness_of(app_of(Views), shards=1)
    harness.put(Sale(number=9, shop="b"))
    harness.settle()
    crashed = []

    def crash_at_the_update(call):
        """The commit of the views is through; the next call is the update."""
        if call.operation == "TransactWriteItems" and not crashed:
            crashed.append(call)
            harness.crash(at=0, moment=moment)

    harness.put(*(Sale(number=n, shop="a") for n in range(3)))
    harness.world.engine.observers.append(crash_at_the_update)
    harness.settle()
    harness.world.engine.observers.remove(crash_at_the_update)
    harness.settle()
    assert crashed
    assert harness.restarts == 1
    item = harness.get(Views.key(shop="a"))
    assert (item.views if item else 0) == views

"""The same worker, aggregates and restarts on moto's server, as far as moto is like DynamoDB.

moto has one shard that never closes, records writes that change nothing, records an `UpdateItem`
that creates an item twice, expires nothing, and a cancelled transaction takes the table out from
under the open iterators and loses what others write meanwhile. So items are written with puts,
never while a worker runs, and after a cancelled transaction the worker is a new one.

Of a fleet of processes this leaves: one reads the shard, another stands by, the first is killed, the
other takes over and ends. Left out are workers that start at the same moment on a new table, and
frozen ones, because of both a transaction would be cancelled; writes while workers run; shards that
split or roll; and long runs, because each transaction copies the table with its whole log, and fails
when another call writes meanwhile.
"""

import random
from collections import Counter, defaultdict
from contextlib import closing
from decimal import Decimal
from typing import Annotated

import anyio
import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.exceptions import ClientError

from streamkit import (
    Add,
    Aggregate,
    App,
    Avg,
    Count,
    Entity,
    EpochSeconds,
    Inserted,
    Key,
    Modified,
    Put,
    Sum,
    Table,
    changed,
)
from streamkit.aws import connect
from streamkit.core.tables import describe
from streamkit.progress.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX
from streamkit.settings import Settings
from streamkit.worker.worker import Worker
from tests.integration.processes import Writer, finish, site_at

REGION = "eu-central-1"
SETTINGS = Settings(heartbeat=0.5, lease=2.0, poll_floor=0.01, poll_ceiling=0.05)
DEADLINE = 120.0
SHOPS = ("north", "south", "west")
LAYOUTS = {"with a sort key": "PK SK", "without a sort key": "PK"}


class Sale(Entity, pk="SALE#{number}", sk="SALE"):
    number: int
    shop: str
    amount: Decimal
    expires: EpochSeconds | None = None


class ShopSales(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    large: Annotated[int, Count(when=lambda sale: sale.amount >= 50)] = 0
    revenue: Annotated[Decimal, Sum("amount")] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("amount")] = None

    @classmethod
    def group(cls, sale: Sale) -> Key["ShopSales"]:
        return cls.key(shop=sale.shop)


class Moves(Entity, pk="MOVES#{number}", sk="MOVES"):
    number: int
    moves: int = 0


class Opening(Entity, pk="OPENING#{shop}", sk="OPENING"):
    shop: str
    sales_then: int


def make_app(table):
    app = App("sales", table=table, entities=[Moves, Opening])
    app.aggregate(ShopSales)

    @app.on(when=changed("shop"))
    def moved(change: Modified[Sale]) -> Add[Moves]:
        return Add(Moves.key(number=change.new.number), moves=1)

    @app.on
    async def opening(change: Inserted[Sale], table: Table) -> Put[Opening] | None:
        known = await table.get(Opening.key(shop=change.new.shop))
        return None if known else Put(Opening(shop=change.new.shop, sales_then=1))

    return app


class Shop:
    """A table on moto, writes to it, and a memory of them."""

    def __init__(self, client, table, keys, seed):
        self.client, self.table, self.keys = client, table, keys.split()
        self.rng = random.Random(seed)
        self.sales, self.moves, self.opened = {}, Counter(), set()
        client.create_table(
            TableName=table,
            KeySchema=[
                {"AttributeName": name, "KeyType": kind}
                for name, kind in zip(self.keys, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in self.keys],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        client.update_time_to_live(
            TableName=table,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"},
        )

    def key(self, number):
        return dict(zip(self.keys, ({"S": f"SALE#{number}"}, {"S": "SALE"}), strict=False))

    def item(self, number):
        fields = {
            "number": number,
            "shop": self.rng.choice(SHOPS),
            "amount": Decimal(self.rng.randrange(10_000)).scaleb(-2),
            "expires": 1,
        }
        return self.key(number) | {k: TypeSerializer().serialize(v) for k, v in fields.items()}

    def write(self, count):
        """Put, replace and delete sales; some puts change nothing."""
        for _ in range(count):
            number = self.rng.randrange(12)
            old, new = self.sales.get(number), self.item(number)
            dice = self.rng.random()
            if old is not None and dice < 0.3:
                self.client.delete_item(TableName=self.table, Key=self.key(number))
                del self.sales[number]
                continue
            if old is not None and dice < 0.4:
                new = old
            self.client.put_item(TableName=self.table, Item=new)
            self.sales[number] = new
            if old is None:
                self.opened.add(new["shop"]["S"])
            elif old["shop"] != new["shop"]:
                self.moves[number] += 1

    def items(self):
        plain = TypeDeserializer().deserialize
        pages = self.client.get_paginator("scan").paginate(TableName=self.table)
        return [
            {name: plain(value) for name, value in item.items()}
            for page in pages
            for item in page["Items"]
        ]

    def expected(self):
        """What the handlers owe, computed from the sales and the moves alone."""
        amounts = defaultdict(list)
        for item in self.items():
            if item["PK"].startswith("SALE#"):
                amounts[item["shop"]].append(item["amount"])
        shops = {
            shop: (len(each), sum(amount >= 50 for amount in each), sum(each))
            for shop, each in amounts.items()
        }
        return shops, dict(self.moves), self.opened

    def found(self):
        shops, moves, opened = {}, {}, set()
        for item in self.items():
            kind, _, name = item["PK"].partition("#")
            if kind == "SHOP" and item["sales"]:
                assert item["mean_count"] == item["sales"]
                assert item["mean_sum"] == item["revenue"]
                shops[name] = (item["sales"], item.get("large", 0), item["revenue"])
            elif kind == "MOVES":
                moves[int(name)] = item["moves"]
            elif kind == "OPENING":
                opened.add(name)
        return shops, moves, opened

    def control(self, attribute):
        """Streamkit's own items that have an attribute."""
        name = CONTROL_ATTRIBUTE + attribute
        own = [item for item in self.items() if item["PK"].startswith(CONTROL_PREFIX)]
        return [item for item in own if name in item]


@pytest.fixture
def shop(endpoint, found_by_sdk, monkeypatch, request):
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    keys = LAYOUTS[getattr(request, "param", "with a sort key")]
    config = Config(retries={"total_max_attempts": 1})
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    with closing(boto3.client("dynamodb", endpoint_url=endpoint, config=config)) as client:
        yield Shop(client, name, keys, seed=1)


async def work(shop):
    """Run a new worker until nothing is left."""
    async with connect(endpoint_url=shop.client.meta.endpoint_url) as aws:
        with anyio.fail_after(DEADLINE):
            await Worker(make_app(shop.table), aws, SETTINGS).run(until_idle=True)


@pytest.mark.parametrize("shop", LAYOUTS, indirect=True)
async def test_each_new_worker_brings_the_aggregates_to_what_the_table_says(shop):
    for _ in range(3):
        shop.write(30)
        await work(shop)
        assert shop.found() == shop.expected()
    assert shop.opened == set(SHOPS)
    assert sum(shop.moves.values()) > 3


async def test_a_second_worker_with_nothing_to_read_changes_nothing(shop):
    shop.write(20)
    await work(shop)
    before = shop.found()
    await work(shop)
    assert shop.found() == before == shop.expected()


async def test_a_stopped_worker_commits_what_it_read_and_its_follower_goes_on_there(shop):
    shop.write(30)
    async with connect(endpoint_url=shop.client.meta.endpoint_url) as aws:
        worker = Worker(make_app(shop.table), aws, SETTINGS)
        with anyio.fail_after(DEADLINE):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                while worker.dispatcher is None or not worker.dispatcher.counts.changes:
                    await anyio.sleep(0.01)
                assert shop.control("owner")
                assert shop.control("beats")
                worker.stop()
    assert not shop.control("owner"), "a stopped worker gives its leases back"
    assert not shop.control("beats"), "and its heartbeat item goes"
    shop.write(15)
    await work(shop)
    assert shop.found() == shop.expected()


async def test_a_new_worker_is_right_after_a_transaction_of_the_application_was_cancelled(shop):
    shop.write(20)
    await work(shop)
    with pytest.raises(ClientError, match="TransactionCanceledException"):
        shop.client.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": shop.table, "Item": shop.item(100)}},
                {
                    "ConditionCheck": {
                        "TableName": shop.table,
                        "Key": shop.key(101),
                        "ConditionExpression": "attribute_exists(PK)",
                    }
                },
            ]
        )
    shop.write(15)
    await work(shop)
    assert shop.found() == shop.expected()


async def test_aggregates_read_through_the_typed_gateway_have_their_means(shop):
    shop.write(25)
    await work(shop)
    async with connect(endpoint_url=shop.client.meta.endpoint_url) as aws:
        schema = await describe(aws, shop.table, type_attribute=None)
        table = Table(aws.dynamodb, schema)
        for name, (sales, large, revenue) in shop.expected()[0].items():
            found = await table.get(ShopSales.key(shop=name))
            assert found is not None
            assert (found.sales, found.large, found.revenue) == (sales, large, revenue)
            assert found.mean == pytest.approx(revenue / sales)


def test_a_process_takes_over_from_one_that_was_killed(endpoint, tmp_path):
    with site_at(endpoint, tmp_path, heartbeat=1.0, lease=2.5) as site:
        writer = Writer(site.client, seed=7)
        writer.write(30)
        killed = site.start()
        killed.until("shard.taken")
        other = site.start()
        other.until("worker.started")
        killed.kill()
        site.until_owned_by([other])
        finish(site, writer)

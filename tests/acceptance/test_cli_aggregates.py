"""Aggregates from the command line: listed with their state, and held against their source."""

import json

import pytest

COUNTED = """
import os
from typing import Annotated

from streamkit import Aggregate, App, Count, Entity, Key, Max

app = App("counted", table=os.environ["SHOP_TABLE"])


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


@app.aggregate
class ByNumber(Aggregate[Order], pk="BY#{number}", sk="BY"):
    number: int
    orders: Annotated[int, Count()] = 0
    status: Annotated[str | None, Max("status")] = None

    @classmethod
    def group(cls, order: Order) -> Key["ByNumber"]:
        return cls.key(number=order.number)

    @classmethod
    def members(cls, number: int):
        return Order.query(number=number)
"""


@pytest.fixture
def counted(shop):
    """A shop whose one order is counted by a worker that goes on."""
    shop.hasten()
    (shop.folder / "counted.py").write_text(COUNTED)
    assert json.loads(shop.run("aggregate", "list", "counted", "--json").stdout)[0]["state"] == (
        "not started"
    )
    shop.put(1, "A")
    with shop.start("worker", "counted") as process:
        process.wait_for("worker.started")
        shop.until(lambda: shop.item("BY#1", "BY").get("status") == {"S": "A"})
        yield shop
        process.signal(15)
        assert process.exit_code() == 0


def test_aggregates_are_listed_and_verified_while_workers_run(counted):
    listed = counted.run("aggregate", "list", "counted")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[1].split()[:3] == ["ByNumber", "live", "Order"]
    verified = counted.run("aggregate", "verify", "counted", "ByNumber")
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.splitlines() == [
        "ByNumber: 1 groups, 1 items",
        "every group is what its items say",
    ]
    counted.dynamodb.update_item(
        TableName=counted.table,
        Key={"pk": {"S": "BY#1"}, "sk": {"S": "BY"}},
        UpdateExpression="ADD orders :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    verified = counted.run("aggregate", "verify", "counted", "ByNumber", "--json")
    assert verified.returncode == 5, verified.stderr
    (wrong,) = json.loads(verified.stdout)["different"]
    assert wrong == {
        "pk": "BY#1",
        "sk": "BY",
        "attribute": "orders",
        "stored": "2",
        "expected": "1",
    }
    told = counted.run("aggregate", "verify", "counted", "ByNumber").stdout.splitlines()
    assert told[-1] == "next: streamkit aggregate rebuild counted ByNumber"
    assert "every group is what its items say" not in told


def test_an_aggregate_that_the_app_does_not_have_is_named_with_those_it_has(counted):
    done = counted.run("aggregate", "verify", "counted", "Nothing")
    assert done.returncode == 4
    assert "counted has no aggregate 'Nothing'; it has ByNumber" in done.stderr


def test_an_aggregate_that_is_wrong_is_rebuilt_while_its_worker_runs(counted):
    counted.dynamodb.update_item(
        TableName=counted.table,
        Key={"pk": {"S": "BY#1"}, "sk": {"S": "BY"}},
        UpdateExpression="ADD orders :many",
        ExpressionAttributeValues={":many": {"N": "7"}},
    )
    done = counted.run("aggregate", "rebuild", "counted", "ByNumber", "--segments", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ByNumber: everything is counted; 1 of 1 items here"
    counted.put(2, "B")
    counted.until(lambda: counted.item("BY#2", "BY").get("orders") == {"N": "1"})
    assert counted.item("BY#1", "BY")["orders"] == {"N": "1"}
    listed = counted.run("aggregate", "list", "counted", "--json")
    assert json.loads(listed.stdout)[0]["state"] == "live"


def test_items_that_a_rebuild_leaves_out_are_reported_and_nothing_is_called_right(counted):
    key = {"pk": {"S": "ORDER#2"}, "sk": {"S": "ORDER"}}
    item = {**key, "number": {"N": "2"}, "status": {"N": "5"}}
    counted.dynamodb.put_item(TableName=counted.table, Item=item)
    done = counted.run("aggregate", "rebuild", "counted", "ByNumber", "--segments", "2")
    assert done.returncode == 5, done.stderr
    assert "everything is counted" not in done.stdout
    assert "1 items are left out" in done.stdout
    listed = counted.run("aggregate", "list", "counted")
    assert "left out some (1 items)" in listed.stdout
    verified = counted.run("aggregate", "verify", "counted", "ByNumber")
    assert verified.returncode == 5, verified.stderr
    assert "1 items do not fit it" in verified.stdout
    assert "every group is what its items say" not in verified.stdout
    counted.put(2, "B")
    done = counted.run("aggregate", "rebuild", "counted", "ByNumber", "--segments", "2")
    assert done.returncode == 0, done.stdout
    assert json.loads(counted.run("aggregate", "list", "counted", "--json").stdout)[0]["state"] == (
        "live"
    )


def test_what_is_not_under_way_can_be_neither_paused_nor_resumed(counted):
    for command in (
        ("aggregate", "pause", "counted", "ByNumber"),
        ("aggregate", "resume", "counted", "ByNumber"),
        ("consumers", "pause", "counted", "--only", "move"),
    ):
        done = counted.run(*command)
        assert done.returncode == 4, done.stdout
        assert "that can be paused or resumed now" in done.stderr

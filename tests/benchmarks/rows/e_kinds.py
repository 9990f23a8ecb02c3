"""Work beside the path of a change: fan-outs, mirrors, redrives, rebuilds.

Each is held against the raw calls that somebody who writes it by hand needs at least, by a client
as cheap as it comes, on the same server.
"""

import time
from typing import Any

from streamkit.aws import Aws
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate.redrive import redrive
from tests.benchmarks.acting import acting, pages_of
from tests.benchmarks.consuming import app_of, consuming
from tests.benchmarks.deals import FULL
from tests.benchmarks.processes import Remote
from tests.benchmarks.serving import TABLE, serving
from tests.benchmarks.yardstick import Figure, median_of, row

ROUNDS = 3
DEALS = 4000
TOGETHER = 99
"""Items that one transaction writes, beside the one that moves its progress."""
WAIT_SECONDS = 120.0


def watches(number: int) -> list[dict[str, Any]]:
    """Return the items of an audience: they are recipients, and copies of their seller."""
    return [
        {
            "PK": {"S": "WATCH#b"},
            "SK": {"S": f"WATCH#{n:06d}"},
            "brand": {"S": "b"},
            "number": {"N": str(n)},
            "city": {"S": ""},
        }
        for n in range(number)
    ]


def seller(city: str) -> dict[str, Any]:
    key = {"S": "SELLER#b"}
    return {"PK": key, "SK": key, "brand": {"S": "b"}, "city": {"S": city}}


async def audience_of(raw: Any) -> list[dict[str, Any]]:
    """Read an audience, page by page."""
    start, found = {}, []
    while True:
        reply = await raw.query(
            TableName=TABLE,
            KeyConditionExpression="PK = :p",
            ExpressionAttributeValues={":p": {"S": "WATCH#b"}},
            Limit=100,
            **start,
        )
        found += reply["Items"]
        if "LastEvaluatedKey" not in reply:
            return found
        start = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}


async def in_transactions(raw: Any, actions: list[dict[str, Any]], place: str) -> None:
    """Write actions, as many at once as one transaction takes, and a place with each."""
    for first in range(0, len(actions), TOGETHER):
        moved = {"PK": {"S": place}, "SK": {"S": place}, "at": {"N": str(first)}}
        some = [*actions[first : first + TOGETHER], {"Put": {"TableName": TABLE, "Item": moved}}]
        await raw.transact_write_items(TransactItems=some)


async def tell_all(raw: Any, city: str) -> None:
    """Put a message for each recipient."""
    puts = []
    for watch in await audience_of(raw):
        number = watch["number"]["N"]
        told = {"PK": {"S": f"RAW#{number}"}, "SK": {"S": city}, "number": watch["number"]}
        item = told | {"brand": {"S": "b"}, "city": {"S": city}}
        puts.append({"Put": {"TableName": TABLE, "Item": item}})
    await in_transactions(raw, puts, "PLACE")


async def set_all(raw: Any, city: str) -> None:
    """Set the field of each copy."""
    sets = [
        {
            "Update": {
                "TableName": TABLE,
                "Key": {"PK": watch["PK"], "SK": watch["SK"]},
                "UpdateExpression": "SET rawcity = :c",
                "ConditionExpression": "attribute_exists(PK)",
                "ExpressionAttributeValues": {":c": {"S": city}},
            }
        }
        for watch in await audience_of(raw)
    ]
    await in_transactions(raw, sets, "PLACE")


def reaching(kind: str, prefix: str, raw_calls: Any, audience: int) -> Figure:
    """Return how many items of an audience a CPU second reaches, and its ratio to raw calls.

    The raw calls run against a server of their own, so that the consumer does not read their
    changes.
    """
    rounds = []
    with Remote(serving, 1, 0) as server, Remote(serving, 1, 0) as other:
        for one in (server, other):
            one.call("put", watches(audience))
        with (
            Remote(consuming, server.call("address"), kind) as consumer,
            Remote(acting, other.call("address")) as actor,
        ):
            consumer.call("mark")
            consumer.call("finish")
            for turn in range(ROUNDS + 1):
                city = f"city-{turn}"
                consumer.call("mark")
                server.call("put", [seller(city)])
                deadline = time.monotonic() + WAIT_SECONDS
                while server.call("count", prefix, "city", city) < audience:
                    assert time.monotonic() < deadline, "not all were reached"
                    time.sleep(0.1)
                spent = consumer.call("spent") / audience
                raw = actor.call("raw_timed", raw_calls, city) / audience
                if turn:
                    rounds.append((spent, raw))
                consumer.call("finish")
    return median_of(rounds)


@row("fan-out: recipients", unit="recipients/CPU s", of="queries and transactions", bar=0.27)
def fan_out() -> Figure:
    return reaching("fan_out", "MESSAGE#", tell_all, 2000)


@row("mirror: copies", unit="copies/CPU s", of="queries and transactions", bar=0.085)
def mirror() -> Figure:
    return reaching("mirror", "WATCH#", set_all, 300)


async def redrive_all(aws: Aws) -> None:
    """Run every parked change again; the handler works in this process."""
    reports = await redrive(app_of("failing"), aws)
    assert reports
    assert all(report.failure is None for report in reports), reports[:3]


async def redrive_raw(raw: Any, number: int) -> None:
    """Read so many items, and write three for each of them in a transaction."""

    async def one(n: int) -> None:
        key = {"PK": {"S": f"RAW#{n}"}, "SK": {"S": "PARKED"}}
        await raw.get_item(TableName=TABLE, Key=key, ConsistentRead=True)
        puts = [
            {"Put": {"TableName": TABLE, "Item": {**key, "SK": {"S": kind}}}}
            for kind in ("HEAD", "EFFECT")
        ]
        gone = {"Delete": {"TableName": TABLE, "Key": key}}
        await raw.transact_write_items(TransactItems=[*puts, gone])

    for n in range(number):
        await one(n)


@row("redrive: parked changes", unit="changes/CPU s", of="a read and a transaction", bar=0.45)
def redrives() -> Figure:
    rounds = []
    pages, parked = 4, 4 * FULL // 10
    with Remote(serving, 1, FULL) as server:
        url = server.call("address")
        for _ in range(ROUNDS):
            with Remote(consuming, url, "failing") as consumer:
                consumer.call("mark")
                server.call("release", pages)
                consumer.call("finish")
            with Remote(acting, url) as actor:
                spent = actor.call("timed", redrive_all) / parked
                rounds.append((spent, actor.call("raw_timed", redrive_raw, parked) / parked))
    return median_of(rounds)


async def rebuild(aws: Aws) -> None:
    """Count the aggregate anew."""
    rebuilt = await rebuild_aggregate(app_of("aggregate"), aws, "Brand")
    assert rebuilt.done
    assert rebuilt.left_out == 0


async def scan_all(raw: Any) -> None:
    """Read the table once, strongly consistent."""
    async for items in pages_of(raw, TableName=TABLE, ConsistentRead=True):
        assert items


@row("rebuild of an aggregate", unit="items/CPU s", of="the raw scan", bar=0.18)
def rebuilding() -> Figure:
    """The CPU time of the command and of the worker together."""
    rounds = []
    for _ in range(ROUNDS):
        with Remote(serving, 1, 0) as server:
            server.call("put_deals", DEALS)
            url = server.call("address")
            with Remote(consuming, url, "aggregate") as consumer, Remote(acting, url) as actor:
                consumer.call("mark")
                consumer.call("finish")
                scanned = actor.call("raw_timed", scan_all)
                consumer.call("mark")
                spent = actor.call("timed", rebuild) + consumer.call("finish")
                assert server.call("total", "BRAND#", "deals") == DEALS
                rounds.append((spent / DEALS, scanned / DEALS))
    return median_of(rounds)

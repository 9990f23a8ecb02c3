"""Migrations: the CPU time of their scan, against raw writes of the same items.

Measured is the phase in which the work is done, with the capture that runs beside it: the table is
scanned, and every item written. The items were there before the stream began to remember. The raw
way scans the table, too, and makes the same conditional write of each item, as many at the same
time, without any of the bookkeeping that lets a migration be killed at any instant.
"""

import asyncio
import contextlib
import json
import time
import zlib
from datetime import datetime
from decimal import Decimal
from typing import Any

from streamkit import App, Change, Entity, Set
from streamkit.aws import Aws
from streamkit.migrate.operate.commands import begin
from streamkit.migrate.run.running import Runner
from streamkit.progress.garbage import collect_seldom
from tests.benchmarks.acting import acting, at_once, pages_of
from tests.benchmarks.processes import Remote
from tests.benchmarks.serving import TABLE, serving
from tests.benchmarks.yardstick import Figure, median_of, row

ITEMS = 1000
MANY = 2000
ROUNDS = 3
PAGE = 200
LOOK_SECONDS = 0.005


class Offer(Entity, pk="DEAL#{deal_id}", sk="DEAL#{deal_id}"):
    deal_id: str
    brand: str
    category: str
    title: str
    link: str
    status: str
    views: int
    price: Decimal
    created_at: datetime
    tags: list[str]
    labels: dict[str, str]
    status_category: str | None = None


class Moved(Entity, pk="OFFER#{brand}", sk="OFFER#{deal_id}"):
    deal_id: str
    brand: str
    category: str
    title: str
    link: str
    status: str
    views: int
    price: Decimal
    created_at: datetime
    tags: list[str]
    labels: dict[str, str]


def status_category(status: str, category: str) -> Set[Offer]:
    return Set(status_category=f"{status}#{category}")


def moved(offer: Offer) -> Moved:
    return Moved(**offer.model_dump(exclude={"status_category"}))


def ignore(change: Change[Offer]) -> None:
    """Listen, so that the app has a handler."""


async def migrated(aws: Aws, mode: str) -> float:
    """Run a migration; return the CPU seconds of its scan."""
    app = App("deals", table=TABLE, entities=[Offer, Moved])
    app.on(ignore)
    app.migration("0001", Offer, mode=mode)(status_category if mode == "in_place" else moved)
    migration = app.migrations["0001"]
    await begin(app, aws, migration)
    collect_seldom()
    runner = Runner(app, aws, migration)
    spent = 0.0
    running = asyncio.create_task(runner.run())
    before = time.process_time()
    while not running.done():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running), LOOK_SECONDS)
        now = time.process_time()
        spent += now - before if runner.state.phase == "scanning" else 0.0
        before = now
    assert running.result().phase == ("done" if mode == "in_place" else "ready")
    return spent


async def raw_updates(raw: Any) -> None:
    """Set the field of each item, IF what was read is unchanged."""

    async def update(item: dict[str, Any]) -> None:
        text = f"{item['status']['S']}#{item['category']['S']}"
        await raw.update_item(
            TableName=TABLE,
            Key={"PK": item["PK"], "SK": item["SK"]},
            UpdateExpression="SET #n = :n",
            ConditionExpression="#s = :s AND #c = :c",
            ExpressionAttributeNames={"#n": "raw", "#s": "status", "#c": "category"},
            ExpressionAttributeValues={
                ":n": {"S": text},
                ":s": item["status"],
                ":c": item["category"],
            },
        )

    async for items in pages_of(raw, TableName=TABLE, ConsistentRead=True, Limit=PAGE):
        await at_once(update, [item for item in items if "deal_id" in item])


GATES = 64
DIGEST = "0123456789abcdef"


async def raw_copies(raw: Any) -> None:
    """Put a copy of each item under another key, IF there is none and nothing of the item changed.

    It is the transaction that the protocol asks for: a copy has every attribute of its item, so
    each of them is in the condition, and the copy says whose it is. A record of the pair keeps a
    digest of each attribute, and one of the gates is asked whether pairs are still made.
    """
    for number in range(GATES):
        gate = {"PK": {"S": f"GATE#{number}"}, "SK": {"S": "GATE"}, "state": {"S": "scanning"}}
        await raw.put_item(TableName=TABLE, Item=gate)

    async def copy(item: dict[str, Any]) -> None:
        key = {"PK": {"S": f"RAW#{item['brand']['S']}"}, "SK": item["SK"]}
        put = {
            "TableName": TABLE,
            "Item": item | key | {"_sk_copy": {"S": f"0001:{item['PK']['S']}"}},
            "ConditionExpression": "attribute_not_exists(PK)",
        }
        names = [name for name in item if name not in ("PK", "SK")]
        equal = " AND ".join(f"#{place} = :{place}" for place in range(len(names)))
        check = {
            "TableName": TABLE,
            "Key": {"PK": item["PK"], "SK": item["SK"]},
            "ConditionExpression": f"{equal} AND attribute_not_exists(#copy)",
            "ExpressionAttributeNames": {
                **{f"#{place}": name for place, name in enumerate(names)},
                "#copy": "_sk_copy",
            },
            "ExpressionAttributeValues": {
                f":{place}": item[name] for place, name in enumerate(names)
            },
        }
        pair = {"PK": {"S": f"PAIR#0001#{item['PK']['S']}"}, "SK": {"S": "PAIR"}}
        record = {
            "TableName": TABLE,
            "Item": pair | {"state": {"S": json.dumps(dict.fromkeys(names, DIGEST))}},
            "ConditionExpression": "attribute_not_exists(PK)",
        }
        place = {"S": f"GATE#{zlib.crc32(item['PK']['S'].encode()) % GATES}"}
        gate = {
            "TableName": TABLE,
            "Key": {"PK": place, "SK": {"S": "GATE"}},
            "ConditionExpression": "#s = :s",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":s": {"S": "scanning"}},
        }
        actions = [{"Put": put}, {"ConditionCheck": check}, {"Put": record}]
        await raw.transact_write_items(TransactItems=[*actions, {"ConditionCheck": gate}])

    async for items in pages_of(raw, TableName=TABLE, ConsistentRead=True, Limit=PAGE):
        await at_once(copy, [item for item in items if item["PK"]["S"].startswith("DEAL#")])


def beside_raw(mode: str, raw_calls: Any, prefix: str) -> Figure:
    """Return items of a CPU second, and how that compares with raw calls on an equal table."""
    rounds = []
    for _ in range(ROUNDS):
        with Remote(serving, 1, 0) as server, Remote(serving, 1, 0) as other:
            for one in (server, other):
                one.call("put_deals", ITEMS)
            with (
                Remote(acting, server.call("address")) as actor,
                Remote(acting, other.call("address")) as raw,
            ):
                spent = actor.call("timed", migrated, mode)
                rounds.append((spent / ITEMS, raw.call("raw_timed", raw_calls) / ITEMS))
            assert server.call("count", prefix) == ITEMS
    return median_of(rounds)


@row("migration in place", unit="items/CPU s", of="raw conditional updates", bar=0.7)
def in_place() -> Figure:
    return beside_raw("in_place", raw_updates, "DEAL#")


@row("migration to new keys", unit="items/CPU s", of="the raw transactions", bar=0.85)
def rekey() -> Figure:
    return beside_raw("rekey", raw_copies, "OFFER#")


def memory_of(items: int) -> int:
    """Return the most memory of a process that migrates so many items."""
    with Remote(serving, 1, 0) as server:
        server.call("put_deals", items)
        with Remote(acting, server.call("address")) as actor:
            actor.call("timed", migrated, "in_place")
            return int(actor.call("most_memory"))


@row("migration in place: memory for ten times the items", unit="MB more", bar=16, less=True)
def memory() -> Figure:
    """Each page is read, written and left; 18,000 items more would take 60 MB if they were kept."""
    return Figure((memory_of(10 * MANY) - memory_of(MANY)) / 1e6)

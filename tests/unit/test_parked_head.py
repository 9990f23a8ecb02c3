"""A change leaves its queue once, with its effects, however many try and however large it is."""

import random
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest

from streamkit.aws import connect
from streamkit.core.parked.head import postpone, take_off
from streamkit.core.parked.queues import read_head
from streamkit.core.parking import Failure, ParkedRecord, park, queue_behind
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, ItemRef, Verb
from streamkit.progress.clock import SystemClock
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fold import fold
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import RefusedCommit

SCHEMA = TableSchema("shop", "pk", None, "S", None, {})
SCHEMAS = {"shop": SCHEMA}
SPACE = ControlSpace.of(SCHEMA, "app", "label")
TABLE = {
    "TableName": "shop",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
SIZES = pytest.mark.parametrize("items", [1, 99], ids=["small", "large"])


@asynccontextmanager
async def opened(**transport):
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine, **transport)) as aws:
        store = CursorStore(aws.dynamodb, SPACE)
        await park_one(store, 1)
        yield store


@pytest.fixture
async def store():
    async with opened() as store:
        yield store


def parked(number):
    failure = Failure("ValueError", "no")
    return ParkedRecord("h", "Thing", "s", str(number).zfill(40), b"record", failure, 7)


async def apply(store, actions):
    return await transact(store.dynamodb, SCHEMAS, fold(actions), random.Random(0))


async def park_one(store, number):
    assert await apply(store, park(SPACE, "lane", parked(number), "s.0")) is None


def adds(items):
    return [
        Action(ItemRef("shop", ("S", f"n{n}"), None), Verb.UPDATE, adds={"n": Decimal(1)})
        for n in range(items)
    ]


async def count(store):
    reply = await store.dynamodb.get_item(TableName="shop", Key={"pk": {"S": "n0"}})
    return int(reply["Item"]["n"]["N"]) if "Item" in reply else 0


async def taken_off(store, found, items):
    return await take_off(store, SCHEMAS, *found, adds(items), random.Random(0), SystemClock())


@SIZES
async def test_two_who_read_the_same_change_apply_it_once(store, items):
    found = await read_head(store, "lane")
    assert await taken_off(store, found, items) is None
    assert isinstance(await taken_off(store, found, items), RefusedCommit)
    assert await count(store) == 1
    assert await store.item("lane", "lane") is None
    assert "lanes" not in await store.item("holds", "s.0")


@SIZES
async def test_one_who_was_overtaken_does_not_take_the_next_change_off(store, items):
    await apply(store, queue_behind(SPACE, "lane", parked(2), "1".zfill(40), guarded=True))
    found = await read_head(store, "lane")
    assert await taken_off(store, found, items) is None
    assert isinstance(await taken_off(store, found, items), RefusedCommit)
    assert await count(store) == 1
    _, head = await read_head(store, "lane")
    assert head.position == "2".zfill(40)


async def test_a_failure_that_is_written_down_late_is_not_written_down_again(store):
    """Its queue may be due again by then, or have been redriven by a person."""
    _, head = await read_head(store, "lane")
    failure = Failure("ValueError", "no")
    assert await postpone(store, head, failure, 1, 500, random.Random(0))
    assert not await postpone(store, head, failure, 1, None, random.Random(0))
    queue, head = await read_head(store, "lane")
    assert (queue.due, queue.stuck, head.attempts) == (500, False, 2)


@SIZES
async def test_a_change_that_is_queued_meanwhile_keeps_its_queue(store, items):
    found = await read_head(store, "lane")
    await apply(store, queue_behind(SPACE, "lane", parked(2), "1".zfill(40), guarded=True))
    assert isinstance(await taken_off(store, found, items), RefusedCommit)
    assert await count(store) == 0
    found = await read_head(store, "lane")
    assert await taken_off(store, found, items) is None
    _, head = await read_head(store, "lane")
    assert head.position == "2".zfill(40)


@SIZES
async def test_a_queue_that_is_held_again_meanwhile_stays_on_its_holds(items):
    again = []

    async def intercept(call, apply):
        response = apply()
        if call.operation == "TransactWriteItems" and b'"n0"' in call.payload and not again:
            again.append(call)
            await park_one(store, 2)
        return response

    async with opened(intercept=intercept) as store:
        assert await taken_off(store, await read_head(store, "lane"), items) is None
        assert again
        assert (await store.item("holds", "s.0"))["lanes"] == {"SS": ["lane"]}
        _, head = await read_head(store, "lane")
        assert head.position == "2".zfill(40)

"""Big Time Deals, one statement of its README at a time, on the local engine."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import anyio
import pytest
import structlog

from handlers.deals.entities import (
    Brand,
    BrandLike,
    Brands,
    BrandWatch,
    Category,
    CategoryLike,
    CategoryWatch,
    Deal,
    Message,
    User,
)
from handlers.deals.handlers import (
    BrandLikes,
    BrandWatches,
    CategoryLikes,
    CategoryWatches,
    UnreadMessages,
    app,
    message_of,
    notify_watchers,
)
from handlers.deals.ksuid import derive, ksuid
from handlers.deals.schema import create_table
from streamkit import App, Entity, Index, Key, Table
from streamkit.aws import Aws, connect
from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.parked import list_parked, open_store
from streamkit.preflight import describe, findings, survey
from streamkit.settings import Settings
from streamkit.worker import Worker

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
QUICK = Settings(poll_floor=0.01, poll_ceiling=0.02)


class Shop:
    """The application, and a worker that runs when the test says so."""

    def __init__(self, engine: Engine, aws: Aws, table: Table) -> None:
        self.aws = aws
        self.table = table
        self.control = Control(engine)
        self.now = NOON.timestamp()

    async def put(self, *items: Entity) -> None:
        for item in items:
            attributes = item.attributes(self.table.schema)
            await self.aws.dynamodb.put_item(TableName=app.table, Item=attributes)

    async def delete(self, *keys: Key) -> None:
        for key in keys:
            wire = key.wire(self.table.schema)
            await self.aws.dynamodb.delete_item(TableName=app.table, Key=wire)

    async def work(self, consumer: App = app) -> None:
        await Worker(consumer, self.aws, QUICK, clock=self).run(until_idle=True)

    async def messages(self, username: str) -> list[Message]:
        return [m async for m in self.table.query(Message.query(username=username))]

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return anyio.current_time()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    made: list[Shop] = []
    engine = Engine(
        clock=lambda: made[0].now if made else NOON.timestamp(), rng=random.Random(1), shards=2
    )
    with structlog.testing.capture_logs():
        async with connect(http_session=session_class(engine)) as aws:
            await create_table(aws.dynamodb, app.table)
            schema = await describe(aws, app.table, type_attribute=app.type_attribute)
            made.append(Shop(engine, aws, Table(aws.dynamodb, schema)))
            yield made[0]


def a_deal(number: int = 1, *, minutes: int = 0, **fields: object) -> Deal:
    created_at = NOON + timedelta(minutes=minutes)
    return Deal.model_validate(
        {
            "deal_id": ksuid(created_at, number),
            "title": "Headphones",
            "price": Decimal("19.99"),
            "brand": "ACME",
            "category": "AUDIO",
            "created_at": created_at,
            **fields,
        }
    )


async def test_the_app_fits_its_table_without_a_finding(shop: Shop) -> None:
    assert findings(app, await survey(app, shop.aws)) == []


async def test_counts_follow_likes_that_come_and_go(shop: Shop) -> None:
    likes = [BrandLike(brand="ACME", username=name) for name in ("ann", "bob", "cat")]
    await shop.put(*likes, likes[0], CategoryLike(category="AUDIO", username="ann"))
    await shop.work()
    await shop.delete(likes[1].item_key)
    await shop.work()

    acme = await shop.table.get(BrandLikes.key(brand="ACME"))
    audio = await shop.table.get(CategoryLikes.key(category="AUDIO"))
    assert acme == BrandLikes(brand="ACME", likes=2)
    assert audio == CategoryLikes(category="AUDIO", likes=1)


async def test_a_watch_that_expires_is_counted_no_more(shop: Shop) -> None:
    soon = NOON + timedelta(minutes=5)
    await shop.put(
        BrandWatch(brand="ACME", username="ann"),
        BrandWatch(brand="ACME", username="bob", expires=soon),
        CategoryWatch(category="AUDIO", username="bob", expires=soon),
    )
    await shop.work()
    before = await shop.table.get(BrandWatches.key(brand="ACME"))
    shop.now += 600
    assert shop.control.expire(app.table) == 2
    await shop.work()

    assert before == BrandWatches(brand="ACME", watches=2)
    after = await shop.table.get(BrandWatches.key(brand="ACME"))
    assert after == BrandWatches(brand="ACME", watches=1)
    audio = await shop.table.get(CategoryWatches.key(category="AUDIO"))
    assert audio == CategoryWatches(category="AUDIO", watches=0)


async def test_the_set_of_brands_follows_brands_that_come_go_and_come_back(shop: Shop) -> None:
    acme, other = (Brand(brand=name, logo_url="https://example.com") for name in ("ACME", "OTHER"))
    await shop.put(acme, other)
    await shop.delete(acme.item_key)
    await shop.put(acme)
    await shop.delete(other.item_key)
    await shop.work()

    assert await shop.table.get(Brands.key()) == Brands(names=frozenset({"ACME"}))


async def test_a_new_deal_tells_each_watcher_of_its_brand_or_category_once(shop: Shop) -> None:
    await shop.put(
        BrandWatch(brand="ACME", username="ann"),
        BrandWatch(brand="ACME", username="bob"),
        CategoryWatch(category="AUDIO", username="bob"),
        CategoryWatch(category="AUDIO", username="cat"),
        CategoryWatch(category="GARDEN", username="dan"),
    )
    deal = a_deal()
    await shop.put(deal)
    await shop.work()

    for username in ("ann", "bob", "cat"):
        assert await shop.messages(username) == [message_of(deal, username)]
        unread = await shop.table.get(UnreadMessages.key(username=username))
        assert unread == UnreadMessages(username=username, unread=1)
    assert await shop.messages("dan") == []


async def test_a_changed_deal_tells_nobody_again(shop: Shop) -> None:
    await shop.put(BrandWatch(brand="ACME", username="ann"))
    deal = a_deal()
    await shop.put(deal)
    await shop.work()
    await shop.delete((await shop.messages("ann"))[0].item_key)
    await shop.put(deal.model_copy(update={"price": Decimal("9.99")}))
    await shop.work()

    assert await shop.messages("ann") == []


async def test_ninety_watchers_are_told_in_one_result(shop: Shop) -> None:
    watchers = [BrandWatch(brand="ACME", username=f"user{n}") for n in range(90)]
    await shop.put(*watchers, a_deal())
    await shop.work()

    for watcher in watchers:
        assert len(await shop.messages(watcher.username)) == 1


async def test_a_deal_with_a_hundred_watchers_tells_nobody_and_is_parked(shop: Shop) -> None:
    await shop.put(*[BrandWatch(brand="ACME", username=f"user{n}") for n in range(100)])
    await shop.put(a_deal(), BrandLike(brand="ACME", username="ann"))
    await shop.work()

    (parked,) = await list_parked(await open_store(app, shop.aws))
    assert (parked.handler, parked.error) == ("notify_watchers", "ValueError")
    assert await shop.messages("user0") == []
    assert (await shop.table.get(BrandLikes.key(brand="ACME"))).likes == 1


async def test_the_unread_count_follows_reading_deleting_and_expiry(shop: Shop) -> None:
    soon = NOON + timedelta(minutes=5)
    await shop.put(BrandWatch(brand="ACME", username="ann"))
    await shop.put(*[a_deal(n, expires=soon if n == 0 else None) for n in range(4)])
    await shop.work()
    assert (await shop.table.get(UnreadMessages.key(username="ann"))).unread == 4

    read, deleted, kept = [m for m in await shop.messages("ann") if m.expires is None]
    await shop.put(read.model_copy(update={"unread": False}))
    await shop.delete(deleted.item_key)
    shop.now += 600
    assert shop.control.expire(app.table) == 2  # the deal, and the message of it
    await shop.work()

    assert (await shop.table.get(UnreadMessages.key(username="ann"))).unread == 1
    assert [message for message in await shop.messages("ann") if message.unread] == [kept]


async def test_a_redelivered_deal_tells_nobody_twice_and_makes_nothing_unread(shop: Shop) -> None:
    await shop.put(
        BrandWatch(brand="ACME", username="ann"), BrandWatch(brand="ACME", username="bob")
    )
    await shop.put(a_deal())
    await shop.work()
    (message,) = await shop.messages("ann")
    read = message.model_copy(update={"unread": False})
    await shop.put(read)
    # Another consumer of the same stream is given every deal again.
    again = App("deals-again", table=app.table, entities=app.entities)
    again.on(notify_watchers)
    await shop.work(again)
    await shop.work()

    assert await shop.messages("ann") == [read]
    assert len(await shop.messages("bob")) == 1
    assert (await shop.table.get(UnreadMessages.key(username="ann"))).unread == 0
    assert (await shop.table.get(UnreadMessages.key(username="bob"))).unread == 1


async def test_messages_sort_by_the_time_of_their_deals(shop: Shop) -> None:
    deals = [a_deal(n, minutes=n) for n in range(5)]
    await shop.put(BrandWatch(brand="ACME", username="ann"), *reversed(deals))
    await shop.work()

    newest_first = Message.query(username="ann").reverse()
    told = [message.deal_id async for message in shop.table.query(newest_first)]
    assert told == [deal.deal_id for deal in reversed(deals)]


async def test_a_read_message_leaves_the_index_of_unread_ones(shop: Shop) -> None:
    read, unread = (message_of(a_deal(n), "ann") for n in (1, 2))
    await shop.put(read, unread)
    await shop.put(read.model_copy(update={"unread": False}))

    query = Message.query(index=Message.unread_only, username="ann")
    assert [message async for message in shop.table.query(query)] == [unread]


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (Deal.by_day, {}),
        (Deal.by_brand, {"brand": "ACME"}),
        (Deal.by_category, {"category": "AUDIO"}),
    ],
    ids=["by day", "by brand", "by category"],
)
async def test_deals_of_a_day_come_newest_first(
    shop: Shop, index: Index, fields: dict[str, str]
) -> None:
    old, new = a_deal(1), a_deal(2, minutes=5)
    await shop.put(old, new, a_deal(3, minutes=24 * 60, brand="OTHER", category="GARDEN"))

    query = Deal.query(index=index, created_at=NOON, **fields).reverse()
    assert [deal async for deal in shop.table.query(query)] == [new, old]


async def test_the_index_of_users_holds_users_and_nothing_else(shop: Shop) -> None:
    ann = User(username="ann", name="Ann")
    await shop.put(ann, Category(category="AUDIO"), message_of(a_deal(), "ann"))

    reply = await shop.aws.dynamodb.scan(TableName=app.table, IndexName="UserIndex")
    assert reply["Count"] == 1
    assert [u async for u in shop.table.scan(User, index=User.all_users)] == [ann]


def test_a_ksuid_has_27_characters_and_sorts_by_its_second() -> None:
    ids = [ksuid(NOON + timedelta(seconds=n), random.Random(n).getrandbits(128)) for n in range(50)]
    assert {len(text) for text in ids} == {27}
    assert ids == sorted(ids)


def test_a_ksuid_is_what_the_format_says() -> None:
    # The largest one of the format's specification: all bits set.
    last = datetime.fromtimestamp(1_400_000_000 + 2**32 - 1, UTC)
    assert ksuid(last, 2**128 - 1) == "aWgEPTl1tmebfsQzFP4bxwgy80V"


def test_a_derived_id_is_always_the_same_and_sorts_with_its_source() -> None:
    source, later = ksuid(NOON, 1), ksuid(NOON + timedelta(seconds=1), 0)
    assert derive(source, "ann") == derive(source, "ann")
    assert derive(source, "ann") != derive(source, "bob")
    assert derive(source, "ann") < later


@pytest.mark.parametrize("text", ["", "short", "!" * 27])
def test_what_is_not_a_ksuid_derives_nothing(text: str) -> None:
    with pytest.raises(ValueError):
        derive(text, "ann")

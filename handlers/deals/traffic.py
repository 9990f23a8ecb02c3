"""The application of the demo: several writers at once who play users, brands and editors.

They use the plain SDK, as an application that knows nothing of streamkit would; entities only
shape the items. What they do is chance, from a seed. Brands and categories whose deals are posted
have a steady audience, so that who must have been told of a deal can be computed afterwards;
watches of the others come, go and expire all the time.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import anyio

from handlers.deals.entities import (
    Brand,
    BrandLike,
    BrandWatch,
    Category,
    CategoryLike,
    CategoryWatch,
    Deal,
    EditorsChoice,
    FeaturedDeal,
    FrontPage,
    Message,
    User,
)
from handlers.deals.ksuid import ksuid
from streamkit import Entity, Key, Table
from streamkit.aws import Aws
from streamkit.schema import TableSchema

T = TypeVar("T")

USERS = [f"user{number:03d}" for number in range(300)]
BRANDS = [f"BRAND{number:02d}" for number in range(24)]
CATEGORIES = [f"CATEGORY{number}" for number in range(8)]
OTHER_BRANDS = [f"OTHER{number:02d}" for number in range(16)]
OTHER_CATEGORIES = [f"MISC{number}" for number in range(4)]
PAGES = 4
"""Numbers that the front page and the editors' choice are spread over."""


@dataclass
class Ledger:
    """What the writers did that the table cannot tell afterwards. Messages are (user, deal)."""

    posted: dict[str, Deal] = field(default_factory=dict)
    read: set[tuple[str, str]] = field(default_factory=set)
    deleted: set[tuple[str, str]] = field(default_factory=set)
    writes: int = 0


class Traffic:
    """Writers on one table, until together they have made a number of writes."""

    def __init__(self, aws: Aws, schema: TableSchema, *, seed: int, writes: int) -> None:
        self.ledger = Ledger()
        self.total = writes
        self._dynamodb = aws.dynamodb
        self._schema = schema
        self._table = Table(aws.dynamodb, schema)
        self._seed = seed
        self._likes: list[BrandLike | CategoryLike] = []
        self._watches: list[BrandWatch | CategoryWatch] = []
        self._deals: list[Deal] = []

    @property
    def done(self) -> bool:
        """Whether all writes are made."""
        return self.ledger.writes >= self.total

    async def play(self, writers: int = 8) -> None:
        """Fill the table with what was there before the first deal, then let writers loose."""
        await self._open()
        async with anyio.create_task_group() as group:
            for number in range(writers):
                group.start_soon(self._write, random.Random(f"{self._seed}/{number}"))

    async def _open(self) -> None:
        rng = random.Random(f"{self._seed}/opening")
        for username in USERS:
            await self._put(User(username=username, name=username.title()))
        for brand in BRANDS + OTHER_BRANDS:
            await self._put(_brand(rng, brand))
        for category in CATEGORIES + OTHER_CATEGORIES:
            await self._put(Category(category=category))
        for brand in BRANDS:
            for username in rng.sample(USERS, 8):
                await self._put(BrandWatch(brand=brand, username=username))
        for category in CATEGORIES:
            for username in rng.sample(USERS, 8):
                await self._put(CategoryWatch(category=category, username=username))

    async def _write(self, rng: random.Random) -> None:
        acts = self._acts()
        while not self.done:
            (act,) = rng.choices(list(acts), list(acts.values()))
            await act(rng)

    def _acts(self) -> dict[Callable[[random.Random], Awaitable[None]], float]:
        """Say what writers do, and how often."""
        return {
            self._like: 40,
            self._unlike: 12,
            self._watch: 14,
            self._unwatch: 6,
            self._read_messages: 5,
            self._rename_user: 4,
            self._post_deal: 1.5,
            self._change_price: 6,
            self._withdraw_deal: 0.3,
            self._change_brand: 5,
            self._feature: 0.5,
        }

    # -- users ---------------------------------------------------------------------------------

    async def _like(self, rng: random.Random) -> None:
        like: BrandLike | CategoryLike
        if rng.random() < 0.7:
            brand = rng.choice(BRANDS + OTHER_BRANDS)
            like = BrandLike(brand=brand, username=rng.choice(USERS))
        else:
            category = rng.choice(CATEGORIES + OTHER_CATEGORIES)
            like = CategoryLike(category=category, username=rng.choice(USERS))
        await self._put(like)
        self._likes.append(like)

    async def _unlike(self, rng: random.Random) -> None:
        if self._likes:
            await self._delete(_take(rng, self._likes).item_key)

    async def _watch(self, rng: random.Random) -> None:
        watch: BrandWatch | CategoryWatch
        expires = _soon(rng) if rng.random() < 0.3 else None
        username = rng.choice(USERS)
        if rng.random() < 0.7:
            brand = rng.choice(OTHER_BRANDS)
            watch = BrandWatch(brand=brand, username=username, expires=expires)
        else:
            category = rng.choice(OTHER_CATEGORIES)
            watch = CategoryWatch(category=category, username=username, expires=expires)
        await self._put(watch)
        self._watches.append(watch)

    async def _unwatch(self, rng: random.Random) -> None:
        if self._watches:
            await self._delete(_take(rng, self._watches).item_key)

    async def _read_messages(self, rng: random.Random) -> None:
        """Open a few unread messages; some are thrown away."""
        username = rng.choice(USERS)
        unread = Message.query(index=Message.unread_only, username=username).limit(3)
        async for message in self._table.query(unread):
            about = (username, message.deal_id)
            if rng.random() < 0.3:
                await self._delete(message.item_key)
                self.ledger.deleted.add(about)
            elif await self._replace(message.model_copy(update={"unread": False})):
                self.ledger.read.add(about)

    async def _rename_user(self, rng: random.Random) -> None:
        username = rng.choice(USERS)
        await self._put(User(username=username, name=f"{username} {rng.randrange(1000)}"))

    # -- brands and editors --------------------------------------------------------------------

    async def _post_deal(self, rng: random.Random) -> None:
        now = datetime.now(UTC)
        deal = Deal(
            deal_id=ksuid(now, rng.getrandbits(128)),
            title=f"Thing {rng.randrange(10_000)}",
            price=_price(rng),
            brand=rng.choice(BRANDS),
            category=rng.choice(CATEGORIES),
            created_at=now,
            expires=_soon(rng) if rng.random() < 0.2 else now + timedelta(days=30),
        )
        self.ledger.posted[deal.deal_id] = deal
        await self._put(deal)
        self._deals.append(deal)

    async def _change_price(self, rng: random.Random) -> None:
        if self._deals:
            deal = rng.choice(self._deals)
            await self._replace(deal.model_copy(update={"price": _price(rng)}))

    async def _withdraw_deal(self, rng: random.Random) -> None:
        if self._deals:
            await self._delete(_take(rng, self._deals).item_key)

    async def _change_brand(self, rng: random.Random) -> None:
        """Change a brand's logo; some of the other brands go, and come back."""
        if rng.random() < 0.3:
            brand = rng.choice(OTHER_BRANDS)
            if rng.random() < 0.5:
                await self._delete(Brand.key(brand=brand))
            else:
                await self._put(_brand(rng, brand))
        else:
            await self._put(_brand(rng, rng.choice(BRANDS)))

    async def _feature(self, rng: random.Random) -> None:
        """Put deals on a page; nothing follows from it yet."""
        chosen = rng.sample(self._deals, min(5, len(self._deals)))
        copies = tuple(
            FeaturedDeal(deal_id=deal.deal_id, title=deal.title, price=deal.price)
            for deal in chosen
        )
        page = rng.choice((FrontPage, EditorsChoice))
        for number in range(1, PAGES + 1):
            await self._put(page(number=number, featured=copies))
        await self._put(Category(category=rng.choice(CATEGORIES), featured=copies))

    # -- writes --------------------------------------------------------------------------------

    async def _put(self, item: Entity, **condition: Any) -> None:
        attributes = item.attributes(self._schema)
        await self._dynamodb.put_item(TableName=self._schema.name, Item=attributes, **condition)
        self.ledger.writes += 1

    async def _replace(self, item: Entity) -> bool:
        """Put an item if there is one; say whether there was."""
        try:
            await self._put(item, ConditionExpression="attribute_exists(PK)")
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    async def _delete(self, key: Key[Any]) -> None:
        await self._dynamodb.delete_item(TableName=self._schema.name, Key=key.wire(self._schema))
        self.ledger.writes += 1


def _brand(rng: random.Random, brand: str) -> Brand:
    return Brand(brand=brand, logo_url=f"https://example.com/{brand}/{rng.randrange(1000)}.png")


def _price(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(100, 100_000)) / 100


def _soon(rng: random.Random) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=rng.uniform(1, 4))


def _take(rng: random.Random, things: list[T]) -> T:
    return things.pop(rng.randrange(len(things)))

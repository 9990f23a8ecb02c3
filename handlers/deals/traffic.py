"""The application of the demo: users, brands and editors, and what must follow from what they do.

Brands and categories whose deals are posted have a steady audience, so that the users who must have
been told of a deal can be computed afterwards; watches of the others come, go and expire all the
time. What the table cannot tell is noted: which deals were posted and are gone, which messages
their readers have opened or thrown away.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeVar

import anyio

from handlers.deals.entities import (
    Brand,
    BrandLike,
    Brands,
    BrandWatch,
    Category,
    CategoryLike,
    CategoryWatch,
    Deal,
    EditorsChoice,
    FeaturedDeal,
    FeaturedOn,
    FrontPage,
    Message,
    Page,
    RecentDeal,
    User,
)
from handlers.deals.handlers import (
    CACHES,
    LATEST,
    BrandLikes,
    BrandWatches,
    CategoryLikes,
    CategoryWatches,
    DealsCache,
    UnreadMessages,
)
from handlers.deals.ksuid import derive, ksuid
from streamkit import Delete, Entity, Put, Set, present
from streamkit.testing import Comparison, Final, Writer

T = TypeVar("T")

PAGES = 4
"""Numbers that the front page and the editors' choice are spread over."""

Act = Callable[[Writer], Awaitable[None]]


class Traffic:
    """Users, brands and editors.

    Args:
        users: how many there are.
        brands: how many with a steady audience; there are as many again without.
        categories: likewise.
        audience: how many watch each of them.
        editing: how much is done to deals and pages, compared with likes and watches.
    """

    def __init__(
        self,
        *,
        users: int = 300,
        brands: int = 24,
        categories: int = 8,
        audience: int = 6,
        editing: float = 1.0,
    ) -> None:
        self.users = [f"user{number:03d}" for number in range(users)]
        self.brands = [f"BRAND{number:02d}" for number in range(brands)]
        self.categories = [f"CATEGORY{number}" for number in range(categories)]
        self.other_brands = [f"OTHER{number:02d}" for number in range(brands)]
        self.other_categories = [f"MISC{number}" for number in range(categories)]
        self.posted: dict[str, Deal] = {}
        self.hot: set[str] = set()
        self.read: set[str] = set()
        self.deleted: set[str] = set()
        self._audience = audience
        self._editing = editing
        self._likes: list[BrandLike | CategoryLike] = []
        self._watches: list[BrandWatch | CategoryWatch] = []
        self._deals: list[str] = []
        self._editor = anyio.Lock()

    async def open(self, writer: Writer) -> None:
        """Write users, brands and categories, and the watches of those that post deals."""
        rng = writer.rng
        await writer.put(*(User(username=name, name=name.title()) for name in self.users))
        await writer.put(*(_brand(rng, brand) for brand in self.brands + self.other_brands))
        for category in self.categories + self.other_categories:
            await writer.put(Category(category=category))
        for brand in self.brands:
            for username in rng.sample(self.users, self._audience):
                await writer.put(BrandWatch(brand=brand, username=username))
        for category in self.categories:
            for username in rng.sample(self.users, self._audience):
                await writer.put(CategoryWatch(category=category, username=username))

    async def act(self, writer: Writer) -> None:
        """Do one small thing that a user does."""
        acts: dict[Act, float] = {
            self._like: 40,
            self._unlike: 12,
            self._watch: 14,
            self._unwatch: 6,
            self._read_messages: 4,
            self._rename_user: 4,
            self._post_deal: 0.8 * self._editing,
            self._change_price: 0.5 * self._editing,
            self._heat: 0.02 * self._editing,
            self._withdraw_deal: 0.2 * self._editing,
            self._change_brand: 5,
            self._feature: 0.1 * self._editing,
        }
        (act,) = writer.rng.choices(list(acts), list(acts.values()))
        await act(writer)

    # -- users ---------------------------------------------------------------------------------

    async def _like(self, writer: Writer) -> None:
        rng, username = writer.rng, writer.rng.choice(self.users)
        like: BrandLike | CategoryLike
        if rng.random() < 0.7:
            brand = rng.choice(self.brands + self.other_brands)
            like = BrandLike(brand=brand, username=username)
        else:
            category = rng.choice(self.categories + self.other_categories)
            like = CategoryLike(category=category, username=username)
        await writer.put(like)
        self._likes.append(like)

    async def _unlike(self, writer: Writer) -> None:
        if self._likes:
            await writer.delete(_take(writer.rng, self._likes).item_key)

    async def _watch(self, writer: Writer) -> None:
        rng, username = writer.rng, writer.rng.choice(self.users)
        expires = _soon(writer) if rng.random() < 0.3 else None
        watch: BrandWatch | CategoryWatch
        if rng.random() < 0.7:
            brand = rng.choice(self.other_brands)
            watch = BrandWatch(brand=brand, username=username, expires=expires)
        else:
            category = rng.choice(self.other_categories)
            watch = CategoryWatch(category=category, username=username, expires=expires)
        await writer.put(watch)
        self._watches.append(watch)

    async def _unwatch(self, writer: Writer) -> None:
        if self._watches:
            await writer.delete(_take(writer.rng, self._watches).item_key)

    async def _read_messages(self, writer: Writer) -> None:
        """Open a few unread messages; some are thrown away."""
        username = writer.rng.choice(self.users)
        unread = Message.query(index=Message.unread_only, username=username).limit(3)
        async for message in writer.table.query(unread):
            if writer.rng.random() < 0.3:
                await writer.delete(message.item_key)
                self.deleted.add(message.message_id)
            elif await _replace(writer, message.model_copy(update={"unread": False})):
                self.read.add(message.message_id)

    async def _rename_user(self, writer: Writer) -> None:
        username = writer.rng.choice(self.users)
        await writer.put(User(username=username, name=f"{username} {writer.rng.randrange(1000)}"))

    # -- brands and editors --------------------------------------------------------------------

    async def _post_deal(self, writer: Writer) -> None:
        rng, now = writer.rng, writer.now
        deal = Deal(
            deal_id=ksuid(now, rng.getrandbits(128)),
            title=f"Thing {rng.randrange(10_000)}",
            price=_price(rng),
            brand=rng.choice(self.brands),
            category=rng.choice(self.categories),
            created_at=now,
            expires=_soon(writer) if rng.random() < 0.2 else now + timedelta(days=30),
        )
        self.posted[deal.deal_id] = deal
        await writer.put(deal)
        self._deals.append(deal.deal_id)

    async def _change_price(self, writer: Writer) -> None:
        if self._deals:
            price = _price(writer.rng)
            key = Deal.key(deal_id=writer.rng.choice(self._deals))
            await writer.write(Set(key, price=price).only_if(present))

    async def _heat(self, writer: Writer) -> None:
        """Make a deal hot, once in its life."""
        cool = [deal_id for deal_id in self._deals if deal_id not in self.hot]
        if cool:
            deal_id = writer.rng.choice(cool)
            hot = Set(Deal.key(deal_id=deal_id), hot=True)
            if await writer.write(hot.only_if(present)):
                self.hot.add(deal_id)

    async def _withdraw_deal(self, writer: Writer) -> None:
        if self._deals:
            await writer.delete(Deal.key(deal_id=_take(writer.rng, self._deals)))

    async def _change_brand(self, writer: Writer) -> None:
        """Change a brand's logo; some of the other brands go, and come back."""
        rng = writer.rng
        if rng.random() < 0.7:
            brand = _brand(rng, rng.choice(self.brands))
            await writer.update(brand.item_key, logo_url=brand.logo_url)
            return
        brand = _brand(rng, rng.choice(self.other_brands))
        await writer.write(Delete(brand.item_key) if rng.random() < 0.05 else Put(brand))

    async def _feature(self, writer: Writer) -> None:
        """Put deals on a page, as they were when the editor looked; one editor at a time."""
        rng = writer.rng
        async with self._editor:
            keys = [
                Deal.key(deal_id=deal_id)
                for deal_id in rng.sample(self._deals, min(5, len(self._deals)))
            ]
            deals = await writer.table.batch_get(keys)
            copies = tuple(
                FeaturedDeal(deal_id=deal.deal_id, title=deal.title, price=deal.price)
                for deal in deals.values()
            )
            page = rng.choice((FrontPage, EditorsChoice))
            for number in range(1, PAGES + 1):
                await writer.put(page(number=number, featured=copies))
            category = rng.choice(self.categories)
            await writer.update(Category.key(category=category), featured=copies)

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        yield from _counts(final)
        yield self._brands(final)
        names = frozenset(brand.brand for brand in final[Brand])
        yield final.compare(Brands, [Brands(names=names)] if names else [])
        yield from self._messages(final)
        yield from _copies(final)

    def _brands(self, final: Final) -> Comparison:
        """Compare counts on steady brands: what came before its brand is not counted on it."""
        likes = Counter(like.brand for like in final[BrandLike])
        watches = Counter(watch.brand for watch in final[BrandWatch])
        found = {b.brand: (b.likes_count, b.watch_count) for b in final[Brand]}
        steady = {brand: found.get(brand) for brand in self.brands}
        return Comparison.of(
            "counts on brands", steady, {b: (likes[b], watches[b]) for b in self.brands}
        )

    def _messages(self, final: Final) -> Iterator[Comparison]:
        wanted = dict(self._told(final))
        for message_id in self.read & wanted.keys():
            wanted[message_id] = ("read", *wanted[message_id][1:])
        for message_id in self.deleted & wanted.keys():
            del wanted[message_id]
        found: dict[str, tuple[str, str, str]] = {}
        unread: Counter[str] = Counter()
        for message in final[Message]:
            unread[message.username] += message.unread
            state = "unread" if message.unread else "read"
            found[message.message_id] = (state, message.username, message.deal_id)
        yield Comparison.of("messages", found, wanted)
        yield final.compare(
            UnreadMessages,
            [UnreadMessages(username=name, unread=count) for name, count in unread.items()],
        )

    def _told(self, final: Final) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Return the messages that users must have, without those that have expired."""
        brands, categories = defaultdict(set), defaultdict(set)
        for watch in final[BrandWatch]:
            brands[watch.brand].add(watch.username)
        for other in final[CategoryWatch]:
            categories[other.category].add(other.username)
        for deal in self.posted.values():
            if deal.expires is not None and deal.expires <= final.now:
                continue
            for user in brands[deal.brand] | categories[deal.category]:
                yield derive(deal.deal_id, user), ("unread", user, deal.deal_id)
            for user in self.users if deal.deal_id in self.hot else ():
                yield derive(deal.deal_id, user, "hot"), ("unread", user, deal.deal_id)


def _counts(final: Final) -> Iterator[Comparison]:
    likes = Counter(like.brand for like in final[BrandLike]).items()
    yield final.compare(BrandLikes, [BrandLikes(brand=b, likes=n) for b, n in likes])
    watches = Counter(watch.brand for watch in final[BrandWatch]).items()
    yield final.compare(BrandWatches, [BrandWatches(brand=b, watches=n) for b, n in watches])
    likes = Counter(like.category for like in final[CategoryLike]).items()
    yield final.compare(CategoryLikes, [CategoryLikes(category=c, likes=n) for c, n in likes])
    watches = Counter(watch.category for watch in final[CategoryWatch]).items()
    yield final.compare(
        CategoryWatches, [CategoryWatches(category=c, watches=n) for c, n in watches]
    )


def _copies(final: Final) -> Iterator[Comparison]:
    """Compare everything that shows deals with the deals."""
    copies = {
        deal.deal_id: FeaturedDeal(deal_id=deal.deal_id, title=deal.title, price=deal.price)
        for deal in final[Deal]
    }
    recent = [RecentDeal(**dict(copy)) for copy in copies.values()]
    yield final.compare(RecentDeal, recent)
    latest = tuple(copies[deal_id] for deal_id in sorted(copies, reverse=True)[:LATEST])
    numbers = range(1, CACHES + 1) if latest else ()
    yield final.compare(DealsCache, [DealsCache(number=n, deals=latest) for n in numbers])
    links = []
    pages: tuple[tuple[type[Page], str, str], ...] = (
        (Category, "CATEGORY", "category"),
        (FrontPage, "FRONTPAGE", "number"),
        (EditorsChoice, "EDITORSCHOICE", "number"),
    )
    for page, kind, name in pages:
        wanted = []
        for found in final[page]:
            ids = [copy.deal_id for copy in found.featured]
            mended = tuple(copies[deal_id] for deal_id in ids if deal_id in copies)
            wanted.append(found.model_copy(update={"featured": mended}))
            links += [
                FeaturedOn(deal_id=deal_id, kind=kind, name=str(getattr(found, name)))
                for deal_id in ids
            ]
        yield final.compare(page, wanted)
    yield final.compare(FeaturedOn, links)


async def _replace(writer: Writer, item: Entity) -> bool:
    """Put an item if there is one; return whether there was."""
    return await writer.write(Put(item).only_if(present))


def _brand(rng: random.Random, brand: str) -> Brand:
    return Brand(brand=brand, logo_url=f"https://example.com/{brand}/{rng.randrange(1000)}.png")


def _price(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(100, 100_000)) / 100


def _soon(writer: Writer) -> datetime:
    return writer.now + timedelta(seconds=writer.rng.uniform(1, 4))


def _take(rng: random.Random, things: list[T]) -> T:
    return things.pop(rng.randrange(len(things)))

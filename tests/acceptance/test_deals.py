"""Big Time Deals: right under any traffic and trouble, and each statement of its README once."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

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
    FeaturedOn,
    FrontPage,
    Message,
    User,
)
from handlers.deals.handlers import (
    CACHES,
    LATEST,
    SHAPE,
    BrandLikes,
    BrandWatches,
    CategoryLikes,
    CategoryWatches,
    DealsCache,
    UnreadMessages,
    app,
    copy_of,
    message_of,
    tell_brand_watchers,
    tell_category_watchers,
    watchers_of_brand,
    watchers_of_category,
)
from handlers.deals.ksuid import derive, ksuid
from handlers.deals.traffic import Traffic
from streamkit import App
from streamkit.kinds.preflight import findings
from streamkit.testing import Trouble, inserted, trial
from streamkit.testing.loop import EPOCH
from tests.seeds import seeds

NOON = datetime.fromtimestamp(EPOCH, UTC).replace(hour=12)


@pytest.mark.parametrize("seed", seeds(3))
def test_the_table_is_what_its_history_says(seed):
    traffic = Traffic(users=60, brands=4, categories=3, audience=6, editing=25)
    ran = trial(app, traffic, shape=SHAPE, seed=seed, acts=150)
    compared = {comparison.title for comparison in ran.comparisons if comparison.compared}
    assert compared >= {"counts on brands", "messages", "DealsCache", "FeaturedOn"}
    assert all(ran.met[name] for name in ("crash", "split", "roll", "expired"))


@pytest.fixture
def deals(harness_of):
    return harness_of(app, shape=SHAPE)


def a_deal(number=1, *, minutes=0, **fields):
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


def messages(deals, username):
    return deals.query(Message.query(username=username))


def unread(deals, username):
    return deals.get(UnreadMessages.key(username=username)).unread


def test_the_app_fits_its_table_without_a_finding(deals):
    assert findings(app, deals.tables) == []


# -- counts ------------------------------------------------------------------------------------


def test_counts_follow_likes_that_come_and_go(deals):
    likes = [BrandLike(brand="ACME", username=name) for name in ("ann", "bob", "cat")]
    deals.put(*likes, likes[0], CategoryLike(category="AUDIO", username="ann"))
    deals.delete(likes[1].item_key)
    deals.settle()
    assert deals.get(BrandLikes.key(brand="ACME")).likes == 2
    assert deals.get(CategoryLikes.key(category="AUDIO")).likes == 1


def test_a_watch_that_expires_is_counted_no_more(deals):
    soon = NOON + timedelta(minutes=5)
    deals.put(
        BrandWatch(brand="ACME", username="ann"),
        BrandWatch(brand="ACME", username="bob", expires=soon),
        CategoryWatch(category="AUDIO", username="bob", expires=soon),
    )
    deals.settle()
    assert deals.get(BrandWatches.key(brand="ACME")).watches == 2
    deals.advance("12h")
    assert deals.expire() == 2
    deals.settle()
    assert deals.get(BrandWatches.key(brand="ACME")).watches == 1
    assert deals.get(CategoryWatches.key(category="AUDIO")).watches == 0


def test_a_brand_carries_its_counts(deals):
    deals.put(Brand(brand="ACME", logo_url="x"))
    deals.settle()
    deals.put(*(BrandLike(brand="ACME", username=name) for name in "abc"))
    deals.put(BrandWatch(brand="ACME", username="ann"))
    deals.settle()
    brand = deals.get(Brand.key(brand="ACME"))
    assert (brand.likes_count, brand.watch_count) == (3, 1)
    (stored,) = [i for i in deals.world.items(app.table) if i["PK"]["S"] == "BRAND#ACME"]
    assert (stored["LikesCount"], stored["WatchCount"]) == ({"N": "3"}, {"N": "1"})


def test_a_like_of_a_brand_that_does_not_exist_creates_no_fragment_of_one(deals):
    deals.put(BrandLike(brand="ACME", username="ann"))
    deals.settle()
    assert not [i for i in deals.world.items(app.table) if i["PK"]["S"] == "BRAND#ACME"]
    assert deals.get(BrandLikes.key(brand="ACME")).likes == 1


def test_the_set_of_brands_follows_brands_that_come_go_and_come_back(deals):
    acme, other = (Brand(brand=name, logo_url="https://example.com") for name in ("ACME", "OTHER"))
    deals.put(acme, other)
    deals.delete(acme.item_key)
    deals.put(acme)
    deals.delete(other.item_key)
    deals.settle()
    assert deals.get(Brands.key()) == Brands(names=frozenset({"ACME"}))


# -- messages ----------------------------------------------------------------------------------


def test_a_new_deal_tells_each_watcher_of_its_brand_or_category_once(deals):
    deals.put(
        BrandWatch(brand="ACME", username="ann"),
        BrandWatch(brand="ACME", username="bob"),
        CategoryWatch(category="AUDIO", username="bob"),
        CategoryWatch(category="AUDIO", username="cat"),
        CategoryWatch(category="GARDEN", username="dan"),
    )
    deal = a_deal()
    deals.put(deal)
    deals.settle()
    for username in ("ann", "bob", "cat"):
        assert messages(deals, username) == [message_of(deal, username)]
        assert unread(deals, username) == 1
    assert messages(deals, "dan") == []


def test_who_is_told_by_the_brand_is_not_told_by_the_category_again(deals):
    deals.put(BrandWatch(brand="ACME", username="zoe"))

    def told(username):
        watch = CategoryWatch(category="AUDIO", username=username)
        return deals._run(tell_category_watchers(inserted(a_deal()), watch, deals.table))

    assert told("zoe") is None
    assert told("ann").entity == message_of(a_deal(), "ann")


def test_a_changed_deal_tells_nobody_again(deals):
    deals.put(BrandWatch(brand="ACME", username="ann"))
    deal = a_deal()
    deals.put(deal)
    deals.settle()
    deals.delete(messages(deals, "ann")[0].item_key)
    deals.put(deal.model_copy(update={"price": Decimal("9.99")}))
    deals.settle()
    assert messages(deals, "ann") == []


def test_hundreds_of_watchers_are_told_though_a_worker_dies(deals):
    watchers = [BrandWatch(brand="ACME", username=f"user{n}") for n in range(300)]
    deals.put(*watchers, a_deal())
    deals.crash(at=30, moment="after")
    deals.settle()
    assert deals.restarts == 1
    assert all(len(messages(deals, watcher.username)) == 1 for watcher in watchers)


def test_a_deal_that_becomes_hot_is_told_to_every_user(deals):
    users = [User(username=f"user{n}", name="x") for n in range(70)]
    deals.put(*users, a_deal())
    deals.settle()
    assert messages(deals, "user1") == []
    deals.put(a_deal(hot=True))
    deals.settle()
    for user in users:
        (message,) = messages(deals, user.username)
        assert message == message_of(a_deal(), user.username, hot=True)
        assert unread(deals, user.username) == 1


def test_a_watcher_of_a_hot_deal_hears_of_both(deals):
    deals.put(User(username="ann", name="Ann"), BrandWatch(brand="ACME", username="ann"))
    deals.put(a_deal(hot=True))
    deals.settle()
    assert len(messages(deals, "ann")) == 2


def test_the_unread_count_follows_reading_deleting_and_expiry(deals):
    soon = NOON + timedelta(minutes=5)
    deals.put(BrandWatch(brand="ACME", username="ann"))
    deals.put(*[a_deal(n, expires=soon if n == 0 else None) for n in range(4)])
    deals.settle()
    assert unread(deals, "ann") == 4

    read, deleted, kept = [m for m in messages(deals, "ann") if m.expires is None]
    deals.put(read.model_copy(update={"unread": False}))
    deals.delete(deleted.item_key)
    deals.advance("12h")
    assert deals.expire() == 2, "the deal, and the message of it"
    deals.settle()
    assert unread(deals, "ann") == 1
    assert [message for message in messages(deals, "ann") if message.unread] == [kept]


def test_a_redelivered_deal_tells_nobody_twice_and_makes_nothing_unread(harness_of):
    # A listener of the same stream that begins later is given every deal again.
    again = App("deals", table=app.table, entities=app.entities)
    again.handlers[:] = app.handlers
    listener = again.listener("again")
    listener.fan_out(watchers_of_brand)(tell_brand_watchers)
    listener.fan_out(watchers_of_category)(tell_category_watchers)
    deals = harness_of(app, shape=SHAPE)
    deals.put(
        BrandWatch(brand="ACME", username="ann"), CategoryWatch(category="AUDIO", username="bob")
    )
    deals.put(a_deal())
    deals.settle()
    (message,) = messages(deals, "ann")
    read = message.model_copy(update={"unread": False})
    deals.put(read)
    deals.settle()
    deals.stop()
    deals.app = again
    deals.settle()
    assert messages(deals, "ann") == [read]
    assert len(messages(deals, "bob")) == 1
    assert (unread(deals, "ann"), unread(deals, "bob")) == (0, 1)


def test_messages_sort_by_the_time_of_their_deals(deals):
    some = [a_deal(n, minutes=n) for n in range(5)]
    deals.put(BrandWatch(brand="ACME", username="ann"), *reversed(some))
    deals.settle()
    newest_first = deals.query(Message.query(username="ann").reverse())
    assert [message.deal_id for message in newest_first] == [deal.deal_id for deal in some[::-1]]


def test_a_read_message_leaves_the_index_of_unread_ones(deals):
    read, unread = (message_of(a_deal(n), "ann") for n in (1, 2))
    deals.put(read, unread)
    deals.put(read.model_copy(update={"unread": False}))
    assert deals.query(Message.query(index=Message.unread_only, username="ann")) == [unread]


# -- copies ------------------------------------------------------------------------------------


def cached(deals):
    caches = {cache.deals for cache in deals.scan(DealsCache)}
    assert len(deals.scan(DealsCache)) == CACHES
    (latest,) = caches
    return [copy.deal_id for copy in latest]


def test_the_caches_hold_the_latest_deals_of_any_day_newest_first(deals):
    some = [a_deal(n, minutes=n * 60) for n in range(LATEST + 5)]
    mixed = random.Random(1).sample(some, len(some))
    deals.put(*mixed)
    deals.settle()
    assert cached(deals) == [deal.deal_id for deal in some[::-1][:LATEST]]


def test_a_withdrawn_deal_makes_room_for_the_one_that_had_none(deals):
    some = [a_deal(n, minutes=n) for n in range(LATEST + 2)]
    deals.put(*some)
    deals.settle()
    deals.delete(some[-1].item_key)
    deals.delete(some[5].item_key)
    deals.settle()
    left = [deal for deal in some if deal not in (some[-1], some[5])]
    assert cached(deals) == [deal.deal_id for deal in left[::-1][:LATEST]]


def featuring(*some):
    copies = tuple(copy_of(deal) for deal in some)
    return (
        Category(category="AUDIO", featured=copies),
        FrontPage(number=1, featured=copies),
        EditorsChoice(number=1, featured=copies),
    )


def test_the_copies_on_pages_follow_a_deal(deals):
    first, second = a_deal(1), a_deal(2)
    deals.put(first, second, *featuring(first, second))
    deals.settle()
    cheaper = first.model_copy(update={"price": Decimal(5)})
    deals.put(cheaper)
    deals.settle()
    for page in featuring(cheaper, second):
        assert deals.get(page.item_key) == page


def test_a_deal_that_is_gone_leaves_its_pages(deals):
    first, second = a_deal(1), a_deal(2)
    deals.put(first, second, *featuring(first, second))
    deals.settle()
    deals.delete(first.item_key)
    deals.settle()
    for page in featuring(second):
        assert deals.get(page.item_key) == page
    assert {link.deal_id for link in deals.scan(FeaturedOn)} == {second.deal_id}


def test_a_page_made_from_an_old_reading_mends_itself(deals):
    deal = a_deal()
    deals.put(deal)
    cheaper = deal.model_copy(update={"price": Decimal(5)})
    deals.put(cheaper)
    deals.settle()
    deals.put(*featuring(deal))
    deals.settle()
    for page in featuring(cheaper):
        assert deals.get(page.item_key) == page


class Editors:
    """Put pages together from what they once read of deals that change all the time."""

    async def open(self, writer):
        await writer.put(*(a_deal(n) for n in range(4)))

    async def act(self, writer):
        rng = writer.rng
        if rng.random() < 0.5:
            price = Decimal(rng.randrange(1000))
            await writer.put(a_deal(rng.randrange(4), price=price))
        else:
            some = rng.sample(range(4), 2)
            await writer.put(rng.choice(featuring(*(a_deal(n) for n in some))))

    def expected(self, final):
        true = {deal.deal_id: copy_of(deal) for deal in final[Deal]}
        for entity in (Category, FrontPage, EditorsChoice):
            pages = {page.item_key: page for page in final.puts(entity)}.values()
            mended = {p: tuple(true[copy.deal_id] for copy in p.featured) for p in pages}
            wanted = [p.model_copy(update={"featured": deals}) for p, deals in mended.items()]
            yield final.compare(entity, wanted)


@pytest.mark.parametrize("seed", seeds(3))
def test_edits_racing_with_pages_of_old_readings_leave_no_old_copy_and_no_old_page(seed):
    trouble = Trouble(crash=0.01, slow=0.5, pause=0.5)
    ran = trial(app, Editors(), shape=SHAPE, seed=seed, acts=60, trouble=trouble)
    assert all(comparison.compared for comparison in ran.comparisons)


# -- reads, and ids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (Deal.by_day, {}),
        (Deal.by_brand, {"brand": "ACME"}),
        (Deal.by_category, {"category": "AUDIO"}),
    ],
    ids=["by day", "by brand", "by category"],
)
def test_deals_of_a_day_come_newest_first(deals, index, fields):
    old, new = a_deal(1), a_deal(2, minutes=5)
    deals.put(old, new, a_deal(3, minutes=24 * 60, brand="OTHER", category="GARDEN"))
    query = Deal.query(index=index, created_at=NOON, **fields).reverse()
    assert deals.query(query) == [new, old]


def test_the_index_of_users_holds_users_and_nothing_else(deals):
    ann = User(username="ann", name="Ann")
    deals.put(ann, Category(category="AUDIO"), message_of(a_deal(), "ann"))
    request = {"TableName": app.table, "IndexName": "UserIndex"}
    _, page = deals.world.engine.call("dynamodb", "Scan", request)
    assert [item["username"]["S"] for item in page["Items"]] == ["ann"]


def test_a_ksuid_has_27_characters_and_sorts_by_its_second():
    ids = [ksuid(NOON + timedelta(seconds=n), random.Random(n).getrandbits(128)) for n in range(50)]
    assert {len(text) for text in ids} == {27}
    assert ids == sorted(ids)


def test_a_ksuid_is_what_the_format_says():
    # The largest one of the format's specification: all bits set.
    last = datetime.fromtimestamp(1_400_000_000 + 2**32 - 1, UTC)
    assert ksuid(last, 2**128 - 1) == "aWgEPTl1tmebfsQzFP4bxwgy80V"


def test_a_derived_id_is_always_the_same_and_sorts_with_its_source():
    source, later = ksuid(NOON, 1), ksuid(NOON + timedelta(seconds=1), 0)
    assert derive(source, "ann") == derive(source, "ann")
    assert derive(source, "ann") != derive(source, "bob")
    assert derive(source, "ann") < later


@pytest.mark.parametrize("text", ["", "short", "!" * 27])
def test_what_is_not_a_ksuid_derives_nothing(text):
    with pytest.raises(ValueError):
        derive(text, "ann")

"""What follows from what in Big Time Deals: counts, the set of brands, messages to watchers."""

from typing import Annotated

from handlers.deals.entities import (
    Brand,
    BrandLike,
    Brands,
    BrandWatch,
    CategoryLike,
    CategoryWatch,
    Deal,
    Message,
)
from handlers.deals.ksuid import derive
from streamkit import (
    AddToSet,
    Aggregate,
    App,
    Count,
    Inserted,
    Key,
    Put,
    Removed,
    RemoveFromSet,
    Table,
    absent,
)

app = App("deals", table="BigTimeDeals")


@app.aggregate
class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"):
    """How many users like a brand."""

    brand: str
    likes: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, like: BrandLike) -> Key["BrandLikes"]:
        """Count by brand."""
        return cls.key(brand=like.brand)


@app.aggregate
class BrandWatches(Aggregate[BrandWatch], pk="BRANDWATCHES#{brand}", sk="BRANDWATCHES#{brand}"):
    """How many users watch a brand."""

    brand: str
    watches: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, watch: BrandWatch) -> Key["BrandWatches"]:
        """Count by brand."""
        return cls.key(brand=watch.brand)


@app.aggregate
class CategoryLikes(
    Aggregate[CategoryLike], pk="CATEGORYLIKES#{category}", sk="CATEGORYLIKES#{category}"
):
    """How many users like a category."""

    category: str
    likes: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, like: CategoryLike) -> Key["CategoryLikes"]:
        """Count by category."""
        return cls.key(category=like.category)


@app.aggregate
class CategoryWatches(
    Aggregate[CategoryWatch], pk="CATEGORYWATCHES#{category}", sk="CATEGORYWATCHES#{category}"
):
    """How many users watch a category."""

    category: str
    watches: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, watch: CategoryWatch) -> Key["CategoryWatches"]:
        """Count by category."""
        return cls.key(category=watch.category)


@app.aggregate
class UnreadMessages(Aggregate[Message], pk="UNREAD#{username}", sk="UNREAD#{username}"):
    """How many messages of a user are unread; it follows reading, deleting and expiry."""

    username: str
    unread: Annotated[int, Count(when=lambda message: message.unread)] = 0

    @classmethod
    def group(cls, message: Message) -> Key["UnreadMessages"]:
        """Count by user."""
        return cls.key(username=message.username)


@app.on
def list_brand(
    change: Inserted[Brand] | Removed[Brand],
) -> AddToSet[Brands] | RemoveFromSet[Brands]:
    """Keep the set of all brands: one handler for both ways, so that they stay in order."""
    if isinstance(change, Inserted):
        return AddToSet(Brands.key(), names={change.new.brand})
    return RemoveFromSet(Brands.key(), names={change.old.brand})


@app.on
async def notify_watchers(change: Inserted[Deal], table: Table) -> list[Put[Message]]:
    """Tell everyone who watches the deal's brand or category, once each.

    The message's id follows from deal and user, and it is only put where there is none: were the
    deal delivered again, nobody would get a second message, and none would be unread again. All
    messages are one result, which is why brand and category together have at most 99 watchers.
    """
    deal = change.new
    brand_watches = table.query(BrandWatch.query(brand=deal.brand), consistent=True)
    category_watches = table.query(CategoryWatch.query(category=deal.category), consistent=True)
    watchers = {watch.username async for watch in brand_watches}
    watchers |= {watch.username async for watch in category_watches}
    return [
        Put(message_of(deal, username)).only_if(absent, otherwise="omit")
        for username in sorted(watchers)
    ]


def message_of(deal: Deal, username: str) -> Message:
    """Write the message that tells a user of a deal."""
    return Message(
        username=username,
        message_id=derive(deal.deal_id, username),
        deal_id=deal.deal_id,
        text=f"{deal.brand}: {deal.title} for {deal.price}",
        expires=deal.expires,
    )

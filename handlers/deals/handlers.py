"""What follows from what in Big Time Deals: counts, messages, and copies of deals."""

from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import Field

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
from handlers.deals.ksuid import derive
from streamkit import (
    AddToSet,
    Aggregate,
    App,
    Count,
    Expired,
    IndexShape,
    Inserted,
    Key,
    Modified,
    Put,
    Query,
    Removed,
    RemoveFromSet,
    Scan,
    Set,
    Table,
    TableShape,
    Top,
    absent,
    became,
    changed,
)

P = TypeVar("P", bound=Page)

CACHES = 4
"""Items that hold the latest deals: the same under several keys, to spread the reads."""
LATEST = 25

app = App("deals", table="BigTimeDeals", entities=[Brands, FeaturedOn, User])

SHAPE = TableShape(ttl="expires", indexes={"UserIndex": IndexShape(pk="UserIndex")})
"""Three overloaded indexes follow from the entities; the sparse one has a key of its own name."""


# -- counts ------------------------------------------------------------------------------------


@app.aggregate
class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"):
    """How many users like a brand."""

    brand: str
    likes: Annotated[int, Count()] = 0


@app.aggregate
class BrandWatches(Aggregate[BrandWatch], pk="BRANDWATCHES#{brand}", sk="BRANDWATCHES#{brand}"):
    """How many users watch a brand."""

    brand: str
    watches: Annotated[int, Count()] = 0


@app.aggregate
class LikesOfBrand(Aggregate[BrandLike], onto=Brand, missing="skip"):
    """The same count on the brand itself, for pages that show one; without a brand, nowhere."""

    likes_count: Annotated[int, Count()] = Field(default=0, alias="LikesCount")


@app.aggregate
class WatchesOfBrand(Aggregate[BrandWatch], onto=Brand, missing="skip"):
    """Watches likewise."""

    watch_count: Annotated[int, Count()] = Field(default=0, alias="WatchCount")


@app.aggregate
class CategoryLikes(
    Aggregate[CategoryLike], pk="CATEGORYLIKES#{category}", sk="CATEGORYLIKES#{category}"
):
    """How many users like a category."""

    category: str
    likes: Annotated[int, Count()] = 0


@app.aggregate
class CategoryWatches(
    Aggregate[CategoryWatch], pk="CATEGORYWATCHES#{category}", sk="CATEGORYWATCHES#{category}"
):
    """How many users watch a category."""

    category: str
    watches: Annotated[int, Count()] = 0


@app.aggregate
class UnreadMessages(Aggregate[Message], pk="UNREAD#{username}", sk="UNREAD#{username}"):
    """How many messages of a user are unread; it follows reading, deleting and expiry."""

    username: str
    unread: Annotated[int, Count(when=lambda message: message.unread)] = 0


@app.on
def list_brand(
    change: Inserted[Brand] | Removed[Brand],
) -> AddToSet[Brands] | RemoveFromSet[Brands]:
    """Keep the set of all brands: one handler for both ways, so that they stay in order."""
    if isinstance(change, Inserted):
        return AddToSet(Brands.key(), names={change.new.brand})
    return RemoveFromSet(Brands.key(), names={change.old.brand})


# -- messages ----------------------------------------------------------------------------------


def watchers_of_brand(change: Inserted[Deal]) -> Query[BrandWatch]:
    """Return the watches of a deal's brand."""
    return BrandWatch.query(brand=change.new.brand)


def watchers_of_category(change: Inserted[Deal]) -> Query[CategoryWatch]:
    """Return the watches of a deal's category."""
    return CategoryWatch.query(category=change.new.category)


def everybody(change: Inserted[Deal] | Modified[Deal]) -> Scan[User]:  # noqa: ARG001
    """Return all users; their index contains nothing else."""
    return Scan(User, index=User.all_users)


@app.fan_out(watchers_of_brand)
def tell_brand_watchers(change: Inserted[Deal], to: BrandWatch) -> Put[Message]:
    """Tell everyone who watches the deal's brand."""
    return new_message(message_of(change.new, to.username))


@app.fan_out(watchers_of_category)
async def tell_category_watchers(
    change: Inserted[Deal], to: CategoryWatch, table: Table
) -> Put[Message] | None:
    """Tell everyone who watches the deal's category, except those who are told by its brand."""
    watch = BrandWatch.key(brand=change.new.brand, username=to.username)
    if await table.get(watch, check=False) is not None:
        return None
    return new_message(message_of(change.new, to.username))


@app.fan_out(everybody, when=became("hot", True))
def tell_everybody(change: Inserted[Deal] | Modified[Deal], to: User) -> Put[Message]:
    """Tell every user of a deal that is hot now."""
    return new_message(message_of(change.new, to.username, hot=True))


def new_message(message: Message) -> Put[Message]:
    """Put a message where there is none: what its reader has opened stays as it is."""
    return Put(message).only_if(absent, otherwise="omit")


def message_of(deal: Deal, username: str, *, hot: bool = False) -> Message:
    """Write the message that tells a user of a deal; the same one whenever it is asked for."""
    about = f"{deal.brand}: {deal.title} for {deal.price}"
    return Message(
        username=username,
        message_id=derive(deal.deal_id, username, *(["hot"] if hot else [])),
        deal_id=deal.deal_id,
        text=f"Hot! {about}" if hot else about,
        expires=deal.expires,
    )


# -- copies of deals ---------------------------------------------------------------------------


def copy_of(deal: Deal | RecentDeal) -> FeaturedDeal:
    """Return what pages show of a deal."""
    return FeaturedDeal(deal_id=deal.deal_id, title=deal.title, price=deal.price)


@app.derive
def recent_deal(deal: Deal) -> RecentDeal:
    """Keep all deals in one collection, because an index trails the table and would not do."""
    return RecentDeal(deal_id=deal.deal_id, title=deal.title, price=deal.price)


@app.aggregate
class DealsCache(Aggregate[RecentDeal], pk="DEALSCACHE#{number}", sk="DEALSCACHE#{number}"):
    """The latest deals, newest first. Ids sort by time."""

    number: int
    deals: Annotated[
        tuple[FeaturedDeal, ...],
        Top(LATEST, by="deal_id", of=copy_of),
    ] = ()

    @classmethod
    def group(cls, deal: RecentDeal) -> list[Key["DealsCache"]]:  # noqa: ARG003
        """Keep all copies in the same way."""
        return [cls.key(number=number) for number in range(1, CACHES + 1)]

    @classmethod
    def members(cls, number: int) -> Query[RecentDeal]:  # noqa: ARG003
        """Return all deals: who comes next if one of the latest is withdrawn."""
        return RecentDeal.query()


@app.derive
def on_category(page: Category) -> list[FeaturedOn]:
    """Say which deals a category features."""
    return links("CATEGORY", page.category, page.featured)


@app.derive
def on_front_page(page: FrontPage) -> list[FeaturedOn]:
    """Say which deals the front page features."""
    return links("FRONTPAGE", str(page.number), page.featured)


@app.derive
def on_editors_choice(page: EditorsChoice) -> list[FeaturedOn]:
    """Say which deals the editors feature."""
    return links("EDITORSCHOICE", str(page.number), page.featured)


@app.on(cycle="bounded")
async def mend_category(
    change: Inserted[Category] | Modified[Category], table: Table
) -> Set[Category] | None:
    """Mend what a category was given of deals that had changed by then."""
    return await mended(change.new.item_key, table)


@app.on(cycle="bounded")
async def mend_front_page(
    change: Inserted[FrontPage] | Modified[FrontPage], table: Table
) -> Set[FrontPage] | None:
    """Mend the front page likewise."""
    return await mended(change.new.item_key, table)


@app.on(cycle="bounded")
async def mend_editors_choice(
    change: Inserted[EditorsChoice] | Modified[EditorsChoice], table: Table
) -> Set[EditorsChoice] | None:
    """Mend the editors' choice likewise."""
    return await mended(change.new.item_key, table)


def pages_of(change: Modified[Deal] | Removed[Deal] | Expired[Deal]) -> Query[FeaturedOn]:
    """Return where a deal is featured."""
    return FeaturedOn.query(deal_id=change.old.deal_id)


@app.fan_out(
    pages_of,
    when=changed("title", "price"),
    writes=(Category, FrontPage, EditorsChoice),
)
async def mend_pages(
    change: Modified[Deal] | Removed[Deal] | Expired[Deal],  # noqa: ARG001
    to: FeaturedOn,
    table: Table,
) -> Set[Page] | None:
    """Bring every page with a copy of the deal up to date; a deal that is gone leaves it."""
    return await mended(page_key(to), table)


async def mended(key: Key[P], table: Table) -> Set[P] | None:
    """Return what makes all copies on a page as their deals are.

    Page and deals stand in the commit as they were read here, or this runs again. That is so too
    where nothing has to be done: the change that says which deals are on the page is committed no
    earlier, so whatever changes a deal after that finds the page.
    """
    page = await table.get(key)
    if page is None:
        return None
    deals = await table.batch_get(Deal.key(deal_id=copy.deal_id) for copy in page.featured)
    found = {deal.deal_id: copy_of(deal) for deal in deals.values()}
    featured = tuple(found[copy.deal_id] for copy in page.featured if copy.deal_id in found)
    return None if featured == page.featured else Set(key, featured=featured)


def links(kind: str, name: str, featured: Iterable[FeaturedDeal]) -> list[FeaturedOn]:
    """Return one link for each deal of a page."""
    return [FeaturedOn(deal_id=copy.deal_id, kind=kind, name=name) for copy in featured]


def page_key(link: FeaturedOn) -> Key[Page]:
    """Return the key of the page that a link is of."""
    if link.kind == "CATEGORY":
        return Category.key(category=link.name)
    page: type[Page] = FrontPage if link.kind == "FRONTPAGE" else EditorsChoice
    return page.key(number=int(link.name))

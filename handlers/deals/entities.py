"""The entities of Big Time Deals: what the items of its table look like.

Keys and index keys are built from fields. Only the handlers write the set of all brands, messages
(until their reader opens them), what pages a deal is on, the recent deals, and the aggregates,
which stand beside their handlers.
"""

from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from pydantic import BaseModel, Field

from streamkit import Entity, EpochSeconds, Index


class Deal(Entity, pk="DEAL#{deal_id}", sk="DEAL#{deal_id}"):
    """An offer; its id is a KSUID, so that deals sort by the time they were posted."""

    deal_id: str
    title: str
    price: Decimal
    brand: str
    category: str
    created_at: datetime
    hot: bool = False
    expires: EpochSeconds | None = None

    by_day: ClassVar = Index("GSI1", pk="DEALS#{created_at:%Y-%m-%d}", sk="DEAL#{deal_id}")
    by_brand: ClassVar = Index(
        "GSI2", pk="BRAND#{brand}#{created_at:%Y-%m-%d}", sk="DEAL#{deal_id}"
    )
    by_category: ClassVar = Index(
        "GSI3", pk="CATEGORY#{category}#{created_at:%Y-%m-%d}", sk="DEAL#{deal_id}"
    )


class FeaturedDeal(BaseModel, frozen=True):
    """What a page shows of a deal: a copy, so that the page is one read."""

    deal_id: str
    title: str
    price: Decimal


class RecentDeal(Entity, pk="RECENTDEALS", sk="DEAL#{deal_id}"):
    """A deal once more: all of them in one collection of the table, which can be read as it is."""

    deal_id: str
    title: str
    price: Decimal


class Brand(Entity, pk="BRAND#{brand}", sk="BRAND#{brand}"):
    """A brand. The handlers keep its counts, so the application sets fields and puts none."""

    brand: str
    logo_url: str
    likes_count: int = Field(default=0, alias="LikesCount")
    watch_count: int = Field(default=0, alias="WatchCount")


class Brands(Entity, pk="BRANDS", sk="BRANDS"):
    """The names of all brands, in one item."""

    names: frozenset[str] = frozenset()


class BrandLike(Entity, pk="BRANDLIKE#{brand}#{username}", sk="BRANDLIKE#{brand}#{username}"):
    """A user likes a brand: once."""

    brand: str
    username: str


class BrandWatch(Entity, pk="BRANDWATCH#{brand}", sk="USER#{username}"):
    """A user wants to hear of a brand's deals. One collection a brand: it is the audience."""

    brand: str
    username: str
    expires: EpochSeconds | None = None


class Page(Entity):
    """What shows deals."""

    featured: tuple[FeaturedDeal, ...] = ()


class Category(Page, pk="CATEGORY#{category}", sk="CATEGORY#{category}"):
    """A category, with the deals that its page features."""

    category: str


class CategoryLike(
    Entity, pk="CATEGORYLIKE#{category}#{username}", sk="CATEGORYLIKE#{category}#{username}"
):
    """A user likes a category: once."""

    category: str
    username: str


class CategoryWatch(Entity, pk="CATEGORYWATCH#{category}", sk="USER#{username}"):
    """A user wants to hear of a category's deals."""

    category: str
    username: str
    expires: EpochSeconds | None = None


class FrontPage(Page, pk="FRONTPAGE#{number}", sk="FRONTPAGE#{number}"):
    """What the front page features: the same under several numbers, to spread its reads."""

    number: int


class EditorsChoice(Page, pk="EDITORSCHOICE#{number}", sk="EDITORSCHOICE#{number}"):
    """What the editors feature, spread like the front page."""

    number: int


class FeaturedOn(Entity, pk="FEATURED#{deal_id}", sk="{kind}#{name}"):
    """A page features a deal: how a deal finds the pages with copies of it."""

    deal_id: str
    kind: str
    name: str


class User(Entity, pk="USER#{username}", sk="USER#{username}"):
    """A user. Only users are in the index, so reading it whole finds them and nothing else."""

    username: str
    name: str

    all_users: ClassVar = Index("UserIndex", pk="USER#{username}")


class Message(Entity, pk="MESSAGES#{username}", sk="MESSAGE#{message_id}"):
    """A user is told of a deal. It is in the index while it is unread; it ends with its deal."""

    username: str
    message_id: str
    deal_id: str
    text: str
    unread: bool = True
    expires: EpochSeconds | None = None

    unread_only: ClassVar = Index(
        "GSI1",
        pk="MESSAGES#{username}",
        sk="MESSAGE#{message_id}",
        when=lambda message: message.unread,
    )

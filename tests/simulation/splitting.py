"""An item of which fields are moved out into two parts, which old and new code write, taken whole.

    site, items = contracted(app_of(), seed=3, kind=Site)
    assert site.wholes.mixed == []
    assert site.lost("new") == {}

Old code writes pages with both fields, new code the part of each one. Both parts of a page are one
item, of which people decide as a whole. Parts whose page was deleted are parts alone: that is no item
any more, and no page can be made of them.

In: a seed. Out: the site, and what the table holds at the end.
"""

from streamkit import App, Entity, Remove, Set
from tests.simulation import both_shapes
from tests.simulation.both_shapes import FIELDS
from tests.simulation.wholes import Wholes


class Page(Entity, pk="C#{order_id}", sk="ORDER#{order_id}"):
    user: str
    order_id: str
    status: str | None = None
    note: str | None = None


class Part(Entity, pk="C#{order_id}", sk="#ORDER#{what}#{order_id}"):
    user: str
    order_id: str
    what: str
    status: str | None = None
    note: str | None = None


class StatusPart(Entity, pk="C#{order_id}", sk="#ORDER#STATUS#{order_id}"):
    """The part of a status, as new code writes it."""

    user: str
    order_id: str
    what: str = "STATUS"
    status: str | None = None


class NotePart(Entity, pk="C#{order_id}", sk="#ORDER#NOTE#{order_id}"):
    """The part of a note, as new code writes it."""

    user: str
    order_id: str
    what: str = "NOTE"
    note: str | None = None


def parts(page: Page) -> list[Part | Remove[Page]]:
    whose = {"user": page.user, "order_id": page.order_id}
    said = {name: getattr(page, name) for name in FIELDS}
    found = [Part(**whose, what=n.upper(), **{n: v}) for n, v in said.items() if v is not None]
    return [*found, Remove(*FIELDS)] if found else []


def page_again(page: Page, parts: list[Part]) -> Set[Page]:
    said = {n: v for one in parts for n in FIELDS if (v := getattr(one, n)) is not None}
    return Set(**{name: said.get(name) for name in FIELDS})


def all_parts(page):
    return Part.query(order_id=page.order_id)


def app_of(settle="item", collect=all_parts):
    app = App("shop", table="Shop", entities=[Page, Part])
    app.migration(
        "0001",
        Page,
        mode="split",
        settle=settle,
        reverse=page_again,
        collect=collect,
        source=lambda part: Page.key(order_id=part.order_id),
    )(parts)
    return app


class Site(both_shapes.Site):
    """A table of pages and their parts, and which pairs of fields there have been."""

    entities = {"old": (Page,), "new": (StatusPart, NotePart)}

    def __init__(self, *given):
        super().__init__(*given)
        self.wholes = Wholes(self.world, lambda order: self.ledger.there["old", order])

    def lost(self, side):
        """Return the writes that are lost on a side; what parts without a page say is there."""
        pages = {order for (on, order), there in self.ledger.there.items() if on == "old" and there}
        ends = {"new": self.ledger.lost("new"), "old": self.ledger.lost("old")}
        of = {place: one for place, one in ends[side].items() if place[0] in pages}
        return of | {place: one for place, one in ends["new"].items() if place[0] not in pages}

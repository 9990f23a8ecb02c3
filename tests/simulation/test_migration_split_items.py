"""Items of which fields are moved out, taken whole: old and new code write, processes die and stand still."""

import pytest

from streamkit.migrate.families import settlement
from streamkit.model.copies import COPY
from tests.seeds import seeds
from tests.simulation.both_shapes import FIELDS, contracted, rolled_back
from tests.simulation.splitting import Part, Site, app_of

FEW = {"orders": 3, "acts": 8}


def pages(items):
    return [item for item in items if item["SK"]["S"].startswith("ORDER#")]


@pytest.mark.parametrize("seed", seeds())
def test_no_write_is_lost_and_no_mixed_page_comes_about(seed):
    """Even seeds go to the end, odd ones back: one run is enough for `make test`."""
    way, side = ((contracted, "new"), (rolled_back, "old"))[seed % 2]
    site, items = way(app_of(), seed=seed, kind=Site, **FEW)
    assert site.wholes.mixed == []
    assert site.lost(side) == {}
    assert not [page for page in pages(items) if COPY in page]
    assert side == "old" or not [page for page in pages(items) if page.keys() & {*FIELDS}]


def test_parts_that_several_queries_find_are_all_brought_back():
    def by_kind(page):
        return [Part.query(order_id=page.order_id, what=name.upper()) for name in FIELDS]

    site, _ = rolled_back(app_of(collect=by_kind), seed=1, kind=Site, **FEW)
    assert site.lost("old") == {}


def test_pages_that_are_merged_by_field_are_found(monkeypatch):
    monkeypatch.setattr(settlement, "_all_that_differs", lambda *_: frozenset())
    site, _ = rolled_back(app_of(), seed=10, kind=Site, **FEW)
    assert site.wholes.mixed

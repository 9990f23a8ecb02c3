"""What the pages say of `otherwise=` and of several counts in a class is what happens."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from streamkit import Add, App, Effect, Entity, Inserted, Put, absent
from tests.pages import examples, module_of, rows, section


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Place(Entity, pk="PLACE#{name}", sk="PLACE"):
    name: str
    by: int = 0


class Tally(Entity, pk="TALLY", sk="TALLY"):
    n: int = 0


TABLE = rows(section("docs/handlers.md", "When a condition does not hold, or a handler fails"))[2:]
DONE = {"is done": 0, "is parked": 1, "the handler runs again": 1}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_each_row_of_the_table_of_otherwise_is_what_happens(row, harness_of):
    said, there, other, change = row
    otherwise = said.strip('"')
    app = App("shop", table="Shop")
    runs = []

    @app.on(writes=(Place, Tally))
    def take(change: Inserted[Order]) -> list[Effect]:
        runs.append(change)
        place = Put(Place(name="a", by=change.new.number)).only_if(absent, otherwise=otherwise)
        return [place, Add(Tally.key(), n=1)]

    harness = harness_of(app)
    harness.put(Place(name="a", by=7), Order(number=1))
    parks = next(parks for text, parks in DONE.items() if change.startswith(text))
    harness.settle(parks=bool(parks))
    assert there == "stays"
    assert harness.get(Place.key(name="a")).by == 7
    assert (harness.get(Tally.key()) is not None) == (other == "is written")
    assert len(harness.parked()) == parks
    if otherwise == "retry":
        assert "after 5 times" in change
        assert len(runs) == 6


def test_the_table_of_otherwise_has_all_its_values():
    assert {row[0].strip('"') for row in TABLE} == {"omit", "skip", "park", "retry"}


def test_several_counts_of_one_source_share_a_class(harness_of):
    page = module_of(*examples("docs/aggregates.md"))
    counts, sale = page["PerCountry"], page["Sale"]
    harness = harness_of(page["app"])
    at = datetime(2026, 3, 1, tzinfo=UTC)
    for number, amount in enumerate(("9.50", "100", "250")):
        sold = sale(number=number, country="DE", amount=Decimal(amount), buyer="ann", at=at)
        harness.put(sold)
    harness.settle()
    found = harness.get(counts.key(country="DE"))
    assert (found.sales, found.large, found.total) == (3, 2, Decimal("359.50"))

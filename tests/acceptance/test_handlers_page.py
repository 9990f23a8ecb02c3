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


def test_the_index_of_several_fields_of_the_page_answers_its_queries(harness_of):
    page = module_of(*examples("docs/handlers.md")[:3], name="handlers_page_of_matches")
    match = page["Match"]
    app = App("matches", table="Matches", entities=[match])

    @app.on
    def nothing(change: Inserted[Order]) -> None: ...

    harness = harness_of(app)
    common = {"tournament": "WINTER", "region": "EU"}
    for number, (round_, bracket) in enumerate(
        [(10, "LOWER"), (3, "UPPER"), (3, "LOWER"), (2, "A")]
    ):
        item = match(match_id=str(number), round=round_, bracket=bracket, **common)
        harness.put(item)
    harness.put(match(match_id="none", round=3, **common))

    def found(query):
        return [match.match_id for match in harness.query(query)]

    assert found(page["all_of_winter"]) == ["3", "2", "1", "0"]
    assert found(page["third"]) == ["2", "1"]
    assert found(page["third_or_later"]) == ["2", "1", "0"]
    assert found(page["upper_part"]) == ["1"]
    with pytest.raises(ValueError, match="also needs round"):
        match.query(index=match.by_round, bracket="UPPER", **common)


def test_an_update_needs_all_that_the_keys_of_an_index_need_as_the_page_says(harness_of):
    page = module_of(*examples("docs/handlers.md")[:2], name="handlers_page_of_tickets")
    ticket = page["Ticket"]
    harness = harness_of(App("tickets", table="Tickets", entities=[ticket]))
    harness.put(ticket(number=7, status="OPEN", agent="bob"))
    with pytest.raises(ValueError, match="index GSI3, which also needs agent"):
        harness.update(ticket.key(number=7), status="CLOSED")
    harness.update(ticket.key(number=7), status="CLOSED", agent="ann")
    for index, by in (
        (ticket.by_status, {"status": "CLOSED"}),
        (ticket.by_agent, {"agent": "ann", "status": "CLOSED"}),
    ):
        assert len(harness.query(ticket.query(index=index, **by))) == 1

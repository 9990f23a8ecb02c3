"""Sales, one statement of its README at a time, and under traffic."""

from decimal import Decimal

import pytest

from handlers.sales.entities import Sale
from handlers.sales.handlers import SHAPE, CitySales, CountrySales, StoreSales, app
from handlers.sales.traffic import Traffic
from streamkit.testing import trial
from tests.seeds import seeds

BERLIN = {"country": "DE", "city": "BERLIN"}


def a_sale(amount="10.00", date="2026-03-01T09:30", **place):
    fields = {**BERLIN, "store": "7", **place}
    return Sale(**fields, date=date, amount=Decimal(amount))


@pytest.fixture
def shop(harness_of):
    return harness_of(app, shape=SHAPE)


@pytest.mark.parametrize("seed", seeds(4))
def test_every_total_is_what_the_sales_add_up_to(seed):
    ran = trial(app, Traffic(), shape=SHAPE, seed=seed)
    assert all(comparison.compared > 20 for comparison in ran.comparisons)


def test_one_sale_is_in_nine_totals(shop):
    shop.put(a_sale())
    shop.settle()
    groups = [item for kind in (CountrySales, CitySales, StoreSales) for item in shop.scan(kind)]
    assert [(group.sales, group.total) for group in groups] == [(1, Decimal(10))] * 9


def test_a_correction_and_a_cancellation_correct_every_level(shop):
    shop.put(a_sale("10.00"), a_sale("5.00", "2026-03-02T10:00"))
    shop.settle()
    shop.put(a_sale("8.50"))
    shop.delete(a_sale("5.00", "2026-03-02T10:00").item_key)
    shop.settle()
    for key in (
        CountrySales.key(country="DE", unit="ALL", start="TIME"),
        CitySales.key(**BERLIN, unit="MONTH", start="2026-03"),
        StoreSales.key(**BERLIN, store="7", unit="DAY", start="2026-03-01"),
    ):
        found = shop.get(key)
        assert (found.sales, found.total) == (1, Decimal("8.5"))


def test_a_day_on_which_a_store_sold_nothing_after_all_is_gone(shop):
    shop.put(a_sale())
    shop.settle()
    shop.delete(a_sale().item_key)
    shop.settle()
    assert shop.query(StoreSales.query(**BERLIN, store="7")) == []
    assert {group.sales for group in shop.query(CountrySales.query(country="DE"))} == {0}


def test_the_days_of_a_month_are_one_query_without_its_months(shop):
    days = ["2026-02-28", "2026-03-01", "2026-03-31", "2026-04-01"]
    shop.put(*(a_sale(date=day) for day in days))
    shop.settle()
    march = CitySales.query(**BERLIN, unit="DAY").between("2026-03-01", "2026-03-31")
    assert [group.start for group in shop.query(march)] == ["2026-03-01", "2026-03-31"]
    year = CitySales.query(**BERLIN, unit="MONTH").between("2026-01", "2026-12")
    assert [group.start for group in shop.query(year)] == ["2026-02", "2026-03", "2026-04"]


def test_a_hot_country_is_kept_in_parts_and_read_as_one(shop):
    key = CountrySales.key(country="DE", unit="ALL", start="TIME")
    for day in range(1, 7):
        shop.put(a_sale(date=f"2026-03-0{day}"))
        shop.settle()
        shop.split()
    assert len(shop._run(shop.table.parts(key))) > 1
    assert (shop.get(key).sales, shop.get(key).total) == (6, Decimal(60))
    assert [group.sales for group in shop.query(CountrySales.query(country="DE", unit="ALL"))] == [
        6
    ]


def test_a_total_is_exact_to_38_digits_and_never_rounded(shop):
    large = "9" * 36 + ".97"
    shop.put(a_sale(large), a_sale("0.02", "2026-03-02"))
    shop.settle()
    key = CitySales.key(**BERLIN, unit="ALL", start="TIME")
    assert shop.get(key).total == Decimal("9" * 36 + ".99")
    shop.put(a_sale("0.02", "2026-03-03"))
    shop.settle(parks=True)
    assert shop.get(key).total == Decimal("9" * 36 + ".99")
    assert {parked.handler for parked in shop.parked()} == {
        "CitySales",
        "CountrySales",
        "StoreSales",
    }

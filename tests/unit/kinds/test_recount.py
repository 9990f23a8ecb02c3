"""What tells a rebuild that the items behind a group are at rest, and what its ledger keeps."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import pytest

from streamkit import Aggregate, Count, Entity, EpochSeconds, Max, Sum, Until
from streamkit.kinds.aggregate.counting import entry_text, read_entry
from streamkit.kinds.aggregate.recount import Recount, place_of, stored_facts
from tests.pending import SCHEMA


class Sale(Entity, pk="SALE#{number}", sk="SALE"):
    number: int
    shop: str
    day: date = date(2026, 5, 1)
    amount: int = 0


class Till(Aggregate[Sale], pk="TILL#{shop}", sk="DAY#{day}"):
    shop: str
    day: date
    sales: Annotated[int, Count()] = 0
    total: Annotated[int, Sum("amount")] = 0


GROUP = ("TILL#a", "DAY#2026-05-01")


def recounted(*amounts):
    recount = Recount(Till, SCHEMA, 0.0, only=[GROUP])
    for number, amount in enumerate(amounts):
        recount.add(Sale(number=number, shop="a", amount=amount))
    return recount


def test_items_that_swap_their_amounts_are_not_at_rest_although_the_sum_is():
    one, other = recounted(10, 20), recounted(20, 10)
    assert one.facts() == other.facts() == {GROUP: {"sales": 2, "total": 30}}
    assert one.marks != other.marks
    assert one.marks == recounted(10, 20).marks
    assert recounted(10, 10).marks != recounted().marks, "equal amounts do not hide each other"


def test_an_entry_of_the_ledger_keeps_the_fields_of_its_group_which_may_have_to_be_made_again():
    text = entry_text(Till, Sale(number=1, shop="a", amount=7))
    ((key, amounts),) = read_entry(Till, text).items()
    assert (key.pk, key.sk) == GROUP
    assert dict(key.fields) == {"shop": "a", "day": date(2026, 5, 1)}
    assert amounts == {"sales": Decimal(1), "total": Decimal(7)}
    assert not read_entry(Till, None)


# -- what groups should hold, and what they hold ---------------------------------------------------

END = datetime(2026, 5, 2, tzinfo=UTC).timestamp()


class Day(Aggregate[Sale], pk="DAY#{shop}", sk="DAY#{day}"):
    shop: str
    day: date
    sales: Annotated[int, Count()] = 0
    total: Annotated[int, Sum("amount")] = 0
    end: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=1), tz="UTC")] = None


class Best(Aggregate[Sale], pk="BEST#{shop}", sk="BEST"):
    shop: str
    best: Annotated[int | None, Max("amount")] = None


def test_the_groups_that_are_asked_for_are_added_up_and_no_others():
    sales = [Sale(number=n, shop=shop, amount=1) for n, shop in enumerate("aab")]
    for only, shops in (([GROUP], "a"), (None, "ab")):
        recount = Recount(Till, SCHEMA, 0.0, only=only)
        for sale in sales:
            recount.add(sale)
        assert recount.facts().keys() == {(f"TILL#{shop}", GROUP[1]) for shop in shops}
        assert bool(recount.marks[GROUP]) == (only is not None)


@pytest.mark.parametrize(("seconds", "over"), [(-1, False), (0, False), (1, True)])
def test_a_bucket_that_is_over_is_neither_added_up_nor_read(seconds, over):
    recount = Recount(Day, SCHEMA, END + seconds)
    recount.add(Sale(number=1, shop="a", amount=3))
    assert list(recount.facts().values()) == ([] if over else [{"sales": 1, "total": 3}])
    item = {"sales": {"N": "1"}, "total": {"N": "3"}}
    kept = stored_facts(Day, item | {"end": {"N": str(int(END))}}, END + seconds)
    assert kept == (None if over else {"sales": 1, "total": 3})
    assert stored_facts(Day, item, END + seconds) is not None, "it does not say when it ends"


def test_what_comes_to_nothing_is_no_fact():
    assert recounted(5, -5).facts() == {GROUP: {"sales": 2}}
    assert stored_facts(Till, {"sales": {"N": "2"}, "total": {"N": "0"}}, 0.0) == {"sales": 2}
    assert stored_facts(Best, {}, 0.0) == {}


def test_items_whose_extremes_have_changed_are_not_at_rest():
    def marked(amount):
        recount = Recount(Best, SCHEMA, 0.0, only=[("BEST#a", "BEST")])
        recount.add(Sale(number=1, shop="a", amount=amount))
        return recount.marks

    assert marked(1) == marked(1) != marked(2)


def test_the_place_of_a_group_is_where_its_table_keeps_it():
    key = Till.key(shop="a", day=date(2026, 5, 1))
    assert place_of(key, SCHEMA) == GROUP
    assert place_of(key, replace(SCHEMA, sk=None)) == (GROUP[0], "")

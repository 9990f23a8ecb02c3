"""What tells a rebuild that the items behind a group are at rest, and what its ledger keeps."""

from datetime import date
from decimal import Decimal
from typing import Annotated

from streamkit import Aggregate, Count, Entity, Sum
from streamkit.kinds.aggregate.counting import entry_text, read_entry
from streamkit.kinds.aggregate.recount import Recount
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

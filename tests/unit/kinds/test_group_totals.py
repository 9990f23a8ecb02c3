"""The totals of a block: which group a change counts in, and what many changes come to."""

from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated

import pytest

from streamkit import Aggregate, Count, Entity, EpochSeconds, Sum, Until
from streamkit.kinds.aggregate import adding
from streamkit.kinds.aggregate.adding import Adding, GroupTotals, effects_of


class Sale(Entity, pk="SALE#{number}", sk="SALE"):
    number: int = 1
    shop: bool | int | str = "a"
    amount: int | Decimal = 0
    paid: bool = True


class Till(Aggregate[Sale], pk="TILL#{shop}", sk="TILL"):
    shop: bool | int | str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)
    paid: Annotated[Decimal, Sum("amount", when=lambda sale: sale.paid)] = Decimal(0)


def totals(*changes, derived=True):
    """Return the totals of changes, each an old and a new item."""
    found = effects_of(Till, derived=derived).totals()
    for old, new in changes:
        found.add(found.deltas(old, new))
    return found


def test_a_group_has_the_fields_that_the_last_change_of_it_says():
    one, other = Till.key(shop="1"), Till.key(shop=1)
    assert one == other
    found = GroupTotals(lambda old, new: ())
    for key in (one, other):
        found.add([(key, {"sales": 1})])
    (effect,) = found.effects()
    assert effect.key is other
    assert effect.amounts == {"sales": 2}


def test_the_widest_group_is_the_one_with_most_attributes_after_all_changes():
    a, b = Till.key(shop="a"), Till.key(shop="b")
    found = GroupTotals(lambda old, new: ())
    widths = []
    for key, names in ((a, "xy"), (b, "x"), (b, "yz"), (a, "x")):
        found.add([(key, dict.fromkeys(names, 1))])
        widths.append(found.widest)
    assert widths == [2, 2, 3, 3]


def test_sums_are_exact_until_all_changes_are_in_them():
    large = Decimal(10) ** 37
    steps = [large, Decimal("0.01"), -large]
    found = totals(*[(None, Sale(number=n, amount=a, paid=False)) for n, a in enumerate(steps)])
    (effect,) = found.effects()
    assert effect.amounts == {"sales": 3, "total": Decimal("0.01")}
    with pytest.raises(ArithmeticError):
        totals(*[(None, Sale(number=n, amount=a)) for n, a in enumerate(steps[:2])]).effects()


def test_whole_numbers_of_more_than_38_digits_are_not_added():
    with pytest.raises(ArithmeticError):
        totals((Sale(amount=10**38, paid=False), Sale(amount=10**38 + 1, paid=False)))


def test_a_value_that_no_key_can_have_is_in_no_group_of_an_equal_one():
    found = totals((None, Sale(shop=1)))
    with pytest.raises(ValueError, match="shop cannot be formatted"):
        found.deltas(None, Sale(shop=True))


def test_keys_of_groups_are_kept_up_to_a_number(monkeypatch):
    monkeypatch.setattr(adding, "_KEYS_MAX", 3)
    run = effects_of(Till, derived=True)
    found = run.totals()
    for number in range(10):
        found.add(found.deltas(None, Sale(shop=f"shop {number % 5}")))
        assert len(run._keys) < 3
    assert [effect.amounts["sales"] for effect in found.effects()] == [2] * 5


@pytest.mark.parametrize("derived", [True, False])
def test_what_a_change_leaves_as_it_is_is_no_amount(derived):
    same = Sale(amount=Decimal("5.0")), Sale(amount=Decimal(5))
    assert totals(same, derived=derived).effects() == ()
    unpaid = (Sale(amount=5), Sale(amount=5, paid=False))
    (effect,) = totals(unpaid, derived=derived).effects()
    assert effect.amounts == {"paid": -5}


def test_an_item_that_changes_its_group_leaves_one_and_enters_the_other():
    found = totals((Sale(amount=2), Sale(shop="b", amount=3)))
    assert {effect.key.pk: effect.amounts for effect in found.effects()} == {
        "TILL#a": {"sales": -1, "total": -2, "paid": -2},
        "TILL#b": {"sales": 1, "total": 3, "paid": 3},
    }


def test_changes_of_buckets_that_end_are_added_one_by_one():
    class Day(Aggregate[Sale], pk="DAY#{day}", sk="DAY"):
        day: date
        sales: Annotated[int, Count()] = 0
        end: Annotated[EpochSeconds | None, Until("day", keep=timedelta(1), tz="UTC")] = None

    assert isinstance(effects_of(Till, derived=True), Adding)
    assert not isinstance(effects_of(Day, derived=True), Adding)

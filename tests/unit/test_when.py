"""`when` conditions hold as their words say, also at the beginning and the end of an item."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum

import pytest
from pydantic import AwareDatetime

from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration
from streamkit.model.when import When, became, changed, crossed


class Status(Enum):
    PLACED = "PLACED"
    SHIPPED = "SHIPPED"


class Order(Entity, pk="O#{id}", sk="O#{id}"):
    id: str
    status: Status
    stock: int = 0
    day: date = date(2024, 1, 1)
    seen: AwareDatetime | None = None


@pytest.mark.parametrize(
    ("condition", "old", "new", "holds"),
    [
        (changed("a"), {"a": 1}, {"a": 2}, True),
        (changed("a"), {"a": 1}, {"a": 1}, False),
        (changed("a", "b"), {"a": 1, "b": 1}, {"a": 1, "b": 2}, True),
        (changed("a"), {}, {"a": 1}, True),
        (changed("a"), None, {"a": None}, True),
        (changed("a"), {"a": None}, None, True),
        (became("a", 1), {"a": 2}, {"a": 1}, True),
        (became("a", 1), {"a": 1}, {"a": 1}, False),
        (became("a", 1), None, {"a": 1}, True),
        (became("a", 1), {"a": 2}, None, False),
        (became("a", None), {"a": 2}, {}, True),
        (became("a", "SHIPPED"), {"a": Status.PLACED}, {"a": Status.SHIPPED}, True),
        (became("a", Status.SHIPPED), {"a": "PLACED"}, {"a": "SHIPPED"}, True),
        (crossed("a", below=10), {"a": 10}, {"a": 9}, True),
        (crossed("a", below=10), {"a": 9}, {"a": 8}, False),
        (crossed("a", below=10), {"a": 9}, {"a": 12}, False),
        (crossed("a", below=10), None, {"a": 3}, True),
        (crossed("a", below=10), {"a": None}, {"a": 3}, True),
        (crossed("a", below=10), {"a": 11}, {"a": None}, False),
        (crossed("a", below=10), {"a": 11}, None, False),
        (crossed("a", above=10), {"a": 10}, {"a": 11}, True),
        (crossed("a", above=10), {"a": 11}, {"a": 12}, False),
        (~changed("a"), {"a": 1}, {"a": 1}, True),
        (changed("a") & became("b", 1), {"a": 1, "b": 0}, {"a": 2, "b": 1}, True),
        (changed("a") & became("b", 1), {"a": 1, "b": 0}, {"a": 1, "b": 1}, False),
        (changed("a") | became("b", 1), {"a": 1, "b": 0}, {"a": 1, "b": 1}, True),
    ],
)
def test_a_condition_holds_as_it_says(
    condition: When, old: dict[str, object] | None, new: dict[str, object] | None, holds: bool
) -> None:
    assert condition.holds(old, new) is holds


def test_a_combination_knows_all_fields_and_says_itself() -> None:
    condition = (changed("a") & ~became("b", 1)) | crossed("a", below=2)
    assert condition.fields == ("a", "b")
    assert condition.text == "((changed('a') & ~became('b', 1)) | crossed('a', below=2))"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (changed("colour"), "Order has no field colour"),
        (~changed("stock") & became("statuss", 1), "has no field statuss"),
        (became("status", "SHIPED"), "status can never be 'SHIPED'"),
        (became("day", "2024-05-01"), "day holds a date, not a str"),
        (crossed("stock", below="10"), "stock holds int values, which cannot be compared"),
        (~crossed("day", above=datetime(2024, 5, 1, tzinfo=UTC)), "day holds date values"),
        (changed("id") | crossed("id", above=3), "id holds str values"),
        (crossed("status", above=Status.PLACED), "status holds Status values"),
    ],
)
def test_a_condition_that_can_never_hold_is_found_at_start(condition: When, message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"h \(deals.py:3\).*{message}"):
        condition.check(Order, Declaration("h", "deals.py", 3))


def test_a_condition_that_fits_the_entity_passes() -> None:
    condition = became("status", "SHIPPED") | became("status", Status.PLACED)
    (condition | became("stock", 1) | became("day", date(2024, 5, 1))).check(Order)
    became("stock", None).check(Order)
    (crossed("stock", below=Decimal("9.5")) & crossed("day", above=date(2024, 5, 1))).check(Order)
    (crossed("id", above="M") | crossed("seen", above=datetime(2024, 5, 1, tzinfo=UTC))).check(
        Order
    )


def test_a_condition_without_its_arguments_is_refused_with_its_line() -> None:
    with pytest.raises(DeclarationError, match=r"test_when.py:\d+.*name the fields"):
        changed()
    with pytest.raises(DeclarationError, match=r"test_when.py:\d+.*either below= or above="):
        crossed("a")
    with pytest.raises(DeclarationError, match="either below= or above="):
        crossed("a", below=1, above=2)

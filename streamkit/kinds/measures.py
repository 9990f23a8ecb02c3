"""Measures: how a field of an aggregate follows from the items of a group. Pure.

    likes: Annotated[int, Count()] = 0
    revenue: Annotated[Decimal, Sum("amount")] = Decimal(0)
    rating: Annotated[Decimal | None, Avg("stars")] = None

A measure turns one item into amounts by attribute name; the aggregate adds the difference between
a change's new and old amounts to the group. Amounts are exact decimals of 38 digits; a sum that
does not fit raises, and the change is parked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamkit.codec import NUMBERS

Value = str | Callable[[Any], Any]
"""A field's name, or a function of the item; None contributes nothing."""

When = Callable[[Any], bool]


def _number(value: Value, item: Any) -> Decimal | None:
    found = value(item) if callable(value) else getattr(item, value)
    if found is None:
        return None
    return NUMBERS.create_decimal(repr(found) if isinstance(found, float) else found)


@dataclass(frozen=True)
class Count:
    """How many items the group has; only those for which `when` is true, if it is given."""

    when: When | None = None

    def amounts(self, attribute: str, item: Any) -> dict[str, Decimal]:
        """Return what one item adds, by attribute."""
        if self.when is not None and not self.when(item):
            return {}
        return {attribute: Decimal(1)}


@dataclass(frozen=True)
class Sum:
    """The sum of a number over the group's items."""

    value: Value
    when: When | None = None

    def amounts(self, attribute: str, item: Any) -> dict[str, Decimal]:
        """Return what one item adds, by attribute."""
        if self.when is not None and not self.when(item):
            return {}
        number = _number(self.value, item)
        return {} if number is None else {attribute: number}


@dataclass(frozen=True)
class Avg:
    """The mean of a number over the group's items; None for an empty group.

    Stored as `<attribute>_sum` and `<attribute>_count`; the mean is made when the item is read.
    """

    value: Value
    when: When | None = None

    def amounts(self, attribute: str, item: Any) -> dict[str, Decimal]:
        """Return what one item adds, by attribute."""
        if self.when is not None and not self.when(item):
            return {}
        number = _number(self.value, item)
        if number is None:
            return {}
        return {f"{attribute}_sum": number, f"{attribute}_count": Decimal(1)}

    def read(self, attribute: str, item: dict[str, Any]) -> None:
        """Fill in the mean, in an item's plain values."""
        count = item.get(f"{attribute}_count", 0)
        if count:
            total = Decimal(item.get(f"{attribute}_sum", 0))
            item[attribute] = total / count
        else:
            item.pop(attribute, None)


Measure = Count | Sum | Avg
"""What a field of an aggregate can be annotated with."""
MEASURES = (Count, Sum, Avg)

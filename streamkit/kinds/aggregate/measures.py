"""Define how a field of an aggregate follows from the items of a group. Pure.

    likes: Annotated[int, Count()] = 0
    revenue: Annotated[Decimal, Sum("amount")] = Decimal(0)
    rating: Annotated[Decimal | None, Avg("stars")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0

A measure turns one item into amounts by attribute name; the aggregate adds the difference between a
change's new and old amounts to the group. Amounts are exact decimals of 38 digits; a sum that does
not fit raises, and the change is parked.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from streamkit.model.codec import NUMBERS, encode

Value = str | Callable[[Any], Any]
"""A field's name, or a function of the item; None contributes nothing."""

When = Callable[[Any], bool]


def _number(value: Value, item: Any) -> Decimal | None:
    found = value(item) if callable(value) else getattr(item, value)
    if found is None:
        return None
    number = NUMBERS.create_decimal(repr(found) if isinstance(found, float) else found)
    if not number.is_finite():
        raise ValueError("what is summed must be a number, and neither infinity nor NaN")
    return number


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

    It is stored as `<attribute>_sum` and `<attribute>_count`; the mean is computed when the item is
    read.
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


@dataclass(frozen=True)
class Distinct:
    """How many different values the group's items have, exactly; None and empty sets add nothing.

    The group's item stores the count of each value in an attribute `<attribute>~<hash>` of about 35
    bytes, which stays when the value is gone. So a group takes some 10,000 different values before
    DynamoDB's 400 KB are full and its changes are parked, and each write of it costs a unit for
    every KB that it has by then. Equal numbers are one value: 1, 1.0 and Decimal("1.00").
    """

    value: Value
    when: When | None = None

    def amounts(self, attribute: str, item: Any) -> dict[str, Decimal]:
        """Return what one item adds, by attribute."""
        if self.when is not None and not self.when(item):
            return {}
        found = self.value(item) if callable(self.value) else getattr(item, self.value)
        # DynamoDB stores no empty set: where it reads as one, the item has no attribute.
        if found is None or (not found and isinstance(found, AbstractSet)):
            return {}
        return {f"{attribute}~{_digest(found)}": Decimal(1)}

    def read(self, attribute: str, item: dict[str, Any]) -> None:
        """Fill in how many values have a count, in an item's plain values."""
        counts = [n for name, n in item.items() if name.startswith(f"{attribute}~")]
        item[attribute] = sum(count > 0 for count in counts)


def _digest(value: Any) -> str:
    """Return 80 bits that are equal for equal values: of a million, no two share them."""
    text = repr(_canonical(encode(value)))
    return blake2b(text.encode(), digest_size=10).hexdigest()


def _canonical(wire: Any) -> Any:
    """Return a wire value in one form, for all forms of its numbers and orders of its parts.

    Raises:
        ValueError: the value, such as a float that is not a number, cannot be stored.
    """
    ((kind, content),) = wire.items()
    if kind == "N":
        return kind, str(NUMBERS.add(Decimal(content), Decimal(0)).normalize(NUMBERS))
    if kind == "NS":
        return kind, sorted(_canonical({"N": number}) for number in content)
    if kind == "L":
        return kind, [_canonical(part) for part in content]
    if kind == "M":
        return kind, sorted((name, _canonical(part)) for name, part in content.items())
    return kind, sorted(content) if kind in ("SS", "BS") else content


Measure = Count | Sum | Avg | Distinct
"""The measures that a field of an aggregate can be annotated with."""
MEASURES = (Count, Sum, Avg, Distinct)


def adds_up(measures: Mapping[str, Measure]) -> Callable[[str], bool]:
    """Return a function that says whether an attribute holds an amount of a measure."""
    names = {
        stored
        for name, measure in measures.items()
        for stored in ((f"{name}_sum", f"{name}_count") if isinstance(measure, Avg) else (name,))
    }
    prefixes = tuple(f"{n}~" for n, measure in measures.items() if isinstance(measure, Distinct))
    return lambda attribute: attribute in names or attribute.startswith(prefixes)

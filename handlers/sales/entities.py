"""The entities of sales: one, for the application writes sales and nothing else."""

from decimal import Decimal
from typing import Annotated

from pydantic import StringConstraints

from streamkit import Entity

StoreTime = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?$")
]
"""A moment by the clock in the store, such as `2026-03-01T18:30:05`, or a day: no time zone. Books
are kept by the day that it was where the sale was made."""


class Sale(Entity, pk="SALE#{country}", sk="{city}#{store}#{date}"):
    """A sale in a store; what it brought in may be corrected, and it may be cancelled."""

    country: str
    city: str
    store: str
    date: StoreTime
    amount: Decimal

    @property
    def day(self) -> str:
        """Return the day of the sale, as `2026-03-01`."""
        return self.date[:10]

    @property
    def month(self) -> str:
        """Return the month of the sale, as `2026-03`."""
        return self.date[:7]

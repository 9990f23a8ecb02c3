"""What follows from a sale: nine totals, for three places and three lengths of time each."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

from handlers.sales.entities import Sale
from streamkit import Aggregate, App, Count, Key, Sum, TableShape

Unit = Literal["ALL", "MONTH", "DAY"]
"""How long a time is: always, a month or a day."""

ALL: tuple[Unit, str] = ("ALL", "TIME")

app = App("sales", table="Sales")

SHAPE = TableShape()


def times(sale: Sale) -> Iterator[tuple[Unit, str]]:
    """Yield the times that a sale belongs to, as unit and start."""
    yield ALL
    yield "MONTH", sale.month
    yield "DAY", sale.day


@app.aggregate
class CountrySales(Aggregate[Sale], pk="COUNTRYSALES#{country}", sk="{unit}#{start}", spread=8):
    """The sales of a country. Every sale of it ends up here, so it is spread, and read as one."""

    country: str
    unit: Unit
    start: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> list[Key["CountrySales"]]:
        """Count for all time, the month and the day."""
        return [
            cls.key(country=sale.country, unit=unit, start=start) for unit, start in times(sale)
        ]


@app.aggregate
class CitySales(Aggregate[Sale], pk="CITYSALES#{country}#{city}", sk="{unit}#{start}"):
    """The sales of a city."""

    country: str
    city: str
    unit: Unit
    start: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> list[Key["CitySales"]]:
        """Count for all time, the month and the day."""
        place = {"country": sale.country, "city": sale.city}
        return [cls.key(**place, unit=unit, start=start) for unit, start in times(sale)]


@app.aggregate
class StoreSales(
    Aggregate[Sale],
    pk="STORESALES#{country}#{city}#{store}",
    sk="{unit}#{start}",
    remove_empty=True,
):
    """The sales of a store; where none is left there is no item, for days and stores are many."""

    country: str
    city: str
    store: str
    unit: Unit
    start: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> list[Key["StoreSales"]]:
        """Count for all time, the month and the day."""
        place = {"country": sale.country, "city": sale.city, "store": sale.store}
        return [cls.key(**place, unit=unit, start=start) for unit, start in times(sale)]

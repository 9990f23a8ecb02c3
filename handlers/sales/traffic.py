"""The application of the demo: tills that sell, correct and cancel."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Context, Decimal

from handlers.sales.entities import Sale
from handlers.sales.handlers import CitySales, CountrySales, StoreSales
from streamkit import Add, Put, Set, absent, present
from streamkit.testing.final import Comparison, Final
from streamkit.testing.traffic import Writer

CITIES = {"DE": ("BERLIN", "BONN"), "US": ("NYC", "BOSTON", "RENO"), "FR": ("PARIS",)}
STORES = ("1", "2", "3")
FIRST_DAY = date(2026, 1, 25)
DAYS = 10

_EXACT = Context(prec=60)


class Traffic:
    """Tills in several countries; most sales are made in one of them."""

    def __init__(self) -> None:
        self._sold = 0

    async def open(self, writer: Writer) -> None:
        """Sell something in every store."""
        for country, cities in CITIES.items():
            for city in cities:
                await writer.put(self._sale(writer.rng, country, city))

    async def act(self, writer: Writer) -> None:
        """Sell, correct the amount of a sale, give a rebate, or cancel one."""
        rng, chance = writer.rng, writer.rng.random()
        sale = self._sale(rng)
        if chance < 0.5:
            await writer.write(Put(sale).only_if(absent))
            return
        found = await self._one(writer, sale)
        if found is None:
            return
        if chance < 0.65:
            await writer.write(Set(found.item_key, amount=sale.amount).only_if(present))
        elif chance < 0.75:
            rebate = Add(found.item_key, amount=-_amount(rng, 0))
            await writer.write(rebate.only_if(present))
        else:
            await writer.delete(found.item_key)

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Add all sales up again, level by level."""
        sales = final[Sale]
        countries = _added_up((sale.country, "", "", sale) for sale in sales)
        yield final.compare(
            CountrySales,
            [
                CountrySales(country=country, unit=unit, start=start, sales=n, total=total)
                for (country, _, _, unit, start), (n, total) in countries.items()
            ],
        )
        cities = _added_up((sale.country, sale.city, "", sale) for sale in sales)
        yield final.compare(
            CitySales,
            [
                CitySales(country=country, city=city, unit=unit, start=start, sales=n, total=total)
                for (country, city, _, unit, start), (n, total) in cities.items()
            ],
        )
        stores = _added_up((sale.country, sale.city, sale.store, sale) for sale in sales)
        yield final.compare(
            StoreSales,
            [
                StoreSales(
                    country=c, city=city, store=store, unit=unit, start=start, sales=n, total=total
                )
                for (c, city, store, unit, start), (n, total) in stores.items()
            ],
        )

    async def _one(self, writer: Writer, like: Sale) -> Sale | None:
        """Return some sale of the same store."""
        query = Sale.query(country=like.country, city=like.city, store=like.store)
        found = [sale async for sale in writer.table.query(query)]
        return writer.rng.choice(found) if found else None

    def _sale(self, rng: random.Random, country: str = "", city: str = "") -> Sale:
        country = country or rng.choice(("US", "US", "US", "DE", "FR"))
        self._sold += 1
        day = FIRST_DAY + timedelta(days=rng.randrange(DAYS))
        seconds = self._sold % 86_400
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return Sale(
            country=country,
            city=city or rng.choice(CITIES[country]),
            store=rng.choice(STORES),
            date=f"{day}T{clock}",
            amount=_amount(rng, rng.choice((2, 30))),
        )


def _amount(rng: random.Random, digits: int) -> Decimal:
    """Return an amount with up to so many digits before the point: a float would lose cents."""
    return Decimal(rng.randrange(1, 10 ** (digits + 2))).scaleb(-2, _EXACT)


Total = tuple[int, Decimal]


def _added_up(
    sales: Iterator[tuple[str, str, str, Sale]],
) -> dict[tuple[str, str, str, str, str], Total]:
    """Add sales up by place and time: days and months cut out of the date, all time beside them."""
    totals: dict[tuple[str, str, str, str, str], Total] = {}
    for country, city, store, sale in sales:
        day, month = sale.date[:10], sale.date[:7]
        for unit, start in (("ALL", "TIME"), ("MONTH", month), ("DAY", day)):
            key = (country, city, store, unit, start)
            count, total = totals.get(key, (0, Decimal(0)))
            totals[key] = (count + 1, _EXACT.add(total, sale.amount))
    return totals

"""The shop behind the catalogue, and what must follow from what it does.

Purchases and shipments expire while it goes on, so the stock is computed from what was written, not
from what is left. A writer that corrects or cancels a purchase has it for itself meanwhile, so that
the order of the log is that of the table.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from handlers.catalog.entities import Brand, Category, Product, Purchase, Shipment
from handlers.catalog.handlers import (
    LOW,
    ProductsOfBrand,
    ProductsOfCategory,
    ProductsOfPair,
)
from streamkit import Attr, Delete, Entity, Key, Put, Set, absent, present
from streamkit.testing import Comparison, Final, Writer

Act = Callable[[Writer], Awaitable[None]]
OPENING = 20
"""How many of each product come in before anything else happens."""


class Traffic:
    """Customers, a warehouse, and editors of the catalogue.

    Args:
        products: how many there are at first.
        brands: how many there are.
        categories: likewise.
    """

    def __init__(self, *, products: int = 30, brands: int = 5, categories: int = 4) -> None:
        self._brands = [f"b{number}" for number in range(brands)]
        self._categories = [f"c{number}" for number in range(categories)]
        self._count = products
        self._products: list[str] = []
        self._purchases: list[Purchase] = []
        self._numbers = 0

    async def open(self, writer: Writer) -> None:
        """Write brands, categories and products, and let some of each come in."""
        await writer.put(*(Brand(brand_id=b, name=f"Brand {b}") for b in self._brands))
        await writer.put(*(Category(category_id=c, name=f"Sort {c}") for c in self._categories))
        for _ in range(self._count):
            await self._introduce(writer)

    async def act(self, writer: Writer) -> None:
        """Do one small thing that a user does."""
        acts: dict[Act, float] = {
            self._buy: 50,
            self._ship: 9,
            self._correct: 6,
            self._cancel: 6,
            self._change_price: 6,
            self._move: 8,
            self._rename_brand: 5,
            self._introduce: 2,
            self._discontinue: 1,
        }
        (act,) = writer.rng.choices(list(acts), list(acts.values()))
        await act(writer)

    # -- goods ---------------------------------------------------------------------------------

    async def _buy(self, writer: Writer) -> None:
        purchase = Purchase(
            product_id=writer.rng.choice(self._products),
            purchase_id=self._number(),
            at=writer.now,
            quantity=writer.rng.randrange(1, 4),
            expires=_some_time(writer),
        )
        await writer.put(purchase)
        self._purchases.append(purchase)

    async def _ship(self, writer: Writer) -> None:
        await self._receive(
            writer, writer.rng.choice(self._products), writer.rng.randrange(5, LOW * 2)
        )

    async def _receive(self, writer: Writer, product_id: str, quantity: int) -> None:
        await writer.put(
            Shipment(
                product_id=product_id,
                shipment_id=self._number(),
                at=writer.now,
                quantity=quantity,
                expires=_some_time(writer),
            )
        )

    async def _correct(self, writer: Writer) -> None:
        if self._purchases:
            purchase = self._one_purchase(writer.rng)
            corrected = purchase.model_copy(update={"quantity": writer.rng.randrange(1, 6)})
            if await writer.write(Put(corrected).only_if(present)):
                self._purchases.append(corrected)

    async def _cancel(self, writer: Writer) -> None:
        if self._purchases:
            purchase = self._one_purchase(writer.rng)
            await writer.write(Delete(purchase.item_key).only_if(present))

    # -- the catalogue -------------------------------------------------------------------------

    async def _introduce(self, writer: Writer) -> None:
        product = Product(
            product_id=f"p{self._number()}",
            brand_id=writer.rng.choice(self._brands),
            category_id=writer.rng.choice(self._categories),
            name=f"Thing {self._numbers}",
            price=_price(writer.rng),
        )
        await writer.write(Put(product).only_if(absent))
        await self._receive(writer, product.product_id, OPENING)
        self._products.append(product.product_id)

    async def _discontinue(self, writer: Writer) -> None:
        if len(self._products) > 1:
            number = writer.rng.randrange(len(self._products))
            await writer.delete(Product.key(product_id=self._products.pop(number)))

    async def _change_price(self, writer: Writer) -> None:
        product = Product.key(product_id=writer.rng.choice(self._products))
        await writer.write(Set(product, price=_price(writer.rng)).only_if(present))

    async def _move(self, writer: Writer) -> None:
        """Give a product another brand, or another category, unless it is sold just then."""
        key = Product.key(product_id=writer.rng.choice(self._products))
        product = await writer.table.get(key)
        if product is None:
            return
        moved = (
            {"brand_id": writer.rng.choice(self._brands)}
            if writer.rng.random() < 0.6
            else {"category_id": writer.rng.choice(self._categories)}
        )
        put = Put(product.model_copy(update=moved))
        await writer.write(put.only_if(Attr("stock").eq(product.stock)))

    async def _rename_brand(self, writer: Writer) -> None:
        brand = Brand.key(brand_id=writer.rng.choice(self._brands))
        await writer.update(brand, name=f"Brand {writer.rng.randrange(1000)}")

    def _number(self) -> str:
        self._numbers += 1
        return f"{self._numbers:05d}"

    def _one_purchase(self, rng: random.Random) -> Purchase:
        return self._purchases.pop(rng.randrange(len(self._purchases)))

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        names = {brand.brand_id: brand.name for brand in final[Brand]}
        stock = _stock(final)
        wanted = [
            product.model_copy(
                update={"stock": stock[product.product_id], "brand_name": names[product.brand_id]}
            )
            for product in final[Product]
        ]
        yield final.compare(Product, wanted)
        yield from _counts(final)
        yield _orders(final)


def _stock(final: Final) -> Counter[str]:
    """Return the stock of each product, from everything that was ever bought and shipped."""
    stock: Counter[str] = Counter()
    goods: dict[Key[Entity], Purchase | Shipment] = {}
    for written in final.log:
        effect = written.effect
        if isinstance(effect, Put) and isinstance(effect.entity, Purchase | Shipment):
            goods[effect.key] = effect.entity
        elif isinstance(effect, Delete):
            goods.pop(effect.key, None)
    for one in goods.values():
        stock[one.product_id] += one.quantity if isinstance(one, Shipment) else -one.quantity
    return stock


def _counts(final: Final) -> Iterator[Comparison]:
    products = final[Product]
    brands = Counter(product.brand_id for product in products).items()
    yield final.compare(
        ProductsOfBrand, [ProductsOfBrand(brand_id=b, products=n) for b, n in brands]
    )
    categories = Counter(product.category_id for product in products).items()
    yield final.compare(
        ProductsOfCategory,
        [ProductsOfCategory(category_id=c, products=n) for c, n in categories],
    )
    pairs = Counter((product.brand_id, product.category_id) for product in products).items()
    wanted = [ProductsOfPair(brand_id=b, category_id=c, products=n) for (b, c), n in pairs]
    yield final.compare(ProductsOfPair, wanted)
    # An empty pair is no item at all.
    left = {f"{pair.brand_id} {pair.category_id}": pair.products for pair in final[ProductsOfPair]}
    yield Comparison.of("pairs that are left", left, {f"{b} {c}": n for (b, c), n in pairs})


def _orders(final: Final) -> Comparison:
    """Compare the orders: each follows a fall below the threshold; none is missing or too many.

    How often the stock has fallen depends on how changes were folded into one; but what is low now
    has fallen or was new, and between two falls something must have come in or been given back.
    """
    comparison = Comparison("orders of what runs low")
    ordered: defaultdict[str, int] = defaultdict(int)
    for delivery in final.sent["reorders"].once:
        body = delivery.body
        ordered[body["product_id"]] += 1
        fell = body["was"] is None or body["was"] >= LOW
        comparison.compare("a fall", fell and body["stock"] < LOW, True)
    rises = Counter(
        written.effect.entity.product_id
        for written in final.log
        if isinstance(written.effect, Put)
        and isinstance(written.effect.entity, Purchase | Shipment)
    )
    for product in final[Product]:
        least = 1 if product.stock < LOW else 0
        found = ordered[product.product_id]
        comparison.compare(
            product.product_id, least <= found <= 1 + rises[product.product_id], True
        )
    return comparison


def _some_time(writer: Writer) -> datetime:
    soon = writer.rng.random() < 0.3
    return writer.now + (
        timedelta(seconds=writer.rng.uniform(1, 4)) if soon else timedelta(days=90)
    )


def _price(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(100, 100_000)) / 100

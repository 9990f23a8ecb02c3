"""What follows from what in the catalogue: stock, reorders, counts, and names of brands."""

from typing import Annotated

from handlers.catalog.entities import Brand, Category, Product, Purchase, Shipment
from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    IndexShape,
    Inserted,
    Key,
    Modified,
    Query,
    Removed,
    Send,
    Set,
    Sns,
    TableShape,
    changed,
    crossed,
    present,
)

LOW = 10
"""Of a product of which there are fewer, more is ordered."""

app = App("catalog", table="Catalog", type_attribute="type", entities=[Category])

LISTED = ("product_id", "brand_id", "category_id", "name", "brand_name")

SHAPE = TableShape(
    ttl="expires",
    indexes={"GSI1": IndexShape(project=LISTED), "GSI2": IndexShape(project=LISTED)},
)
"""What changes most, stock and price, is not in the indexes, and costs no write there."""

reorders = app.sink(Sns("reorders", "arn:aws:sns:us-east-1:123456789012:reorders"))


# -- stock -------------------------------------------------------------------------------------


Sale = Inserted[Purchase] | Modified[Purchase] | Removed[Purchase]
Arrival = Inserted[Shipment] | Modified[Shipment] | Removed[Shipment]
"""Expiry is not among them: goods do not come back when their record goes, as they would from a
`Sum` onto the product."""


@app.on
def sold(change: Sale) -> Add[Product] | None:
    """Take what is bought from the stock, and give back what is cancelled."""
    return stocked(change, -difference(change))


@app.on
def received(change: Arrival) -> Add[Product] | None:
    """Put what has come in into the stock."""
    return stocked(change, difference(change))


@app.on(when=crossed("stock", below=LOW))
def running_low(change: Inserted[Product] | Modified[Product]) -> Send:
    """Order more of a new product, and once each time that the stock falls below the threshold."""
    before = change.old.stock if isinstance(change, Modified) else None
    body = {"product_id": change.new.product_id, "was": before, "stock": change.new.stock}
    return Send(reorders, body)


def difference(change: Sale | Arrival) -> int:
    """Return how much more of the goods there is than before the change."""
    if isinstance(change, Inserted):
        return change.new.quantity
    if isinstance(change, Removed):
        return -change.old.quantity
    return change.new.quantity - change.old.quantity


def stocked(change: Sale | Arrival, quantity: int) -> Add[Product] | None:
    """Add to the stock of the product that was sold or received; one that is gone has none."""
    goods = change.old if isinstance(change, Removed) else change.new
    if quantity == 0:
        return None
    product = Product.key(product_id=goods.product_id)
    return Add(product, stock=quantity).only_if(present, otherwise="skip")


# -- counts ------------------------------------------------------------------------------------


@app.aggregate
class ProductsOfBrand(Aggregate[Product], pk="B#{brand_id}", sk="PRODUCTS", type="brand_count"):
    """How many products a brand has."""

    brand_id: str
    products: Annotated[int, Count()] = 0


@app.aggregate
class ProductsOfCategory(
    Aggregate[Product], pk="C#{category_id}", sk="PRODUCTS", type="category_count"
):
    """How many products a category has."""

    category_id: str
    products: Annotated[int, Count()] = 0


@app.aggregate
class ProductsOfPair(
    Aggregate[Product],
    pk="B#{brand_id}",
    sk="PRODUCTS#C#{category_id}",
    type="pair_count",
    remove_empty=True,
):
    """How many products a brand has in a category. Of most pairs there are none, and no item."""

    brand_id: str
    category_id: str
    products: Annotated[int, Count()] = 0


# -- copies ------------------------------------------------------------------------------------


def products_of(brand: Brand) -> Query[Product]:
    """Return the products of a brand; from an index, which trails the table."""
    return Product.query(index=Product.by_brand, brand_id=brand.brand_id)


def brand_of(product: Product) -> Key[Brand]:
    """Return the key of a product's brand."""
    return Brand.key(brand_id=product.brand_id)


@app.mirror(copies=products_of, source=brand_of, when=changed("name"))
def copy_brand_name(brand: Brand, product: Product) -> Set[Product]:
    """Keep the brand's name on its products: after it is renamed, and on products that move."""
    return Set(product.item_key, brand_name=brand.name)

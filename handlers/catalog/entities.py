"""The entities of the catalogue: what the items of its table look like.

Only the handlers write a product's `stock` and `brand_name`, and the counts, which stand beside
their handlers.
"""

from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from streamkit import Entity, EpochSeconds, Index


class Brand(Entity, pk="BRANDS", sk="B#{brand_id}", type="brand"):
    """A brand. All of them are one collection."""

    brand_id: str
    name: str


class Category(Entity, pk="CATEGORIES", sk="C#{category_id}", type="category"):
    """A category. All of them are one collection."""

    category_id: str
    name: str


class Listed(Entity):
    """What a list shows of a product: the five attributes that the indexes carry."""

    product_id: str
    brand_id: str
    category_id: str
    name: str
    brand_name: str = ""

    by_brand: ClassVar = Index("GSI1", pk="B#{brand_id}", sk="C#{category_id}#P#{product_id}")
    by_category: ClassVar = Index("GSI2", pk="C#{category_id}", sk="B#{brand_id}#P#{product_id}")


class Product(Listed, pk="P#{product_id}", sk="METADATA", type="product"):
    """A product, whole.

    The application sets single fields. Where it must put the whole item, to move a product to
    another brand or category, it does so only if `stock` is still what it has read.
    """

    price: Decimal
    description: str = ""
    stock: int = 0


class ProductCard(Listed, pk="P#{product_id}", sk="METADATA", type="product"):
    """A product as an index shows it: for reads of indexes, which do not have the rest of it."""


class Purchase(
    Entity, pk="P#{product_id}", sk="PURCHASE#{at:%Y-%m-%dT%H:%M:%S}#{purchase_id}", type="purchase"
):
    """Somebody has bought some of a product. It may be corrected, or cancelled by deleting it.

    When `expires` is over it leaves the table; the goods do not come back then.
    """

    product_id: str
    purchase_id: str
    at: datetime
    quantity: int
    expires: EpochSeconds | None = None


class Shipment(
    Entity, pk="P#{product_id}", sk="SHIPMENT#{at:%Y-%m-%dT%H:%M:%S}#{shipment_id}", type="shipment"
):
    """Some of a product has come in. It expires as a purchase does."""

    product_id: str
    shipment_id: str
    at: datetime
    quantity: int
    expires: EpochSeconds | None = None

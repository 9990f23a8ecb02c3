"""Keys of the second index for products that are older than it."""

from handlers.catalog.entities import Product
from handlers.catalog.handlers import app
from streamkit import Remove, Set


def without(category_id: str) -> Remove[Product]:  # noqa: ARG001 - the parameters are what it reads
    """Take a product off the index."""
    return Remove("GSI2PK", "GSI2SK")


@app.migration("0001", Product, reverse=without)
def category_keys(product_id: str, brand_id: str, category_id: str) -> Set[Product]:
    """Put a product on the index, where it belongs now; its stock is not looked at."""
    return Set(GSI2PK=f"C#{category_id}", GSI2SK=f"B#{brand_id}#P#{product_id}")

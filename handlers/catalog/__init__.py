"""A product catalogue: brands, categories, products, and a stock level that follows the goods.

Every item says in `type` what it is; the indexes carry five attributes of a product and no more.
"""

from handlers.catalog.handlers import app

__all__ = ["app"]

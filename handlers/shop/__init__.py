"""A shop: customers with unique e-mail addresses, orders and their items, revenue, notifications.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work and
checks the result.
"""

from handlers.shop.handlers import app

__all__ = ["app"]

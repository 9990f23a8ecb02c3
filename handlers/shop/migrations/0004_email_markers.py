"""Unique e-mail addresses for customers who were there before the handler that keeps them.

Two customers with one address are a conflict: it is reported, and neither is overwritten.
"""

from handlers.shop.entities import Customer, CustomerEmail
from handlers.shop.handlers import app


@app.migration("0004", Customer, mode="derive", owner="email_marker")
def email_markers(username: str, email: str) -> CustomerEmail:
    """Take the address, as `email_marker` does for those who come now."""
    return CustomerEmail(email=email, username=username)

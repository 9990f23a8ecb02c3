"""Orders by status and date: one attribute of both, for the sort key of an index."""

from datetime import datetime

from handlers.shop.entities import Order, Status
from handlers.shop.handlers import app
from streamkit import Remove, Set


def without(status: Status) -> Remove[Order]:  # noqa: ARG001 - the parameters are what it reads
    """Take the attribute away again."""
    return Remove("status_date")


@app.migration("0001", Order, reverse=without)
def order_status_date(status: Status, created_at: datetime) -> Set[Order]:
    """Follow the status, whoever changes it."""
    return Set(status_date=f"{status}#{created_at:%Y-%m-%d}")

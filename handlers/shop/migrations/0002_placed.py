"""Orders that wait: an attribute that only they have, so that an index of it lists them alone."""

from datetime import datetime

from handlers.shop.entities import Order, Status
from handlers.shop.handlers import app
from streamkit import Remove, Set


def without(status: Status) -> Remove[Order]:  # noqa: ARG001 - the parameters are what it reads
    """Take the attribute away again."""
    return Remove("placed")


@app.migration("0002", Order, reverse=without)
def placed(status: Status, created_at: datetime) -> Set[Order] | Remove[Order]:
    """Come and go with the status."""
    if status is Status.PLACED:
        return Set(placed=f"{created_at:%Y-%m-%d}")
    return Remove("placed")

"""Orders from `ORDER#<id>` to `#ORDER#<id>`: newest first, the customer comes before them."""

from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from handlers.shop.entities import Order, Status
from handlers.shop.handlers import app
from streamkit import Entity, Index


class EarlyOrder(Entity, pk="CUSTOMER#{username}", sk="ORDER#{order_id}"):
    """An order as it was written first."""

    username: str
    order_id: str
    status: Status
    created_at: datetime
    total: Decimal = Decimal(0)
    items: int = 0

    by_order: ClassVar = Index("GSI1", pk="ORDER#{order_id}", sk="ORDER#{order_id}")


def early(order: Order) -> EarlyOrder:
    """Return the order as it was; what only the new one has is carried along."""
    return EarlyOrder.model_validate(order.model_dump(include=set(EarlyOrder.model_fields)))


@app.migration("0006", EarlyOrder, mode="rekey", reverse=early)
def behind_their_customer(order: EarlyOrder) -> Order:
    """Move an order to its new key."""
    return Order.model_validate(order.model_dump())

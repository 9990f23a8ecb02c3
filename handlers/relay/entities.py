"""The entities of relay: orders, and who wants to hear of a customer's parcels."""

from decimal import Decimal
from typing import Literal

from streamkit import Entity, EpochSeconds

Status = Literal["PLACED", "SHIPPED"]


class Order(Entity, pk="CUSTOMER#{customer}", sk="ORDER#{order_id}"):
    """An order. Every change of it raises `revision` by one; some expire."""

    customer: str
    order_id: str
    status: Status = "PLACED"
    total: Decimal
    revision: int = 1
    expires: EpochSeconds | None = None


class Follower(Entity, pk="FOLLOWERS#{customer}", sk="USER#{username}"):
    """Somebody who wants to hear of a customer's parcels. One collection: it is the audience."""

    customer: str
    username: str

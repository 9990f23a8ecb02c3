"""The entities of relay: orders, and the followers of customers."""

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
    """A follower, who hears of a customer's parcels; all of a customer are one collection."""

    customer: str
    username: str

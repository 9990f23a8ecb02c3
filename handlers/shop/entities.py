"""The entities of the shop: what the items of its table look like.

An order stands in the collection of its customer, its items apart from it: `by_order` brings both
together. `#` sorts before letters, so that a query of a customer's orders in descending order ends
with the customer, and one in ascending order begins with the orders.
"""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, Field

from streamkit import Entity, Index


class Status(StrEnum):
    """How far an order is."""

    PLACED = "PLACED"
    PAID = "PAID"
    SHIPPED = "SHIPPED"
    DELIVERED = "DELIVERED"
    CANCELLED = "CANCELLED"


class Address(BaseModel):
    """Where to send things."""

    street: str
    city: str
    country: str


class CartLine(BaseModel):
    """So many of one thing, in a shopping cart."""

    sku: str
    quantity: int


class Customer(Entity, pk="CUSTOMER#{username}", sk="CUSTOMER#{username}"):
    """A customer; addresses by the name that the customer gives them.

    `addresses` and `cart` are items of their own once their migrations are through.
    """

    username: str
    name: str
    email: str
    addresses: dict[str, Address] = Field(default_factory=dict)
    cart: list[CartLine] = Field(default_factory=list)


class CustomerAddress(Entity, pk="CUSTOMER#{username}", sk="ADDRESS#{label}"):
    """One address of a customer, by the name that the customer gives it."""

    username: str
    label: str
    street: str
    city: str
    country: str


class CartItem(Entity, pk="CUSTOMER#{username}", sk="CART#ACTIVE#{sku}"):
    """One thing in a customer's shopping cart."""

    username: str
    sku: str
    quantity: int


class CustomerEmail(Entity, pk="CUSTOMEREMAIL#{email}", sk="CUSTOMEREMAIL#{email}"):
    """An e-mail address is taken, by whom. The handlers keep it."""

    email: str
    username: str


class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{order_id}"):
    """An order. The handlers keep `total` and `items`, so the application sets the status alone.

    Beside the status it sets `status_date`, and `placed` to the day as long as it is placed.
    """

    username: str
    order_id: str
    status: Status
    created_at: datetime
    total: Decimal = Decimal(0)
    items: int = 0
    status_date: str | None = Field(default=None, alias="OrderStatusDate")
    placed: str | None = Field(default=None, alias="PLACED")

    by_order: ClassVar = Index("GSI1", pk="ORDER#{order_id}", sk="ORDER#{order_id}")
    waiting: ClassVar = Index(
        "PlacedIndex",
        pk="{placed}",
        sk="#ORDER#{order_id}",
        pk_attribute="PLACED",
        sk_attribute="SK",
        when=lambda order: order.placed is not None,
    )


class OrderItem(Entity, pk="ORDER#{order_id}#ITEM#{item_id}", sk="ORDER#{order_id}#ITEM#{item_id}"):
    """One line of an order; the username says where the order is."""

    order_id: str
    item_id: str
    username: str
    price: Decimal
    quantity: int = 1

    by_order: ClassVar = Index("GSI1", pk="ORDER#{order_id}", sk="ITEM#{item_id}")

    @property
    def amount(self) -> Decimal:
        """Return what the line costs."""
        return self.price * self.quantity

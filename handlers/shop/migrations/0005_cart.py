"""The shopping cart out of a list in the customer, so that two tabs do not overwrite each other."""

from handlers.shop.entities import CartItem, CartLine, Customer
from handlers.shop.handlers import app
from streamkit import Remove, Set


def in_customer(customer: Customer, parts: list[CartItem]) -> Set[Customer]:  # noqa: ARG001
    """Put the lines back, by article."""
    lines = [CartLine(sku=part.sku, quantity=part.quantity) for part in parts]
    return Set(cart=sorted(lines, key=lambda line: line.sku))


@app.migration(
    "0005",
    Customer,
    mode="split",
    reverse=in_customer,
    collect=lambda customer: CartItem.query(username=customer.username),
    source=lambda part: Customer.key(username=part.username),
)
def cart(username: str, cart: list[CartLine] | None = None) -> list[CartItem | Remove[Customer]]:
    """Make an item of each article; lines of the same article add up."""
    if not cart:
        return []
    amounts: dict[str, int] = {}
    for line in cart:
        amounts[line.sku] = amounts.get(line.sku, 0) + line.quantity
    items = [
        CartItem(username=username, sku=sku, quantity=quantity)
        for sku, quantity in sorted(amounts.items())
    ]
    return [*items, Remove("cart")]

"""Addresses out of the customer, who is read with every page, into items of their own."""

from handlers.shop.entities import Address, Customer, CustomerAddress
from handlers.shop.handlers import app
from streamkit import Remove, Set


def in_customer(customer: Customer, parts: list[CustomerAddress]) -> Set[Customer]:  # noqa: ARG001
    """Put them back, and keep them as they are now."""
    places = {part.label: Address.model_validate(part.model_dump()) for part in parts}
    return Set(addresses=places)


@app.migration(
    "0003",
    Customer,
    mode="split",
    reverse=in_customer,
    collect=lambda customer: CustomerAddress.query(username=customer.username),
    source=lambda part: Customer.key(username=part.username),
)
def addresses(
    username: str,
    addresses: dict[str, Address] | None = None,
) -> list[CustomerAddress | Remove[Customer]]:
    """Make an item of each address."""
    if not addresses:
        return []
    items = [
        CustomerAddress(username=username, label=label, **address.model_dump())
        for label, address in sorted(addresses.items())
    ]
    return [*items, Remove("addresses")]

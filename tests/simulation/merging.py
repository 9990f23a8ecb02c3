"""An app in which several items of a customer become one, as profiles that were extended item by item."""

from streamkit import App, Entity


class Profile(Entity, pk="CUSTOMER#{user}", sk="PROFILE"):
    user: str
    email: str | None = None
    city: str | None = None


class Prefs(Entity, pk="CUSTOMER#{user}", sk="PREFS"):
    user: str
    theme: str | None = None


class Billing(Entity, pk="CUSTOMER#{user}", sk="BILLING"):
    user: str
    card: str | None = None
    vat: str | None = None


class Customer(Entity, pk="CUSTOMER#{user}", sk="CUSTOMER"):
    user: str
    email: str | None = None
    city: str | None = None
    theme: str | None = None
    card: str | None = None
    vat: str | None = None
    nick: str | None = None  # old code has no place for it


def together(
    profile: Profile | None, prefs: Prefs | None, billing: Billing | None
) -> Customer | None:
    found = [one.model_dump() for one in (profile, prefs, billing) if one is not None]
    return Customer(**{n: v for one in found for n, v in one.items()}) if found else None


def apart(customer: Customer) -> list[Profile | Prefs | Billing]:
    said = customer.model_dump(exclude_none=True)
    kinds = (Profile, Prefs, Billing)
    return [
        kind(**{n: v for n, v in said.items() if n in kind.model_fields})
        for kind in kinds
        if said.keys() & kind.model_fields.keys() - {"user"}
    ]


def app_of_customers():
    app = App("crm", table="Crm", entities=[Profile, Prefs, Billing, Customer])
    app.migration("0001", Profile, mode="merge", reverse=apart)(together)
    return app


def sources(user, *, prefs=True):
    """Return the old items of a customer."""
    found = [Profile(user=user, email=f"{user}@x", city="Bern"), Billing(user=user, card="1234")]
    return [*found, Prefs(user=user, theme="dark")] if prefs else found

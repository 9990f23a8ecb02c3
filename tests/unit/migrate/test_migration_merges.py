"""What may become one item: which declarations are refused, and which items belong together."""

import pytest

from streamkit import App, Entity
from streamkit.errors import DeclarationError
from streamkit.migrate.items.rewrites import TransformError, plain
from streamkit.migrate.items.transform import Transform
from streamkit.model.schema import TableSchema
from tests.simulation.merging import Billing, Customer, Prefs, Profile, apart, app_of_customers

SCHEMA = TableSchema("Crm", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})


class Elsewhere(Entity, pk="PLACE#{place}", sk="PREFS"):
    place: str


class First(Entity, pk="FIRST#{shop}", sk="{user}#{part}"):
    shop: str
    user: str
    part: str


class Second(Entity, pk="SECOND#{shop}", sk="{user}#{part}"):
    shop: str
    user: str
    part: str


def ambiguous(first: First | None, second: Second | None) -> Customer | None:
    return None


def transform():
    return Transform(app_of_customers().migrations["0001"], SCHEMA)


def stored(entity, **beside):
    return entity.attributes(SCHEMA) | {name: {"S": value} for name, value in beside.items()}


def one(profile: Profile | None) -> Customer | None:
    return None


def required(profile: Profile, prefs: Prefs | None) -> Customer | None:
    return None


def another(profile: Profile | None, other: Elsewhere | None) -> Customer | None:
    return None


def same(profile: Profile | None, prefs: Prefs | None) -> Profile | None:
    return None


def twice(profile: Profile | None, again: Profile | None) -> Customer | None:
    return None


def not_its_own(prefs: Prefs | None, billing: Billing | None) -> Customer | None:
    return None


def fits(profile: Profile | None, prefs: Prefs | None) -> Customer | None:
    return None


@pytest.mark.parametrize(
    ("function", "reverse", "what"),
    [
        (one, apart, "the other entities that become one"),
        (twice, apart, "each once"),
        (not_its_own, apart, "its parameters are Profile and the other entities"),
        (required, apart, "or None where there is none"),
        (another, apart, "the same fields in their key templates"),
        (same, apart, "another one"),
        (fits, None, "reverse= makes them again"),
    ],
)
def test_what_cannot_become_one_item_is_refused_where_it_is_declared(function, reverse, what):
    app = App("crm", table="Crm")
    with pytest.raises(DeclarationError, match=what):
        app.migration("0001", Profile, mode="merge", reverse=reverse)(function)


def test_an_item_whose_key_can_be_read_in_two_ways_is_of_no_family():
    app = App("crm", table="Crm")
    app.migration("0001", First, mode="merge", reverse=apart)(ambiguous)
    sources = Transform(app.migrations["0001"], SCHEMA).sources
    key = {"PK": {"S": "FIRST#bern"}, "SK": {"S": "ann#1#2"}}
    assert sources.family(key) == key  # it is written down as an error under its own key
    with pytest.raises(TransformError, match="cannot be told which items"):
        sources.places(key)


def test_the_items_of_a_family_are_found_from_any_of_them():
    sources = transform().sources
    keys = [kind(user="ann").item_key.wire(SCHEMA) for kind in (Profile, Prefs, Billing)]
    assert [sources.family(key) for key in keys] == [keys[0]] * 3
    assert list(sources.places(keys[2]).values()) == ["Profile", "Prefs", "Billing"]


def test_each_item_brings_its_fields_and_what_its_entity_does_not_know():
    both = [
        stored(Profile(user="ann", city="Bern"), extra="x"),
        stored(Prefs(user="ann", theme="dark")),
    ]
    (target,) = transform().of_several(both).targets
    said = {"PK": "CUSTOMER#ann", "SK": "CUSTOMER", "user": "ann"}
    assert plain(target.item) == said | {"city": "Bern", "theme": "dark", "extra": "x"}


def test_an_attribute_of_two_items_that_only_one_entity_knows_is_an_error():
    both = [stored(Profile(user="ann", city="Bern")), stored(Prefs(user="ann"), city="Basel")]
    with pytest.raises(TransformError, match="have an attribute city"):
        transform().of_several(both)


def test_a_new_item_in_the_place_of_a_source_is_an_error():
    class Grown(Entity, pk="CUSTOMER#{user}", sk="PREFS"):
        user: str

    def grown(profile: Profile | None, prefs: Prefs | None) -> Grown | None:
        return Grown(user="ann")

    app = App("crm", table="Crm")
    app.migration("0001", Profile, mode="merge", reverse=apart)(grown)
    with pytest.raises(TransformError, match="its key is that of an item that it reads"):
        Transform(app.migrations["0001"], SCHEMA).of_several([stored(Profile(user="ann"))])

"""Images become entities of the user's own class, or errors that name fields and no values."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from msgspec import Raw
from pydantic import Field, field_validator, model_validator

from streamkit.effects import Set
from streamkit.entity import Entity
from streamkit.errors import DecodeError
from streamkit.model.epoch import EpochSeconds
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import GuardSource
from streamkit.progress.compile import compile_effect
from streamkit.stream.decode import ImageDecoder
from streamkit.stream.decode.fast import values_reader

SCHEMA = TableSchema("t", "PK", "SK", "S", "S", {}, type_attribute="type")


class Deal(Entity, pk="DEAL#{id}", sk="DEAL#{id}"):
    id: str
    price: Decimal = Field(alias="Price")
    stock: int = 0
    note: str | None = None
    tags: set[str]
    day: date | None = None
    until: EpochSeconds | None = None


def raw(**attributes: Any) -> bytes:
    keys = {"PK": {"S": "DEAL#1"}, "SK": {"S": "DEAL#1"}, "type": {"S": "Deal"}}
    return json.dumps(keys | attributes).encode()


FULL = raw(
    id={"S": "1"},
    Price={"N": "12.5"},
    stock={"N": "3"},
    note={"NULL": True},
    tags={"SS": ["a"]},
    until={"N": "1714521600"},
    unknown={"M": {"x": {"L": [{"N": "1"}]}}},
)


def test_an_image_becomes_its_entity() -> None:
    deal = ImageDecoder(Deal, SCHEMA).decode(FULL)
    assert type(deal) is Deal
    assert deal == Deal(id="1", price=Decimal("12.5"), stock=3, tags={"a"}, until=1714521600)
    assert deal.model_fields_set == {"id", "price", "stock", "note", "tags", "until"}


def test_bytes_and_raw_images_are_alike() -> None:
    decoder = ImageDecoder(Deal, SCHEMA)
    assert decoder.decode(Raw(FULL)) == decoder.decode(FULL)


def test_the_fast_path_reads_plain_values_of_fields_alone() -> None:
    values, *key = values_reader(Deal, Deal.model_fields, SCHEMA)(FULL)
    assert key == ["DEAL#1", "DEAL#1"]
    assert values == {
        "id": "1",
        "Price": Decimal("12.5"),
        "stock": 3,
        "note": None,
        "tags": {"a"},
        "until": 1714521600,
    }


def test_an_attribute_of_another_type_than_expected_is_still_read() -> None:
    odd = raw(id={"S": "1"}, Price={"S": "12.5"}, stock={"S": "3"}, tags={"L": [{"S": "a"}]})
    deal = ImageDecoder(Deal, SCHEMA).decode(odd)
    assert (deal.price, deal.stock, deal.tags) == (Decimal("12.5"), 3, {"a"})


def test_an_attribute_under_the_fields_own_name_is_still_read() -> None:
    assert ImageDecoder(Deal, SCHEMA).decode(raw(id={"S": "1"}, price={"N": "1"})).price == 1


def test_an_item_that_does_not_fit_names_the_fields_and_no_values() -> None:
    wrong = raw(id={"S": "1"}, Price={"S": "secret"}, stock={"S": "secret"})
    with pytest.raises(DecodeError) as refusal:
        ImageDecoder(Deal, SCHEMA).decode(wrong)
    assert str(refusal.value) == (
        "Deal: 2 fields do not fit: Price (decimal_parsing), stock (int_parsing)"
    )
    with pytest.raises(DecodeError, match=r"Deal: 1 field does not fit: Price \(missing\)"):
        ImageDecoder(Deal, SCHEMA).decode(raw(id={"S": "1"}))


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"id":{"S":"secret"', b'{"id":{"X":"secret"}}'])
def test_bytes_that_are_no_item_are_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^Deal: ") as refusal:
        ImageDecoder(Deal, SCHEMA).decode(body)
    assert "secret" not in str(refusal.value)


def test_a_validator_that_breaks_is_a_decode_error_without_its_words() -> None:
    class Broken(Entity, pk="B#{id}"):
        id: str

        @field_validator("id")
        @classmethod
        def look_up(cls, value: str) -> str:
            return {}[value]

    with pytest.raises(DecodeError) as refusal:
        ImageDecoder(Broken, SCHEMA).decode(raw(id={"S": "secret"}))
    assert str(refusal.value) == "Broken: a validator raised KeyError"


def test_upcasts_see_every_image_in_order_with_all_attributes() -> None:
    class Order(Entity, pk="O#{id}"):
        id: str
        total: int

    @Order.upcast
    def split_key(item: dict[str, Any]) -> dict[str, Any]:
        return {"id": item["PK"].removeprefix("DEAL#")} | item

    @Order.upcast
    def rename(item: dict[str, Any]) -> dict[str, Any]:
        return {"total": item["amount"]} | item if "amount" in item else item

    decoder = ImageDecoder(Order, SCHEMA)
    assert decoder.decode(raw(amount={"N": "5"})) == Order(id="1", total=5)
    assert decoder.values(raw(amount={"N": "5"}), ("total",)) == {"total": 5}

    @Order.upcast
    def fail(item: dict[str, Any]) -> dict[str, Any]:
        raise KeyError(item["amount"])

    with pytest.raises(DecodeError, match="Order: the upcast fail raised KeyError"):
        ImageDecoder(Order, SCHEMA).decode(raw(amount={"N": "5"}))


@pytest.mark.parametrize("extra", ["allow", "forbid"])
def test_keys_and_type_are_no_extra_attributes(extra: Any) -> None:
    class Strict(Entity, pk="S#{id}", extra=extra):
        id: str

    image = raw(id={"S": "1"})
    assert ImageDecoder(Strict, SCHEMA).decode(image).model_extra in (None, {})


def test_an_attribute_of_streamkits_is_no_extra_attribute_that_could_be_forbidden() -> None:
    class Strict(Entity, pk="S#{id}", extra="forbid"):
        id: str

    owned = raw(id={"S": "1"}, _sk_of={"S": "[]"}, _sk_by={"S": "handler:1:x:y"})
    assert ImageDecoder(Strict, SCHEMA).decode(owned) == Strict(id="1")
    with pytest.raises(DecodeError, match="more"):
        ImageDecoder(Strict, SCHEMA).decode(raw(id={"S": "1"}, more={"N": "1"}))


def test_a_model_that_keeps_extra_attributes_gets_them() -> None:
    class Loose(Entity, pk="S#{id}", extra="allow"):
        id: str

    loose = ImageDecoder(Loose, SCHEMA).decode(raw(id={"S": "1"}, more={"N": "1"}))
    assert loose.model_extra == {"more": 1}


def test_a_few_fields_are_read_as_the_entity_has_them() -> None:
    decoder = ImageDecoder(Deal, SCHEMA)
    assert decoder.values(FULL, ("price", "stock")) == {"price": Decimal("12.5"), "stock": 3}
    assert decoder.values(FULL, ("note", "day")) == {"note": None, "day": None}
    assert decoder.values(FULL, ()) == {}
    odd = raw(id={"S": "1"}, price={"S": "2"})
    assert decoder.values(odd, ("price",)) == {"price": Decimal(2)}


def test_a_few_fields_do_not_need_the_others_to_fit() -> None:
    half = raw(stock={"N": "4"}, Price={"S": "wrong"})
    assert ImageDecoder(Deal, SCHEMA).values(half, ("stock",)) == {"stock": 4}
    with pytest.raises(DecodeError, match="Price"):
        ImageDecoder(Deal, SCHEMA).values(half, ("price",))


def test_fields_that_others_have_a_say_in_are_read_with_them() -> None:
    class Total(Entity, pk="T#{id}"):
        id: str
        net: int
        gross: int = 0

        @model_validator(mode="before")
        @classmethod
        def add_tax(cls, values: dict[str, Any]) -> dict[str, Any]:
            return values | {"gross": values["net"] * 2}

    image = raw(id={"S": "1"}, net={"N": "5"})
    assert ImageDecoder(Total, SCHEMA).values(image, ("gross",)) == {"gross": 10}

    class Later(Entity, pk="T#{id}"):
        id: str
        net: int
        gross: int = Field(default_factory=lambda data: data["net"] * 3)

    assert ImageDecoder(Later, SCHEMA).values(image, ("gross",)) == {"gross": 15}


class Visit(Entity, pk="SITE#{site}", sk="DAY#{day:%Y%m%d}#{number:desc04d}"):
    site: str
    day: date
    number: int = 0
    guest: str = "?"


VISIT = {"PK": {"S": "SITE#home"}, "SK": {"S": "DAY#20240501#9957"}}
HOME = Visit(site="home", day=date(2024, 5, 1), number=42)


def wire(**attributes: Any) -> bytes:
    return json.dumps(VISIT | attributes).encode()


def test_fields_that_stand_only_in_the_key_are_read_from_it_without_the_plain_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(ImageDecoder, "_decode_plainly")
    decoder = ImageDecoder(Visit, SCHEMA)
    assert decoder.decode(wire()) == HOME
    assert decoder.values(wire(), ("day", "guest")) == {"day": HOME.day, "guest": "?"}


def test_fields_that_stand_only_in_the_key_are_read_from_it_by_every_path() -> None:
    assert ImageDecoder(Visit, SCHEMA).decode_item(VISIT) == HOME

    class Upcast(Visit, pk="SITE#{site}", sk="DAY#{day:%Y%m%d}#{number:desc04d}"):
        pass

    seen: list[frozenset[str]] = []

    @Upcast.upcast
    def look(item: dict[str, Any]) -> dict[str, Any]:
        seen.append(frozenset(item))
        return {**item, "site": "abroad"}

    found = ImageDecoder(Upcast, SCHEMA).decode(wire())
    assert (found.site, found.day, found.number) == ("abroad", HOME.day, 42)
    assert seen == [frozenset(VISIT)], "an upcast sees what is stored"


@pytest.mark.parametrize("number", ["0.0000001", "-0.00000025", "1.5", "7"])
def test_a_number_that_is_a_key_is_read_alike_by_every_path(number: str) -> None:
    """As a decimal, a small one would have an exponent: another text, which no template fits."""

    class Reading(Entity, pk="SENSOR#{sensor}", sk="{value}"):
        sensor: str
        value: Decimal

    schema = TableSchema("t", "PK", "SK", "S", "N", {})
    item = {"PK": {"S": "SENSOR#a"}, "SK": {"N": number}}
    decoder = ImageDecoder(Reading, schema)
    found = [decoder.decode(json.dumps(item).encode()), decoder.decode_item(item)]
    assert [one.value for one in found] == [Decimal(number)] * 2
    assert [one.item_key.sk for one in found] == [number] * 2


def test_an_attribute_that_is_there_wins_over_the_key() -> None:
    image = wire(site={"S": "Home"}, number={"N": "7"})
    for found in (
        ImageDecoder(Visit, SCHEMA).decode(image),
        ImageDecoder(Visit, SCHEMA).decode_item(json.loads(image)),
    ):
        assert (found.site, found.number, found.day) == ("Home", 7, HOME.day)
        assert found.item_key.unstored == ("day",)


def test_a_key_that_could_be_split_in_two_ways_is_not_read_and_the_error_says_so() -> None:
    class Path(Entity, pk="{owner}#{path}", sk="PATH"):
        owner: str
        path: str

    image = json.dumps({"PK": {"S": "ann#a#b"}, "SK": {"S": "PATH"}}).encode()
    with pytest.raises(DecodeError, match=r"owner \(missing\), path \(missing\); .* one way only"):
        ImageDecoder(Path, SCHEMA).decode(image)


def test_an_update_writes_nothing_that_stands_only_in_the_key_and_changes_none_of_it() -> None:
    key = ImageDecoder(Visit, SCHEMA).decode(wire(site={"S": "home"})).item_key
    source = GuardSource("", "", 0)
    sets = compile_effect(Set(key, guest="ann"), SCHEMA, source).sets
    assert sets == {"guest": {"S": "ann"}, "site": {"S": "home"}, "type": {"S": "Visit"}}
    with pytest.raises(ValueError, match="day is part of the item's key"):
        compile_effect(Set(key, day=date(2024, 5, 2)), SCHEMA, source)

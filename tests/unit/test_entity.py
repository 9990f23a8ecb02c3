"""Entities build their keys from fields, and fail when they are declared if they cannot."""

import copy
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PastDate,
    ValidationError,
    field_validator,
)

from streamkit.entity import Entity, Index, Key, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.model.epoch import EpochSeconds
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.model.templates import LAST_CHARACTER
from streamkit.stream.decode import ImageDecoder

GSI = IndexSchema(
    "GSI1", (("GSI1PK", "S"),), (("GSI1SK", "S"),), "ALL", frozenset(), is_global=True
)
SCHEMA = TableSchema("shop", "PK", "SK", "S", "S", {"GSI1": GSI}, type_attribute="type")
SIMPLE = TableSchema("sessions", "Token", None, "S", None, {})


class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{day}#{order_id}", type="order"):
    username: str
    order_id: int
    day: date
    status: str = "PLACED"
    total: Decimal = Field(default=Decimal(0), alias="Total")
    tags: set[str]
    note: str | None
    expires: EpochSeconds | None = None
    by_status: ClassVar = Index(
        "GSI1",
        pk="STATUS#{status}",
        sk="{order_id:desc05d}#{username}",
        when=lambda order: order.status != "DONE",
    )


class Session(Entity, pk="{token}"):
    token: str = Field(alias="Token")


def order(**changes: Any) -> Order:
    return Order(**{"username": "ann", "order_id": 7, "day": date(2024, 5, 1)} | changes)


def test_a_key_built_from_fields_is_the_key_of_the_item() -> None:
    key = Order.key(username="ann", order_id="7", day="2024-05-01")
    assert key == order().item_key
    assert key == Key(Order, "CUSTOMER#ann", "#ORDER#2024-05-01#7")
    assert hash(key) == hash(order().item_key)
    assert key.wire(SCHEMA) == {"PK": {"S": "CUSTOMER#ann"}, "SK": {"S": "#ORDER#2024-05-01#7"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"username": "ann"}, "needs day, order_id"),
        ({"username": "ann", "order_id": 1, "day": "2024-05-01", "x": 1}, "does not take x"),
        ({"username": "ann", "order_id": "secret", "day": "2024-05-01"}, r"order_id \(int_parsing"),
        ({"username": "", "order_id": 1, "day": "2024-05-01"}, "Order: username is empty"),
    ],
)
def test_a_key_from_wrong_fields_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Order.key(**fields)
    assert "secret" not in str(refusal.value)


def test_a_field_validator_takes_part_in_keys() -> None:
    class Lower(Entity, pk="L#{name}"):
        name: str

        @field_validator("name")
        @classmethod
        def lower(cls, name: str) -> str:
            return name.lower()

    assert Lower.key(name="ANN") == Lower(name="Ann").item_key


class Line(Entity, pk="LINE#{amount}#{name}"):
    amount: Decimal | int | bool | str
    name: str


def test_a_key_of_the_same_texts_and_whole_numbers_is_made_once() -> None:
    first = Line.key(amount=1, name="a")
    assert Line.key(amount=1, name="a") is first
    assert Line.key(name="a", amount=1) == first
    assert Line.key(amount=2, name="a") != first
    assert Order.key(username="1", order_id="7", day="2024-05-01").entity is Order


@pytest.mark.parametrize(
    ("one", "other"), [(Decimal("1.0"), Decimal("1.00")), (1, Decimal("1.0")), ("1", 1)]
)
def test_a_key_tells_the_very_values_that_it_was_built_from(one: Any, other: Any) -> None:
    for value in (one, other, one):
        assert Line.key(amount=value, name="a").fields[0][1] is value


def test_keys_are_remembered_in_bounded_memory() -> None:
    for number in range(10_000):
        Line.key(amount=number, name="many")
    assert len(spec_of(Line).known_keys) <= 4096


def test_keys_of_number_and_binary_type_are_wired_as_such() -> None:
    numeric = TableSchema("t", "Token", None, "N", None, {})
    binary = TableSchema("t", "Token", None, "B", None, {})
    assert Session.key(token="5").wire(numeric) == {"Token": {"N": "5"}}
    assert Session.key(token="5").wire(binary) == {"Token": {"B": b"5"}}


def test_a_key_without_sk_does_not_fit_a_table_with_a_sort_key() -> None:
    assert Session.key(token="5").sk is None
    with pytest.raises(ValueError, match="Session has no sk"):
        Session.key(token="5").wire(SCHEMA)


def test_an_item_is_written_with_keys_index_keys_and_type() -> None:
    assert order(tags={"b", "a"}, total="1.5").attributes(SCHEMA) == {
        "PK": {"S": "CUSTOMER#ann"},
        "SK": {"S": "#ORDER#2024-05-01#7"},
        "GSI1PK": {"S": "STATUS#PLACED"},
        "GSI1SK": {"S": "99992#ann"},
        "type": {"S": "order"},
        "username": {"S": "ann"},
        "order_id": {"N": "7"},
        "day": {"S": "2024-05-01"},
        "status": {"S": "PLACED"},
        "Total": {"N": "1.5"},
        "tags": {"SS": ["a", "b"]},
    }


def test_an_item_that_a_sparse_index_leaves_out_has_none_of_its_attributes() -> None:
    written = order(status="DONE").attributes(SCHEMA)
    assert not {"GSI1PK", "GSI1SK"} & written.keys()


def test_absent_sets_and_optional_fields_are_empty() -> None:
    assert order().tags == set()
    assert order().note is None


def test_a_field_stored_where_the_key_is_must_agree_with_it() -> None:
    assert Session(Token="x").attributes(SIMPLE) == {"Token": {"S": "x"}}

    class Beside(Entity, pk="S#{name}"):
        name: str
        token: str = Field(alias="Token")

    with pytest.raises(ValueError, match="the field stored as Token differs from the key"):
        Beside(name="n", Token="x").attributes(SIMPLE)


def test_a_field_of_the_key_that_is_stored_as_the_key_is_in_it_alone() -> None:
    class Prefixed(Entity, pk="S#{token}"):
        token: str = Field(alias="Token")

    item = Prefixed(Token="x").attributes(SIMPLE)
    assert item == {"Token": {"S": "S#x"}}
    read = ImageDecoder(Prefixed, SIMPLE).decode_item(item)
    assert (read, read.item_key) == (Prefixed(Token="x"), Prefixed.key(token="x"))
    assert ImageDecoder(Prefixed, SIMPLE).decode(json.dumps(item).encode()) == read


def test_extra_attributes_that_a_model_keeps_are_written() -> None:
    class Loose(Entity, pk="L#{a}", extra="allow"):
        a: str

    assert Loose(a="1", b=2).attributes(SIMPLE)["b"] == {"N": "2"}


def test_setting_fields_checks_each_by_its_own_type() -> None:
    changes = Order.set_attributes(
        SCHEMA, {"total": "2", "Total": "2.5", "note": None, "tags": [], "expires": 10.0}
    )
    assert changes == {
        "Total": {"N": "2.5"},
        "note": None,
        "tags": None,
        "expires": {"N": "10"},
    }
    assert Order.set_attributes(SCHEMA, {"status": None}) == {"status": None}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colour": 1}, r"Order \(test_entity.py:\d+\) has no field colour"),
        ({"total": "secret"}, r"setting fields of Order: .*total \(decimal_parsing"),
        ({"username": None}, r"username \(string_type"),
    ],
)
def test_setting_wrong_fields_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Order.set_attributes(SCHEMA, fields)
    assert "secret" not in str(refusal.value)


def test_setting_fields_makes_up_no_others() -> None:
    class Derived(Entity, pk="D#{a}", populate_by_name=False):
        a: str
        net: int = Field(alias="Net")
        gross: int = Field(default_factory=lambda data: data["net"] * 2)

    assert Derived.set_attributes(SCHEMA, {"net": "3"}) == {"Net": {"N": "3"}}
    assert Derived.set_attributes(SCHEMA, {"a": "x"}) == {"a": {"S": "x"}}


def test_the_attributes_of_the_table_key_cannot_be_set() -> None:
    with pytest.raises(ValueError, match="Session: a key attribute cannot be set: Token"):
        Session.set_attributes(SIMPLE, {"token": "y"})


def test_a_key_tells_the_fields_it_was_built_from_but_not_those_stored_as_the_key() -> None:
    assert Session.key(token="x").field_attributes(SIMPLE) == {}
    assert Order.key(username="ann", order_id=7, day="2024-05-01").field_attributes(SCHEMA) == {
        "username": {"S": "ann"},
        "order_id": {"N": "7"},
        "day": {"S": "2024-05-01"},
        "type": {"S": "order"},
    }


def test_the_key_of_an_item_tells_the_same_fields_as_one_that_was_built() -> None:
    built = Order.key(username="ann", order_id=7, day="2024-05-01")
    assert set(order().item_key.fields) == set(built.fields)


def test_a_query_takes_the_leading_fields_of_the_sort_key() -> None:
    everything = Order.query(username="ann")
    assert (everything.pk, everything.sk_prefix) == ("CUSTOMER#ann", "#ORDER#")
    day = Order.query(username="ann", day="2024-05-01")
    assert day.sk_prefix == "#ORDER#2024-05-01#"
    exact = Order.query(username="ann", day="2024-05-01", order_id=1)
    assert exact.sk_prefix is None
    assert exact.lower == exact.upper == "#ORDER#2024-05-01#1"


def test_a_query_between_two_values_takes_both_ends_in() -> None:
    days = Order.query(username="ann").between("2024-05-01", date(2024, 5, 2))
    assert days.lower == "#ORDER#2024-05-01"
    assert days.upper == "#ORDER#2024-05-02#" + LAST_CHARACTER
    since = Order.query(username="ann").between(low="2024-05-01")
    assert since.upper == "#ORDER#" + LAST_CHARACTER
    until = Order.query(username="ann").between(high="2024-05-01")
    assert until.lower == "#ORDER#"
    ids = Order.query(username="ann", day="2024-05-01").between(1, 9)
    assert (ids.lower, ids.upper) == ("#ORDER#2024-05-01#1", "#ORDER#2024-05-01#9")


def test_bounds_of_a_descending_number_are_given_in_its_own_order() -> None:
    query = Order.query(index=Order.by_status, status="PLACED").between(10, 20)
    assert query.index is Order.by_status
    assert query.lower == "99979"
    assert query.upper == "99989#" + LAST_CHARACTER


def test_a_query_is_a_value() -> None:
    query = Order.query(username="ann")
    assert query.reverse().limit(5) != query
    assert query.reverse().reverse() == query
    assert query.limit(5).maximum == 5
    with pytest.raises(ValueError, match="at least 1"):
        query.limit(0)
    with pytest.raises(ValueError, match="no sort-key field is left open"):
        Order.query(username="a", day="2024-05-01", order_id=1).between(1, 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs username"),
        ({"username": "a", "status": "x"}, "does not take status"),
        ({"username": "a", "order_id": 1}, "by order_id also needs day"),
        ({"index": Index("other", pk="x"), "username": "a"}, "other is not an index of it"),
    ],
)
def test_a_query_by_wrong_fields_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Order.query(**fields)


def declare(pk: str | None = None, **keywords: Any) -> None:
    class Wrong(Entity, pk=pk, **keywords):
        name: str
        on: bool = True
        day: date = date(2024, 1, 1)
        names: list[str] = []
        count: int | None = None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"pk": "X#{nam}"}, "Wrong has no field 'nam'"),
        ({"pk": "X#{name}", "sk": "{name.x}"}, "not the name of a field"),
        ({"pk": "X#{name}", "sort": "x"}, "unknown class keyword 'sort'"),
        ({"sk": "X#{name}"}, "needs pk"),
        ({"type": "x"}, "needs pk"),
        ({"pk": "X#{on}"}, "a bool .on. cannot be part of a key"),
        ({"pk": "X#{names}"}, "a list .names. cannot be part of a key"),
        ({"pk": "X#{name:%Y}"}, "name is not a date"),
        ({"pk": "X#{day:08d}"}, "day is not a number"),
    ],
)
def test_a_wrong_declaration_fails_with_its_line(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"Wrong \(test_entity.py:\d+\).*{message}"):
        declare(**keywords)


@pytest.mark.parametrize("kind", [AwareDatetime, PastDate])
def test_pydantics_own_dates_are_dates_in_a_template(kind: Any) -> None:
    class Dated(Entity, pk="D#{day:%Y-%m-%d}"):
        day: kind

    assert spec_of(Dated).pk.fields == ("day",)


def test_a_wrong_template_of_an_index_names_entity_and_index() -> None:
    with pytest.raises(DeclarationError, match=r"Bad \(.*\), index GSI9 \(test_entity.py:\d+\)"):

        class Bad(Entity, pk="B#{a}"):
            a: str
            index_: ClassVar = Index("GSI9", pk="{b}")


def test_a_field_may_not_hide_what_entities_define() -> None:
    with pytest.raises(DeclarationError, match="cannot be called item_key"):

        class Hidden(Entity, pk="H#{a}"):
            a: str
            item_key: str


def test_a_field_must_be_read_from_where_it_is_written() -> None:
    with pytest.raises(DeclarationError, match="written as 'B', but not read from it"):

        class Lost(Entity, pk="L#{a}"):
            a: str
            b: str = Field(validation_alias="A", serialization_alias="B")


def test_an_abstract_base_has_no_keys() -> None:
    class Base(Entity, str_max_length=5):
        name: str

    class Child(Base, pk="C#{name}"):
        pass

    assert Child.key(name="a").pk == "C#a"
    with pytest.raises(DeclarationError, match="abstract base"):
        Base.key(name="a")
    with pytest.raises(ValidationError):
        Child(name="too long")


def test_a_subclass_inherits_keys_type_and_indexes() -> None:
    class Gift(Order):
        message: str = ""

    class Return(Order, type="return"):
        pass

    assert Gift.key(username="a", day="2024-05-01", order_id=1).pk == "CUSTOMER#a"
    assert spec_of(Gift).type == "order"
    assert spec_of(Return).type == "return"
    assert spec_of(Return).pk is spec_of(Order).pk
    assert spec_of(Gift).indexes == {"by_status": Order.by_status}
    assert spec_of(Session).type == "Session"


def test_an_index_that_the_table_lacks_is_a_declaration_error() -> None:
    with pytest.raises(DeclarationError, match=r"index GSI1 \(.*\): sessions has no index GSI1"):
        Order.by_status.key_attributes(SIMPLE)
    given = Index("GSI7", pk="{a}", sk="{b}", pk_attribute="x", sk_attribute="y")
    assert given.key_attributes(SIMPLE) == ((("x", "S"),), (("y", "S"),))
    with pytest.raises(DeclarationError, match="GSI1 of shop has the sort key GSI1SK"):
        Index("GSI1", pk="{a}").key_attributes(SCHEMA)


def test_upcasts_run_in_order_those_of_bases_first() -> None:
    class Base(Entity, pk="B#{a}"):
        a: str

    class Child(Base):
        pass

    @Child.upcast
    def second(item: dict[str, Any]) -> dict[str, Any]:
        return item

    @Base.upcast
    def first(item: dict[str, Any]) -> dict[str, Any]:
        return item

    assert Child.upcasts() == (first, second)
    assert Base.upcasts() == (first,)


def test_epoch_seconds_are_whole_and_in_utc() -> None:
    moment = datetime(2024, 5, 1, 2, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert order(expires=moment).expires == datetime(2024, 5, 1, tzinfo=UTC)
    assert order(expires=moment).expires.isoformat() == "2024-05-01T00:00:00+00:00"
    assert order(expires=Decimal(0)).expires == datetime(1970, 1, 1, tzinfo=UTC)
    assert order(expires=moment).attributes(SCHEMA)["expires"] == {"N": "1714521600"}
    with pytest.raises(ValidationError, match="time zone"):
        order(expires="2024-05-01T00:00:00")


def test_entities_are_frozen_and_hide_values_in_errors() -> None:
    with pytest.raises(ValidationError):
        order().status = "x"  # type: ignore[misc]
    with pytest.raises(ValidationError) as refusal:
        order(order_id="secret")
    assert "secret" not in str(refusal.value)


def test_a_model_that_refers_to_a_later_one_is_completed_when_it_can_be() -> None:
    class Early(Entity, pk="E#{a}"):
        a: str
        later: "Later"
        marks: set[int]

    class Later(BaseModel):
        model_config = ConfigDict(frozen=True)
        b: int

    Early.model_rebuild(_types_namespace={"Later": Later})
    assert Early(a="1", later=Later(b=1)).marks == set()


def test_attribute_names_follow_aliases() -> None:
    assert attribute_names(Session) == {"token": "Token"}


class City(Entity, pk="STATE#{state}", sk="CITY#{city}"):
    state: str
    city: str
    note: str = ""


CITY = {
    "PK": {"S": "STATE#CA"},
    "SK": {"S": "CITY#LOS_ANGELES"},
    "state": {"S": "CA"},
    "city": {"S": "Los Angeles"},
}
STORED = Key(City, "STATE#CA", "CITY#LOS_ANGELES")


def city() -> City:
    return ImageDecoder(City, SCHEMA).decode_item(CITY)


def test_the_key_of_an_item_that_was_read_is_the_one_it_was_read_with() -> None:
    raw = ImageDecoder(City, SCHEMA).decode(json.dumps(CITY).encode())
    assert raw.item_key == city().item_key == STORED
    assert city() == City(state="CA", city="Los Angeles")
    assert city().attributes(SCHEMA)["SK"] == {"S": "CITY#LOS_ANGELES"}


def test_a_copy_is_of_the_same_item_unless_a_field_of_its_key_is_another() -> None:
    changed = city().model_copy(update={"note": "x", "city": "Los Angeles"})
    for copied in (changed, copy.copy(city()), copy.deepcopy(city()), city().model_copy(deep=True)):
        assert copied.item_key == STORED
    assert city().model_copy(update={"city": "LA"}).item_key == City.key(state="CA", city="LA")
    assert City(**city().model_dump()).item_key == City.key(state="CA", city="Los Angeles")


def test_a_mutable_item_has_another_key_once_a_field_of_its_key_is_set() -> None:
    class Town(City, pk="STATE#{state}", sk="CITY#{city}", frozen=False):
        pass

    town = ImageDecoder(Town, SCHEMA).decode_item(CITY)
    town.note = "x"
    assert town.item_key == Key(Town, "STATE#CA", "CITY#LOS_ANGELES")
    town.city = "LA"
    assert town.item_key == Town.key(state="CA", city="LA")

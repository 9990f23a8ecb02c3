"""Bodies of deliveries: all that an entity may hold can be sent."""

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from uuid import UUID

import pytest
from pydantic import Field, SecretStr

from streamkit import Entity
from streamkit.model.codec import decode, encode
from streamkit.sinks.body import to_plain, to_text

USUAL = UUID(int=7)


class Parcel(Entity, pk="PARCEL#{number}", sk="PARCEL"):
    number: UUID
    collected: time | None = None
    travelled: timedelta | None = None


class Renamed(Entity, pk="RENAMED#{number}", sk="RENAMED"):
    number: str
    state: str = Field(alias="st")


class Colour(str, Enum):  # noqa: UP042 - its text is not its value
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


class Plain(Enum):
    NAME = "name"


class Box(Entity, pk="BOX#{number}", sk="BOX"):
    number: int
    colours: dict[Colour, int] = {}
    rank: Rank = Rank.FIRST
    made_by: str = Field("ann", alias="madeBy")


@pytest.mark.parametrize(
    "value", [USUAL, time(9, 30), timedelta(minutes=90), IPv4Address("10.0.0.1")]
)
def test_what_an_entity_may_hold_is_sent_as_the_table_stores_it(value):
    assert to_plain([value]) == [decode(encode(value))]


def test_a_whole_entity_with_such_fields_can_be_sent():
    parcel = Parcel(number=USUAL, collected=time(9, 30), travelled=timedelta(minutes=90))
    assert to_plain(parcel) == {
        "number": str(USUAL),
        "collected": "09:30:00",
        "travelled": "PT1H30M",
    }


def test_members_of_an_enum_are_sent_as_their_values_and_fields_by_their_names_in_the_table():
    box = Box(number=1, colours={Colour.RED: 2})
    stored = {"number": 1, "colours": {"red": 2}, "rank": 1, "madeBy": "ann"}
    assert to_plain(box) == stored
    assert {type(value) for value in to_plain([Colour.RED, Rank.FIRST])} == {str, int}
    assert to_text({Plain.NAME: Colour.RED}) == '{"name":"red"}'
    assert to_text(Colour.RED) == "red"


def test_the_members_of_a_set_have_an_order():
    assert to_plain({"b", "c", "a", "d"}) == ["a", "b", "c", "d"]
    assert to_plain({2, "a", 1}) == [1, 2, "a"]


def test_decimals_moments_and_bytes_keep_their_forms():
    body = {"a": Decimal("1.50"), "b": datetime(2026, 3, 1, tzinfo=UTC), "c": b"x", "d": {2, 1}}
    assert to_text(body) == '{"a":"1.50","b":"2026-03-01T00:00:00+00:00","c":"eA==","d":[1,2]}'


def test_a_field_is_sent_by_the_name_of_its_attribute():
    assert to_plain(Renamed(number="1", st="new")) == {"number": "1", "st": "new"}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_know_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_text({"x": number})


@pytest.mark.parametrize("value", [object(), SecretStr("s3cret"), print])
def test_what_has_no_form_is_refused_by_its_type_alone(value):
    with pytest.raises(TypeError, match=f"a {type(value).__name__} cannot be sent"):
        to_plain({"x": value})

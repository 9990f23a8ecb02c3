"""Values survive the way to DynamoDB's attribute values and back, or are refused by path."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from streamkit.model.codec import (
    decode,
    decode_image,
    decode_number,
    encode,
    key_digest,
    wire_image,
)

numbers = st.integers(-(10**38) + 1, 10**38 - 1) | st.decimals(
    allow_nan=False, allow_infinity=False, places=8, min_value=-(10**20), max_value=10**20
)
scalars = st.none() | st.booleans() | st.text() | numbers | st.binary()
sets = (
    st.sets(st.text(), min_size=1)
    | st.sets(st.integers(), min_size=1, max_size=3).filter(lambda s: max(map(abs, s)) < 10**38)
    | st.sets(st.binary(), min_size=1)
)
values = st.recursive(
    scalars | sets,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


class Level(Enum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


@given(values)
def test_plain_values_survive_the_round_trip(value: Any) -> None:
    assert decode(encode(value)) == value


@given(values)
def test_the_deserialiser_of_boto3_reads_the_same(value: Any) -> None:
    assert TypeDeserializer().deserialize(encode(value)) == value


@given(values)
def test_the_wire_form_reads_the_same(value: Any) -> None:
    wire = json.dumps({"a": encode(value)}, default=lambda b: base64.b64encode(b).decode())
    assert decode_image(wire.encode()) == {"a": value}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-12", -12),
        ("12.0", 12),
        ("1E2", 100),
        ("0.1", Decimal("0.1")),
        ("-0.1", Decimal("-0.1")),
        ("9" * 38, 10**38 - 1),
        ("1." + "1" * 37, Decimal("1." + "1" * 37)),
        ("1E-130", Decimal("1E-130")),
        ("5.", 5),
    ],
)
def test_a_number_is_an_int_if_it_is_integral(text: str, number: object) -> None:
    assert decode_number(text) == number
    assert type(decode_number(text)) is type(number)


@pytest.mark.parametrize("text", ["9" * 37 + ".55", "NaN", "Infinity", "", "x"])
def test_a_number_is_never_rounded(text: str) -> None:
    with pytest.raises(ValueError, match="not an attribute value"):
        decode({"N": text})


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (0.1, {"N": "0.1"}),
        (True, {"BOOL": True}),
        (Level.HIGH, {"N": "3"}),
        (Word.YES, {"S": "yes"}),
        ({Word.YES}, {"SS": ["yes"]}),
        (date(2024, 5, 1), {"S": "2024-05-01"}),
        (datetime(2024, 5, 1, tzinfo=UTC), {"S": "2024-05-01T00:00:00Z"}),
        (UUID(int=1), {"S": "00000000-0000-0000-0000-000000000001"}),
        (("a", 1), {"L": [{"S": "a"}, {"N": "1"}]}),
        (bytearray(b"x"), {"B": b"x"}),
        ({2, 1}, {"NS": ["1", "2"]}),
    ],
)
def test_python_values_have_one_stored_form(value: object, attribute: object) -> None:
    assert encode(value) == attribute


@pytest.mark.parametrize(
    "value",
    [
        set(),
        {1, "a"},
        {None},
        {1: "a"},
        object(),
        10**38 + 1,
        Decimal("1." + "1" * 38),
        Decimal("NaN"),
        float("inf"),
        SecretStr("hush"),
        Decimal("1E126"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_path_without_the_value(value: object) -> None:
    with pytest.raises(ValueError, match=r"^deal\.a\[0\]") as refusal:
        encode({"a": [value]}, "deal")
    assert "hush" not in str(refusal.value)
    assert "111" not in str(refusal.value)


@pytest.mark.parametrize(
    "attribute",
    [
        {},
        {"S": 1},
        {"X": "secret"},
        {"S": "secret", "N": "1"},
        {"N": "secret"},
        {"B": "secret!"},
        {"L": ["secret"]},
    ],
)
def test_what_is_no_attribute_value_is_refused_without_the_value(attribute: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not an attribute value") as refusal:
        decode(attribute)
    assert "secret" not in str(refusal.value)


def test_an_image_that_is_no_item_names_the_attribute() -> None:
    with pytest.raises(ValueError, match="price is not an attribute value"):
        decode_image(b'{"id":{"S":"a"},"price":{"N":"x"}}')
    with pytest.raises(ValueError, match="not an item"):
        decode_image(b'{"id":')


def test_an_image_has_its_binary_values_as_bytes_wherever_they_are() -> None:
    image = b'{"k":{"S":"a"},"s":{"BS":["AQ==","Ag=="]},"m":{"M":{"l":{"L":[{"B":"Aw=="}]}}}}'
    assert wire_image(image) == {
        "k": {"S": "a"},
        "s": {"BS": [b"\1", b"\2"]},
        "m": {"M": {"l": {"L": [{"B": b"\3"}]}}},
    }


def test_digests_tell_keys_apart_and_show_nothing_of_them() -> None:
    assert key_digest("a", "bc") != key_digest("ab", "c")
    assert key_digest("a") == key_digest("a")
    assert len(key_digest("a")) == 16

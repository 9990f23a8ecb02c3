"""Attribute values: the gate that makes them canonical, equality, order, sizes and sums."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.values import (
    add_numbers,
    canonical,
    canonical_item,
    canonical_number,
    compare,
    equal,
    equal_items,
    item_size,
    sort_token,
    subtract_numbers,
    value_size,
)

PREFIX = "One or more parameter values were invalid: "
OVERFLOW = (
    "Number overflow. Attempting to store a number with magnitude larger than supported range"
)
UNDERFLOW = (
    "Number underflow. Attempting to store a number with magnitude smaller than supported range"
)
PRECISION = "Attempting to store more than 38 significant digits in a Number"

numbers = st.builds(
    lambda digits, exponent, sign: f"{sign}{digits}E{exponent}",
    st.integers(0, 10**38 - 1),
    st.integers(-100, 80),
    st.sampled_from(["", "-", "+"]),
)
scalars = (
    st.text(max_size=5).map(lambda text: {"S": text})
    | numbers.map(lambda number: {"N": number})
    | st.sampled_from(["", "YQ==", "YWI=", "AAECAw=="]).map(lambda data: {"B": data})
    | st.booleans().map(lambda flag: {"BOOL": flag})
    | st.just({"NULL": True})
    | st.lists(st.sampled_from("abcd"), min_size=1, unique=True).map(
        lambda members: {"SS": members}
    )
    | st.lists(st.sampled_from(["1", "1.5", "-2"]), min_size=1, unique=True).map(
        lambda members: {"NS": members}
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda elements: {"L": elements})
        | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3).map(
            lambda members: {"M": members}
        )
    ),
    max_leaves=6,
).map(canonical)


def message(value):
    with pytest.raises(ApiError) as caught:
        canonical(value)
    return caught.value.message


def nested(levels):
    value = {"S": "leaf"}
    for _ in range(levels):
        value = {"M": {"n": value}}
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("1E2", "100"),
        ("1.5e2", "150"),
        ("00042", "42"),
        ("+5", "5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-0", "0"),
        ("0.0", "0"),
        ("0e999999999", "0"),
        ("3.1400", "3.14"),
        ("-0.00120", "-0.0012"),
        ("1e0000000002", "100"),
        ("1E125", "1" + "0" * 125),
        ("1E-130", "0." + "0" * 129 + "1"),
        ("9" * 38, "9" * 38),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
    ],
)
def test_a_number_has_one_spelling(text, expected):
    assert canonical({"N": text}) == {"N": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "The parameter cannot be converted to a numeric value"),
        ("b", "The parameter cannot be converted to a numeric value: b"),
        ("1e", "The parameter cannot be converted to a numeric value: 1e"),
        (" 1", "The parameter cannot be converted to a numeric value:  1"),
        ("NaN", "The parameter cannot be converted to a numeric value: NaN"),
        ("Infinity", "The parameter cannot be converted to a numeric value: Infinity"),
        ("\u0661", "The parameter cannot be converted to a numeric value: \u0661"),
        ("1" * 39, PRECISION),
        ("1.23456789012345678901234567890123456789", PRECISION),
        ("1E126", OVERFLOW),
        ("-1E126", OVERFLOW),
        ("1e999999999", OVERFLOW),
        ("1E-131", UNDERFLOW),
        ("-1e-999999999", UNDERFLOW),
    ],
)
def test_what_is_no_storable_number_is_refused(text, expected):
    assert message({"N": text}) == expected


@given(numbers)
def test_a_canonical_number_is_the_same_number_and_stays_as_it_is(text):
    once = canonical_number(text)
    assert Decimal(once) == Decimal(text)
    assert canonical_number(once) == once
    assert "E" not in once
    assert (
        once == "0"
        or once.strip("-") == once.strip("-").lstrip("0")
        or once.strip("-").startswith("0.")
    )


@given(st.integers(-(10**18), 10**18), st.integers(-(10**18), 10**18))
def test_sums_and_differences_are_exact(a, b):
    assert add_numbers(str(a), str(b)) == str(a + b)
    assert subtract_numbers(str(a), str(b)) == str(a - b)


def test_a_sum_that_does_not_fit_is_refused():
    big = canonical_number("9.9E125")
    with pytest.raises(ApiError, match="Number overflow"):
        add_numbers(big, big)
    with pytest.raises(ApiError, match="38 significant digits"):
        add_numbers(canonical_number("1E50"), "1")
    for large, small in (("9" * 38, "2"), ("1E125", "1E-130")):
        with pytest.raises(ApiError, match="38 significant digits"):
            add_numbers(canonical_number(large), canonical_number(small))
    assert subtract_numbers(big, big) == "0"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {},
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ),
        (
            {"a": ""},
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ),
        (
            {"S": None},
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ),
        (
            {"L": [{}]},
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ),
        (
            {"S": "a", "N": "1"},
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
        ),
        ({"SS": []}, PREFIX + "An string set  may not be empty"),
        ({"NS": []}, PREFIX + "An number set  may not be empty"),
        ({"BS": []}, PREFIX + "Binary sets should not be empty"),
        ({"SS": ["a", "a"]}, PREFIX + "Input collection [a, a] contains duplicates."),
        (
            {"BS": ["Yg==", "Yg=="]},
            PREFIX + "Input collection [Yg==, Yg==]of type BS contains duplicates.",
        ),
        ({"NS": ["1", "1.0"]}, "Input collection contains duplicates"),
        ({"M": {"a": {"SS": []}}}, PREFIX + "An string set  may not be empty"),
        ({"S": 5}, "NUMBER_VALUE cannot be converted to String"),
        ({"S": 1.5}, "DECIMAL_VALUE cannot be converted to String"),
        ({"N": True}, "TRUE_VALUE cannot be converted to String"),
        ({"N": False}, "FALSE_VALUE cannot be converted to String"),
        ({"S": {}}, "Start of structure or map found where not expected"),
        ({"S": []}, "Unrecognized collection type class java.lang.String"),
        ({"BOOL": "no"}, "Unexpected token received from parser"),
        ({"BOOL": {}}, "Start of structure or map found where not expected"),
        ({"BOOL": []}, "Unrecognized collection type class java.lang.Boolean"),
        ({"L": {}}, "Start of structure or map found where not expected"),
        ({"L": "a"}, "Unexpected field type"),
        ({"M": "a"}, "Unexpected field type"),
        ({"B": 1}, "only base-64-encoded strings are convertible to bytes"),
        ({"B": "abc"}, "Base64 encoded length is expected a multiple of 4 bytes but found: 3"),
        ({"B": "ab$d"}, "Invalid Base64 character: '$'"),
        ({"B": "a==="}, "Invalid Base64 character: '='"),
        ({"B": "YR=="}, "Invalid last non-pad Base64 character dectected"),
        ("x", "Unexpected value type in payload"),
    ],
)
def test_a_malformed_value_is_refused_in_the_words_of_the_service(value, expected):
    assert message(value) == expected


def test_a_map_or_item_that_is_a_list_is_refused():
    assert message({"M": []}).startswith("Unrecognized collection type java.util.Map")
    assert message([]).startswith("Unrecognized collection type class com.amazonaws")
    with pytest.raises(ApiError, match="Unexpected field type"):
        canonical_item([])


def test_a_type_that_is_null_is_not_given():
    assert canonical({"S": "x", "N": None}) == {"S": "x"}


def test_empty_strings_and_binaries_are_values():
    assert canonical({"S": ""}) == {"S": ""}
    assert canonical({"B": ""}) == {"B": ""}


def test_documents_nest_31_levels_and_no_more():
    assert canonical(nested(31)) == nested(31)
    assert message(nested(32)).startswith("Nesting Levels have exceeded supported limits")


def test_canonical_values_pass_as_they_are():
    value = {"S": "x"}
    assert canonical(value) is value
    assert canonical_item({"a": value, "n": {"N": "1.50"}}) == {"a": value, "n": {"N": "1.5"}}


@given(values)
def test_canonical_is_idempotent(value):
    assert canonical(value) == value


@given(values, values, values)
def test_equal_is_an_equivalence(a, b, c):
    assert equal(a, a)
    assert equal(a, b) == equal(b, a)
    if equal(a, b) and equal(b, c):
        assert equal(a, c)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}, True),
        ({"SS": ["a", "b"]}, {"SS": ["a"]}, False),
        ({"SS": ["1"]}, {"NS": ["1"]}, False),
        ({"S": "1"}, {"N": "1"}, False),
        ({"L": [{"SS": ["a", "b"]}]}, {"L": [{"SS": ["b", "a"]}]}, True),
        ({"L": [{"S": "a"}, {"S": "b"}]}, {"L": [{"S": "b"}, {"S": "a"}]}, False),
        (
            {"M": {"a": {"NS": ["1", "2"]}, "b": {"S": ""}}},
            {"M": {"b": {"S": ""}, "a": {"NS": ["2", "1"]}}},
            True,
        ),
        ({"M": {"a": {"S": ""}}}, {"M": {"b": {"S": ""}}}, False),
        ({"BOOL": True}, {"BOOL": False}, False),
    ],
)
def test_equality_is_by_value(left, right, expected):
    assert equal(left, right) is expected
    assert equal_items({"x": left}, {"x": right}) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"N": "9"}, {"N": "10"}, -1),
        ({"N": "-1.5"}, {"N": "-1.25"}, -1),
        ({"N": "9" * 38}, {"N": "1" + "0" * 38}, -1),
        ({"S": "9"}, {"S": "10"}, 1),
        ({"S": "z"}, {"S": "é"}, -1),
        ({"S": "\uffff"}, {"S": "\U00010000"}, -1),
        ({"B": "fw=="}, {"B": "gA=="}, -1),
        ({"B": "YQ=="}, {"B": "YWI="}, -1),
        ({"B": "AA=="}, {"B": "/w=="}, -1),
        ({"S": "a"}, {"S": "a"}, 0),
        ({"S": "a"}, {"N": "1"}, None),
        ({"BOOL": True}, {"BOOL": False}, None),
        ({"SS": ["a"]}, {"SS": ["b"]}, None),
    ],
)
def test_only_strings_numbers_and_binaries_are_ordered(left, right, expected):
    assert compare(left, right) == expected
    if expected:
        assert (sort_token(left) < sort_token(right)) is (expected < 0)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0", 1),
        ("1", 2),
        ("12", 2),
        ("123", 3),
        ("1234", 3),
        ("12345678901234567890123456789012345678", 20),
        ("0042", 2),
        ("100", 2),
        ("1010", 3),
        ("0.0000001", 2),
        ("1E125", 2),
        ("1E-100", 2),
        ("1.5", 3),
        ("1.200", 3),
        ("3.14159", 5),
        ("123456", 4),
        ("100.5", 4),
        ("0.15", 2),
        ("-42", 3),
        ("-0", 1),
    ],
)
def test_a_number_weighs_its_significant_digits(number, expected):
    assert value_size(canonical({"N": number})) == expected


def test_sizes_count_names_utf8_bytes_and_document_overhead():
    assert value_size({"S": "é"}) == 2
    assert value_size({"B": ""}) == 0
    assert value_size({"B": "YQ=="}) == 1
    assert value_size({"BOOL": True}) == value_size({"NULL": True}) == 1
    assert value_size({"SS": ["a", "bc"]}) == 3
    assert value_size({"NS": ["1", "-12"]}) == 5
    assert value_size({"BS": ["YQ==", "YWI="]}) == 3
    assert value_size({"L": []}) == 3
    assert value_size({"L": [{"S": "xy"}]}) == 6
    assert value_size({"M": {"ab": {"S": "xy"}}}) == 8
    assert item_size({"pk": {"S": "abc"}, "é": {"BOOL": True}}) == 5 + 3


def test_errors_take_the_form_they_have_on_the_wire():
    assert validation("m").body() == {
        "__type": "com.amazon.coral.validate#ValidationException",
        "message": "m",
    }
    assert serialization("m").body() == {
        "__type": "com.amazon.coral.service#SerializationException",
        "Message": "m",
    }
    failed = ApiError("ConditionalCheckFailedException", "m", Item={"a": {"S": "b"}})
    assert failed.body() == {
        "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
        "message": "m",
        "Item": {"a": {"S": "b"}},
    }
    cancelled = ApiError("TransactionCanceledException", "m", CancellationReasons=[])
    assert cancelled.body()["Message"] == "m"
    assert "message" not in ApiError("UnknownOperationException", "").body()
    assert failed.status == 400

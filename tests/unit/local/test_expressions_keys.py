"""Key conditions: the value of the partition key and the range of the sort key."""

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.local.errors import ApiError
from streamkit.local.expressions import Placeholders, parse_key_condition
from streamkit.local.values import sort_token

TYPES = {"pk": "S", "sk": "S"}
VALUES = {
    ":p": {"S": "p"},
    ":b": {"S": "b"},
    ":d": {"S": "d"},
    ":n": {"N": "1"},
    ":empty": {"S": ""},
}


def parse(text, values=None, *, range_name="sk", types=TYPES, names=None):
    request = Placeholders(names, values or VALUES, expressions={"KeyConditionExpression": text})
    return parse_key_condition(
        text, request, ["pk"], [range_name] if range_name else [], types=types
    )


def refusal(text, values=None, **options):
    with pytest.raises(ApiError) as caught:
        parse(text, values, **options)
    assert caught.value.code == "ValidationException"
    return caught.value.message


def selected(text, *keys):
    condition = parse(text)
    return "".join(key for key in keys if holds(condition, {"S": key}))


def holds(condition, sort_key):
    return condition.holds((sort_token(sort_key),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pk = :p", "abcde"),
        (":p = pk", "abcde"),
        ("pk = :p AND sk = :b", "b"),
        ("sk = :b AND pk = :p", "b"),
        ("pk = :p AND sk < :b", "a"),
        ("pk = :p AND sk <= :b", "ab"),
        ("pk = :p AND sk > :b", "cde"),
        ("pk = :p AND sk >= :b", "bcde"),
        ("pk = :p AND :b <= sk", "bcde"),
        ("pk = :p AND :b > sk", "a"),
        ("pk = :p AND sk BETWEEN :b AND :d", "bcd"),
        ("pk = :p AND begins_with(sk, :b)", "b"),
        ("(pk = :p) AND (sk = :b)", "b"),
        ("(pk = :p and sk = :b)", "b"),
        ("((pk = :p)) AND ((sk = :b))", "b"),
    ],
)
def test_a_key_condition_selects_a_range(text, expected):
    assert parse(text).hash_values == ({"S": "p"},)
    assert selected(text, *"abcde") == expected


def test_the_bounds_are_those_of_the_comparison():
    assert not parse("pk = :p").ranged
    between = parse("pk = :p AND sk BETWEEN :b AND :d")
    assert (between.lower, between.lower_inclusive) == (b"b", True)
    assert (between.upper, between.upper_inclusive) == (b"d", True)
    after = parse("pk = :p AND sk > :b")
    assert (after.lower, after.lower_inclusive, after.upper) == (b"b", False, None)
    prefixed = parse("pk = :p AND begins_with(sk, :b)")
    assert (prefixed.lower, prefixed.upper, prefixed.upper_inclusive) == (b"b", b"c", False)


def test_a_binary_prefix_of_highest_bytes_has_no_upper_bound():
    values = {":p": {"S": "p"}, ":x": {"B": "//8="}, ":y": {"B": "AP8="}}
    types = {"pk": "S", "sk": "B"}
    text = "pk = :p AND begins_with(sk, {})"
    endless = parse(text.format(":x"), {key: values[key] for key in (":p", ":x")}, types=types)
    assert (endless.lower, endless.upper) == (b"\xff\xff", None)
    carried = parse(text.format(":y"), {key: values[key] for key in (":p", ":y")}, types=types)
    assert (carried.lower, carried.upper) == (b"\x00\xff", b"\x01")
    assert holds(carried, {"B": "AP8A"})
    assert not holds(carried, {"B": "AQ=="})


def test_numbers_range_by_value():
    values = {":p": {"S": "p"}, ":n": {"N": "9.50"}}
    condition = parse("pk = :p AND sk > :n", values, types={"pk": "S", "sk": "N"})
    assert holds(condition, {"N": "10"})
    assert not holds(condition, {"N": "9.5"})
    assert not holds(condition, {"N": "-100"})


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("a > b and size(b) > c or a > c", "OR"),
        ("a in (b, size(c), d)", "IN"),
        ("attribute_exists(a)", "attribute_exists"),
        ("attribute_not_exists(a)", "attribute_not_exists"),
        ("attribute_type(a, :t)", "attribute_type"),
        ("contains(a.d, b)", "contains"),
        ("not a > b", "NOT"),
        ("a <> b", "<>"),
    ],
)
def test_operators_that_no_index_can_answer_are_refused(text, operator):
    assert (
        refusal(text, {":t": {"S": "S"}})
        == f"Invalid operator used in KeyConditionExpression: {operator}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ":p between size(b) and size(a) and b > :b",
            "Invalid condition in KeyConditionExpression: BETWEEN operator must have the key attribute as its first operand",
        ),
        (
            "begins_with(:p, b) and a > :b",
            "Invalid condition in KeyConditionExpression: begins_with operator must have the key attribute as its first operand",
        ),
        (
            "size(b) > a AND a.b > b AND b > c",
            "KeyConditionExpressions cannot contain nested operations",
        ),
        ("a > size(b.d)", "KeyConditionExpressions cannot contain nested operations"),
        (
            "b > a.b",
            "Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition",
        ),
        (
            "a between b and size(a)",
            "Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition",
        ),
        (
            "begins_with(a, b)",
            "Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition",
        ),
        (
            "b.d > :p AND c.d > e.f",
            "KeyConditionExpressions cannot have conditions on nested attributes",
        ),
        (
            "pk = :p AND sk.foo = :b",
            "KeyConditionExpressions cannot have conditions on nested attributes",
        ),
        ("b[0] > :p", "KeyConditionExpressions cannot have conditions on nested attributes"),
        (
            ":b > :p AND a < :b",
            "Invalid condition in KeyConditionExpression: No key attribute specified",
        ),
        (
            "b > :p AND b < :p and c = :p",
            "KeyConditionExpressions must only contain one condition per key",
        ),
        ("pk = :p AND pk = :b", "KeyConditionExpressions must only contain one condition per key"),
        ("pk = :p AND sk = :b AND elsewhere = :d", "Conditions can be of length 1 or 2 only"),
        ("sk = :b", "Query condition missed key schema element: pk"),
        ("elsewhere = :b", "Query condition missed key schema element: pk"),
        ("pk = :p AND elsewhere = :b", "Query condition missed key schema element: sk"),
        ("pk > :p", "Query key condition not supported"),
        ("begins_with(pk, :p)", "Query key condition not supported"),
        ("pk BETWEEN :b AND :d AND sk = :b", "Query key condition not supported"),
        (
            "pk = :n",
            "One or more parameter values were invalid: Condition parameter type does not match schema type",
        ),
        (
            "pk = :p AND sk < :n",
            "One or more parameter values were invalid: Condition parameter type does not match schema type",
        ),
        (
            "pk = :empty",
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: pk",
        ),
        (
            "pk = :p AND sk = :empty",
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: sk",
        ),
        ("", "Invalid KeyConditionExpression: The expression can not be empty;"),
        ("pk = ", 'Invalid KeyConditionExpression: Syntax error; token: "<EOF>", near: "="'),
        (
            "status = :p",
            "Invalid KeyConditionExpression: Attribute name is a reserved keyword; reserved keyword: status",
        ),
        (
            "pk = :undefined",
            "Invalid KeyConditionExpression: An expression attribute value used in expression is not defined; attribute value: :undefined",
        ),
        (
            "pk = :p AND begins_with(sk, :n)",
            "Invalid KeyConditionExpression: Incorrect operand type for operator or function; operator or function: begins_with, operand type: N",
        ),
        (
            "pk = :p AND sk BETWEEN :d AND :b",
            "Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {S:d}, upper bound operand: AttributeValue: {S:b}",
        ),
    ],
)
def test_a_faulty_key_condition_is_refused_in_the_words_of_the_service(text, expected):
    assert refusal(text) == expected


def test_a_table_without_a_sort_key_takes_no_second_condition():
    assert refusal("pk = :p AND sk = :b", range_name=None) == "Query key condition not supported"


@given(
    st.lists(st.text(alphabet="ab\u00ff\U00010000", min_size=1, max_size=3), unique=True),
    st.sampled_from(
        ["sk = :x", "sk < :x", "sk <= :x", "sk > :x", "sk >= :x", "begins_with(sk, :x)"]
    ),
    st.text(alphabet="ab\u00ff\U00010000", min_size=1, max_size=3),
)
def test_bisecting_by_the_bounds_finds_what_the_predicate_finds(keys, comparison, operand):
    values = {":p": {"S": "p"}, ":x": {"S": operand}}
    condition = parse(f"pk = :p AND {comparison}", values)
    tokens = sorted(sort_token({"S": key}) for key in keys)
    first, last = 0, len(tokens)
    if condition.lower is not None:
        first = (bisect_left if condition.lower_inclusive else bisect_right)(
            tokens, condition.lower
        )
    if condition.upper is not None:
        last = (bisect_right if condition.upper_inclusive else bisect_left)(tokens, condition.upper)
    matched = [key for key in keys if holds(condition, {"S": key})]
    assert tokens[first : max(first, last)] == sorted(key.encode() for key in matched)
    if comparison.startswith("begins"):
        assert set(matched) == {key for key in keys if key.startswith(operand)}

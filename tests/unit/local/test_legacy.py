"""The older parameters: Expected, AttributeUpdates, KeyConditions, filters, AttributesToGet."""

import pytest

from streamkit.local.errors import ApiError
from streamkit.local.legacy import (
    attribute_updates,
    attributes_to_get,
    expected_condition,
    filter_condition,
    key_conditions,
    reject_mixture,
)
from streamkit.local.values import sort_token

PREFIX = "One or more parameter values were invalid: "
OPERATORS = (
    "[IN, NULL, BETWEEN, LT, NOT_CONTAINS, EQ, GT, NOT_NULL, NE, LE, BEGINS_WITH, GE, CONTAINS]"
)
ITEM = {
    "pk": {"S": "p"},
    "title": {"S": "hello world"},
    "age": {"N": "30"},
    "flag": {"BOOL": True},
    "tags": {"SS": ["a", "b"]},
}


def compared(operator, *values):
    return {"ComparisonOperator": operator, "AttributeValueList": list(values)}


def refusal(call, *args, **options):
    with pytest.raises(ApiError) as caught:
        call(*args, **options)
    return caught.value.message


def n(number):
    return {"N": str(number)}


def s(text):
    return {"S": text}


@pytest.mark.parametrize(
    ("name", "entry", "holds"),
    [
        ("age", compared("EQ", n("30.0")), True),
        ("age", compared("EQ", s("30")), False),
        ("age", compared("NE", n(31)), True),
        ("gone", compared("NE", n(31)), True),
        ("age", compared("LT", n(31)), True),
        ("age", compared("LE", n(30)), True),
        ("age", compared("GT", n(30)), False),
        ("age", compared("GE", n(30)), True),
        ("gone", compared("GE", n(30)), False),
        ("age", compared("BETWEEN", n(29), n(31)), True),
        ("age", compared("IN", n(1), n(30)), True),
        ("title", compared("BEGINS_WITH", s("hello")), True),
        ("title", compared("CONTAINS", s("world")), True),
        ("tags", compared("CONTAINS", s("a")), True),
        ("tags", compared("NOT_CONTAINS", s("z")), True),
        ("tags", compared("NOT_CONTAINS", s("a")), False),
        ("gone", compared("NOT_CONTAINS", s("a")), False),
        ("gone", compared("NULL"), True),
        ("age", compared("NULL"), False),
        ("age", {"ComparisonOperator": "NOT_NULL"}, True),
        ("flag", compared("EQ", {"BOOL": True}), True),
        ("tags", compared("EQ", {"SS": ["b", "a"]}), True),
    ],
)
def test_a_comparison_means_the_same_as_filter_and_as_expectation(name, entry, holds):
    assert filter_condition({name: entry}).matches(ITEM) is holds
    assert expected_condition({name: entry}).matches(ITEM) is holds


@pytest.mark.parametrize(
    ("entry", "holds"),
    [
        ({"Value": n("30")}, True),
        ({"Value": n("31")}, False),
        ({"Exists": True, "Value": n("30")}, True),
        ({"Exists": False}, False),
        ({"ComparisonOperator": "EQ", "Value": n("30")}, True),
    ],
)
def test_an_expectation_may_give_a_value_or_absence(entry, holds):
    assert expected_condition({"age": entry}).matches(ITEM) is holds
    assert expected_condition({"gone": {"Exists": False}}).matches(ITEM)
    assert expected_condition({"pk": {"Exists": False}}).matches(None)


def test_several_comparisons_are_joined_by_and_or_by_or():
    both = {"age": compared("EQ", n(30)), "title": compared("EQ", s("no"))}
    assert not expected_condition(both).matches(ITEM)
    assert not expected_condition(both, "AND").matches(ITEM)
    assert expected_condition(both, "OR").matches(ITEM)
    assert filter_condition(both, "OR").paths == (("age",), ("title",))


def test_nothing_asked_is_no_condition():
    assert expected_condition(None) is None
    assert expected_condition({}) is None
    assert filter_condition({}) is None


@pytest.mark.parametrize(
    ("operator", "entries", "expected"),
    [
        ("AND", {}, "ConditionalOperator cannot be used without Filter or Expected"),
        (
            "OR",
            {"a": compared("NULL")},
            "ConditionalOperator can only be used when Filter or Expected has two or more elements",
        ),
        (
            "XOR",
            {},
            "1 validation error detected: Value 'XOR' at 'conditionalOperator' failed to satisfy constraint: Member must satisfy enum value set: [OR, AND]",
        ),
    ],
)
def test_the_operator_needs_two_comparisons(operator, entries, expected):
    assert refusal(filter_condition, entries, operator) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, PREFIX + "Value must be provided when Exists is null for Attribute: a"),
        ({"Exists": True}, PREFIX + "Value must be provided when Exists is true for Attribute: a"),
        (
            {"Exists": False, "Value": s("x")},
            PREFIX + "Value cannot be used when Exists is false for Attribute: a",
        ),
        (
            {"AttributeValueList": [s("x")]},
            PREFIX
            + "AttributeValueList can only be used with a ComparisonOperator for Attribute: a",
        ),
        (
            {"Exists": True, "ComparisonOperator": "EQ"},
            PREFIX + "Exists and ComparisonOperator cannot be used together for Attribute: a",
        ),
        (
            {"Value": s("x"), **compared("EQ", s("x"))},
            PREFIX + "Value and AttributeValueList cannot be used together for Attribute: a",
        ),
        (
            {"ComparisonOperator": "LIKE"},
            f"1 validation error detected: Value 'LIKE' at 'expected.a.member.comparisonOperator' failed to satisfy constraint: Member must satisfy enum value set: {OPERATORS}",
        ),
        ("x", "Unexpected value type in payload"),
    ],
)
def test_a_faulty_expectation_is_refused(entry, expected):
    assert refusal(expected_condition, {"a": entry}) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {},
            "1 validation error detected: Value null at 'scanFilter.a.member.comparisonOperator' failed to satisfy constraint: Member must not be null",
        ),
        (compared("EQ"), PREFIX + "Invalid number of argument(s) for the EQ ComparisonOperator"),
        (
            compared("NULL", s("x")),
            PREFIX + "Invalid number of argument(s) for the NULL ComparisonOperator",
        ),
        (
            compared("BETWEEN", s("x")),
            PREFIX + "Invalid number of argument(s) for the BETWEEN ComparisonOperator",
        ),
        (
            compared("LT", {"BOOL": True}),
            PREFIX + "ComparisonOperator LT is not valid for BOOL AttributeValue type",
        ),
        (
            compared("IN", {"SS": ["a"]}),
            PREFIX + "ComparisonOperator IN is not valid for SS AttributeValue type",
        ),
        (
            compared("BEGINS_WITH", n(1)),
            PREFIX + "ComparisonOperator BEGINS_WITH is not valid for N AttributeValue type",
        ),
        (
            compared("CONTAINS", {"M": {}}),
            PREFIX + "ComparisonOperator CONTAINS is not valid for M AttributeValue type",
        ),
        (
            compared("IN", s("b"), n(1)),
            PREFIX + "AttributeValues inside AttributeValueList must be of same type",
        ),
        (
            compared("BETWEEN", s("b"), s("a")),
            "The BETWEEN condition was provided a range where the lower bound is greater than the upper bound",
        ),
        (compared("EQ", n("b")), "The parameter cannot be converted to a numeric value: b"),
        ({"ComparisonOperator": "EQ", "AttributeValueList": "x"}, "Unexpected field type"),
    ],
)
def test_a_faulty_filter_is_refused(entry, expected):
    assert refusal(filter_condition, {"a": entry}) == expected


def test_a_query_filter_leaves_the_keys_alone():
    filters = {"pk": compared("EQ", s("x"))}
    assert refusal(filter_condition, filters, kind="QueryFilter", keys=("pk",)) == (
        "QueryFilter can only contain non-primary key attributes: Primary key attribute: pk"
    )


def test_key_conditions_select_a_range():
    conditions = {"pk": compared("EQ", s("p")), "sk": compared("BETWEEN", s("b"), s("d"))}
    condition = key_conditions(conditions, ["pk"], ["sk"], types={"pk": "S", "sk": "S"})
    assert condition.hash_values == (s("p"),)
    assert [key for key in "abcde" if condition.holds((sort_token(s(key)),))] == ["b", "c", "d"]
    assert key_conditions({"pk": compared("EQ", s("p"))}, ["pk"], ["sk"]).ranged is False


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, "Conditions can be of length 1 or 2 only"),
        ({"sk": compared("EQ", s("x"))}, "Query condition missed key schema element: pk"),
        (
            {"pk": compared("NULL")},
            "Attempted conditional constraint is not an indexable operation",
        ),
        (
            {"pk": compared("IN", s("x"))},
            "Attempted conditional constraint is not an indexable operation",
        ),
        (
            {"pk": compared("EQ", s("x")), "sk": compared("NE", s("x"))},
            "Attempted conditional constraint is not an indexable operation",
        ),
        ({"pk": compared("LT", s("x"))}, "Query key condition not supported"),
        (
            {"pk": compared("EQ", n(1))},
            PREFIX + "Condition parameter type does not match schema type",
        ),
        (
            {"pk": compared("EQ")},
            PREFIX + "Invalid number of argument(s) for the EQ ComparisonOperator",
        ),
    ],
)
def test_faulty_key_conditions_are_refused(conditions, expected):
    assert (
        refusal(key_conditions, conditions, ["pk"], ["sk"], types={"pk": "S", "sk": "S"})
        == expected
    )


@pytest.mark.parametrize(
    ("entry", "old", "new"),
    [
        ({"Action": "PUT", "Value": s("x")}, None, s("x")),
        ({"Value": s("x")}, n(1), s("x")),
        ({"Action": "ADD", "Value": n(5)}, n(10), n(15)),
        ({"Action": "ADD", "Value": n(5)}, None, n(5)),
        ({"Action": "ADD", "Value": {"SS": ["b"]}}, {"SS": ["a"]}, {"SS": ["a", "b"]}),
        ({"Action": "ADD", "Value": {"L": [s("b")]}}, {"L": [s("a")]}, {"L": [s("a"), s("b")]}),
        ({"Action": "DELETE"}, s("x"), None),
        ({"Action": "DELETE"}, None, None),
        ({"Action": "DELETE", "Value": {"SS": ["b"]}}, {"SS": ["a", "b"]}, {"SS": ["a"]}),
        ({"Action": "DELETE", "Value": {"SS": ["a"]}}, {"SS": ["a"]}, None),
    ],
)
def test_attribute_updates_change_one_attribute_each(entry, old, new):
    item = {"pk": s("p")} | ({} if old is None else {"x": old})
    update = attribute_updates({"x": entry})
    assert update.paths == (("x",),)
    assert update.apply(item, key_attributes=frozenset({"pk"})).item.get("x") == new


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        ("x", {}, PREFIX + "Only DELETE action is allowed when no attribute value is specified"),
        (
            "x",
            {"Action": "ADD", "Value": s("x")},
            PREFIX + "ADD action is not supported for the type S",
        ),
        (
            "x",
            {"Action": "DELETE", "Value": n(1)},
            PREFIX + "DELETE action with value is not supported for the type N",
        ),
        (
            "x",
            {"Action": "DROP"},
            "1 validation error detected: Value 'DROP' at 'attributeUpdates.x.member.action' failed to satisfy constraint: Member must satisfy enum value set: [ADD, DELETE, PUT]",
        ),
        ("x", {"Value": n("b")}, "The parameter cannot be converted to a numeric value: b"),
        (
            "pk",
            {"Value": s("x")},
            PREFIX + "Cannot update attribute pk. This attribute is part of the key",
        ),
        ("tags", {"Action": "ADD", "Value": n(1)}, "Type mismatch for attribute to update"),
        (
            "tags",
            {"Action": "DELETE", "Value": {"NS": ["1"]}},
            "Type mismatch for attribute to update",
        ),
    ],
)
def test_faulty_attribute_updates_are_refused(name, entry, expected):
    def apply():
        attribute_updates({name: entry}).apply(ITEM, key_attributes=frozenset({"pk"}))

    assert refusal(apply) == expected


def test_attributes_to_get_is_a_projection_of_whole_attributes():
    assert attributes_to_get(["pk", "age", "gone"]).apply(ITEM) == {"pk": s("p"), "age": n(30)}
    assert refusal(attributes_to_get, ["a", "a"]) == PREFIX + "Duplicate value in attribute name: a"
    assert refusal(attributes_to_get, []).startswith(
        "1 validation error detected: Value '[]' at 'attributesToGet'"
    )


def test_old_parameters_and_expressions_do_not_mix():
    legacy = ("AttributesToGet", "ScanFilter", "ConditionalOperator")
    expressions = ("ProjectionExpression", "FilterExpression")
    payload = {
        "ScanFilter": {},
        "ConditionalOperator": "OR",
        "FilterExpression": "",
        "ProjectionExpression": None,
    }
    assert refusal(reject_mixture, payload, legacy=legacy, expressions=expressions) == (
        "Can not use both expression and non-expression parameters in the same request: "
        "Non-expression parameters: {ScanFilter, ConditionalOperator} "
        "Expression parameters: {FilterExpression}"
    )
    reject_mixture({"ScanFilter": {}}, legacy=legacy, expressions=expressions)
    reject_mixture({"FilterExpression": "a"}, legacy=legacy, expressions=expressions)

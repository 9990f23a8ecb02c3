"""Condition and filter expressions, and the placeholders of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.local.errors import ApiError
from streamkit.local.expressions import Placeholders, parse_condition

ITEM = {
    "pk": {"S": "p"},
    "title": {"S": "hello world"},
    "age": {"N": "30"},
    "flag": {"BOOL": True},
    "nothing": {"NULL": True},
    "floor": {"S": "30 up"},
    "octets": {"B": "AAECAw=="},
    "tags": {"SS": ["admin", "user"]},
    "scores": {"NS": ["1", "2.5"]},
    "blobs": {"BS": ["YQ=="]},
    "doc": {"M": {"a": {"M": {"b": {"S": "deep"}}}, "n": {"N": "7"}}},
    "entries": {"L": [{"S": "first"}, {"M": {"x": {"N": "1"}}}, {"SS": ["p", "q"]}]},
}
VALUES = {
    ":hello": {"S": "hello"},
    ":world": {"S": "world"},
    ":admin": {"S": "admin"},
    ":30": {"N": "30"},
    ":030": {"N": "30.0"},
    ":29": {"N": "29"},
    ":31": {"N": "31"},
    ":s30": {"S": "30"},
    ":true": {"BOOL": True},
    ":b": {"B": "AAE="},
    ":mid": {"B": "AQI="},
    ":a": {"B": "YQ=="},
    ":2.5": {"N": "2.50"},
    ":tags": {"SS": ["user", "admin"]},
    ":row": {"SS": ["q", "p"]},
    ":first": {"S": "first"},
    ":deep": {"S": "deep"},
    ":S": {"S": "S"},
    ":SS": {"S": "SS"},
    ":B": {"S": "B"},
    ":NULL": {"S": "NULL"},
    ":3": {"N": "3"},
    ":4": {"N": "4"},
    ":2": {"N": "2"},
    ":11": {"N": "11"},
}


def placeholders(names=None, values=None, **expressions):
    expressions = expressions or {"ConditionExpression": "given"}
    return Placeholders(names, values, expressions=expressions)


def matches(text, item=ITEM, names=None):
    values = {key.replace(".", "_"): value for key, value in VALUES.items()}
    return parse_condition(text, placeholders(names, values)).matches(item)


def refusal(text, names=None, values=None, kind="FilterExpression"):
    with pytest.raises(ApiError) as caught:
        parse_condition(text, placeholders(names, values), kind)
    prefix = f"Invalid {kind}: "
    assert caught.value.code == "ValidationException"
    assert caught.value.message.startswith(prefix)
    return caught.value.message.removeprefix(prefix)


@pytest.mark.parametrize(
    "text",
    [
        "age = :30",
        "age = :030",
        "age <> :s30",
        "age > :29 and age < :31",
        "age >= :30 AND age <= :30",
        ":29 < age",
        "age BETWEEN :29 AND :31",
        "age between :30 and :30",
        "age IN (:29, :30)",
        "tags IN (:row, :tags)",
        "(age) in ((:30))",
        "title <> :hello",
        "gone <> :hello",
        "gone <> lost",
        "tags = :tags",
        "entries[2] = :row",
        "doc.a.b = :deep",
        "(doc.a).b = :deep",
        "entries[0] = :first",
        "attribute_exists(doc.a)",
        "attribute_exists(entries[1].x)",
        "attribute_exists(nothing)",
        "attribute_not_exists(entries[3])",
        "attribute_not_exists(title.a)",
        "attribute_not_exists(doc[0])",
        "attribute_type(title, :S)",
        "attribute_type(tags, :SS)",
        "attribute_type(nothing, :NULL)",
        "begins_with(title, :hello)",
        "begins_with(octets, :b)",
        "contains(title, :world)",
        "contains(tags, :admin)",
        "contains(scores, :2_5)",
        "contains(blobs, :a)",
        "contains(octets, :mid)",
        "contains(entries, :first)",
        "contains(entries, :row)",
        "size(title) = :11",
        "size(entries) = :3",
        "size(octets) = :4",
        "size(tags) = :2",
        "size(doc) = :2",
        "(size(tags)) < :3",
        "NOT age = :29",
        "NOT contains(tags, :hello)",
        "not not age = :30",
        "not not not age = :29",
        "age = :29 OR age = :30",
        "age = :30 OR age = :29 AND age = :29",
        "NOT age = :29 AND age = :30",
        "NOT (age = :30 AND age = :29)",
        "(age = :30) AND (attribute_exists(pk) OR attribute_exists(gone))",
        "age=:30\n\tAND\r\n flag=:true",
        "a.b.c[1] <> :30",
    ],
)
def test_a_condition_that_holds(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "age = :s30",
        "age < :s30",
        "age > :s30",
        "age <= :s30",
        "age >= :s30",
        "gone = :hello",
        "gone = lost",
        "gone < :30",
        "gone BETWEEN :29 AND :31",
        "gone IN (:29)",
        "flag = :30",
        "title BETWEEN :29 AND :31",
        "age IN (:29, :s30)",
        "begins_with(title, :world)",
        "begins_with(octets, :hello)",
        "begins_with(gone, :hello)",
        "contains(title, :30)",
        "contains(floor, :30)",
        "contains(tags, :30)",
        "contains(scores, :admin)",
        "contains(age, :30)",
        "contains(doc, :first)",
        "contains(gone, :hello)",
        "attribute_type(gone, :S)",
        "attribute_type(age, :S)",
        "attribute_type(tags, :S)",
        "attribute_type(flag, :B)",
        "attribute_not_exists(nothing)",
        "size(age) = :2",
        "size(gone) < :3",
        "size(flag) >= :2",
        "entries[9] = :first",
        "age = gone",
        "age = :29 AND age = :30 OR age = :29",
        "NOT age = :30",
        "(age = :29 OR age = :30) AND age = :29",
    ],
)
def test_a_condition_that_does_not_hold(text):
    assert not matches(text)


def test_an_item_that_does_not_exist_has_no_attributes():
    assert matches("attribute_not_exists(pk)", None)
    assert not matches("attribute_exists(pk)", None)
    assert matches("age <> :30", None)
    assert not matches("age = :30", None)


def test_size_of_a_string_counts_utf16_units():
    condition = parse_condition("size(s) = :n", placeholders(None, {":n": {"N": "3"}}))
    assert condition.matches({"s": {"S": "é\U0001d11e"}})


def test_names_stand_for_any_attribute_name():
    names = {"#d": "doc", "#odd": "a.b", "#status": "status"}
    assert matches(
        "#d.#odd = :deep AND #status <> :30", {"doc": {"M": {"a.b": {"S": "deep"}}}}, names
    )


def test_the_same_text_may_mean_other_names_and_values_in_another_request():
    text = "#a = :v"
    for name, value in (("age", {"N": "30"}), ("title", {"S": "hello world"})):
        assert parse_condition(text, placeholders({"#a": name}, {":v": value})).matches(ITEM)
        assert not parse_condition(text, placeholders({"#a": name}, {":v": {"S": "no"}})).matches(
            ITEM
        )


def test_a_condition_tells_the_paths_it_mentions():
    condition = parse_condition(
        "a.b[1] = :v AND attribute_exists(c)", placeholders(None, {":v": {"S": ""}})
    )
    assert condition.paths == (("a", "b", 1), ("c",))


@pytest.mark.parametrize(
    ("text", "token", "near"),
    [
        ("things are not gonna be ok", "are", "things are not"),
        ("a > 4", "4", "> 4"),
        ("a-b", "-", "a-b"),
        ("attribute_exists(Pictures-RearView)", "-", "Pictures-RearView"),
        ("attribute_exists(Pictures..RearView)", ".", "..RearView"),
        ("attribute_exists(asdf[a])", "a", "[a]"),
        ("attribute_not_exists(", "<EOF>", "("),
        ("()", ")", "()"),
        ("#flag", "<EOF>", "#flag"),
        ("a = :v AND NOT #flag", "<EOF>", "#flag"),
        ("(a)", "<EOF>", ")"),
        ("a in b", "b", "in b"),
        ("a in (b,c,)", ")", ",)"),
        ("a > between", "between", "> between"),
        ("(a)between(b.c.d)and((c)", "<EOF>", ")"),
        ("size(a).b > a", ".", ").b"),
        ("(size(a))[0] > a", "[", ")[0"),
        ("(a = b) = c", "=", ") = c"),
        ("a = (b = c)", "=", "b = c"),
        ("_hidden = :v", "_", "_hidden"),
        ("ü > a", "ü", "ü >"),
        ("b[:a] > a", ":a", "[:a]"),
        ("a > :things.stuff", ".", ":things.stuff"),
        ("a = :v b", "b", ":v b"),
    ],
)
def test_a_syntax_error_names_the_token_and_its_surroundings(text, token, near):
    assert refusal(text) == f'Syntax error; token: "{token}", near: "{near}"'


@pytest.mark.parametrize(
    "text",
    [
        "((a = b))",
        "a=a and a > ((views))",
        "(a)between(((b.c)).d)and(c)",
        "a > whatever((:things), ((a)))",
        "a=a AND ((a=a AND a=a)) AND a=a",
        "a=a OR ((a=a OR (a=a OR a=a)))",
        "attribute_exists(((a)))",
    ],
)
def test_redundant_parentheses_are_refused(text):
    assert refusal(text) == "The expression has redundant parentheses;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=a and whatever((:things)) > a", "Invalid function name; function: whatever"),
        ("attRIbute_exIsts((views), #a)", "Invalid function name; function: attRIbute_exIsts"),
        (
            "if_not_exists(a, b)",
            "The function is not allowed in a condition expression; function: if_not_exists",
        ),
        (
            "a = list_append(a, b)",
            "The function is not allowed in a condition expression; function: list_append",
        ),
    ],
)
def test_a_function_that_is_not_one_of_conditions_is_refused(text, expected):
    assert refusal(text) == expected


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("a=a and attribute_exists((views), (#a)) > b", "attribute_exists"),
        ("attribute_type(things, :a) > b", "attribute_type"),
        ("size(contains(a, b)) > a", "contains"),
        ("size(things)", "size"),
        ("NOT size(things)", "size"),
        ("a between b and attribute_exists(things)", "attribute_exists"),
        ("a in (b, attribute_exists(things))", "attribute_exists"),
        ("begins_with(a, b) BETWEEN c AND d", "begins_with"),
    ],
)
def test_a_function_in_the_wrong_place_is_refused(text, function):
    assert (
        refusal(text)
        == f"The function is not allowed to be used this way in an expression; function: {function}"
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("status = :v", "status"),
        (":a < abOrT", "abOrT"),
        ("a.Name = :v", "Name"),
        ("attribute_exists(views, #a)", "views"),
    ],
)
def test_a_reserved_word_needs_a_name_placeholder(text, word):
    assert refusal(text) == f"Attribute name is a reserved keyword; reserved keyword: {word}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "attribute_exists(#P.RearView, :a) and a=a",
            "An expression attribute name used in the document path is not defined; attribute name: #P",
        ),
        (
            "(a)between(b.c[45].#d)and(:a)",
            "An expression attribute name used in the document path is not defined; attribute name: #d",
        ),
        (
            "begins_with(:hello, #a, #b)",
            "An expression attribute value used in expression is not defined; attribute value: :hello",
        ),
        (
            ":a < :b",
            "An expression attribute value used in expression is not defined; attribute value: :a",
        ),
    ],
)
def test_an_undefined_placeholder_is_named(text, expected):
    assert refusal(text) == expected


@pytest.mark.parametrize(
    ("text", "function", "count"),
    [
        ("attribute_exists(things, a) and a=a", "attribute_exists", 2),
        ("attribute_type(things)", "attribute_type", 1),
        ("begins_with(things, size(a), b)", "begins_with", 3),
        ("contains(things)", "contains", 1),
        ("size(things, a) > b", "size", 2),
    ],
)
def test_a_wrong_number_of_operands_is_refused(text, function, count):
    assert refusal(text) == (
        "Incorrect number of operands for operator or function; "
        f"operator or function: {function}, number of operands: {count}"
    )


@pytest.mark.parametrize(
    ("text", "function", "value"),
    [
        ("attribute_type(a, :a)", "attribute_type", {"N": "1"}),
        ("attribute_type(a, size(a)) and a=:a", "attribute_type", {"N": "1"}),
        ("begins_with(a, :a)", "begins_with", {"N": "5"}),
        ("begins_with(:a, a)", "begins_with", {"SS": ["1"]}),
        ("begins_with(a, size(b)) and a=:a", "begins_with", {"N": "1"}),
        ("size(size(a)) > :a", "size", {"N": "1"}),
        ("attribute_not_exists(size(:a))", "size", {"N": "1"}),
        ("size(:a) > a", "size", {"BOOL": True}),
        ("a < :a", "<", {"BOOL": True}),
        ("a >= :a", ">=", {"L": []}),
        ("a BETWEEN :a AND b", "BETWEEN", {"M": {}}),
    ],
)
def test_an_operand_of_the_wrong_type_is_refused_before_any_item_is_read(text, function, value):
    assert refusal(text, values={":a": value}) == (
        "Incorrect operand type for operator or function; "
        f"operator or function: {function}, operand type: {next(iter(value))}"
    )


def test_attribute_type_wants_the_name_of_a_type():
    assert refusal("attribute_type(a, :a)", values={":a": {"S": "X"}}) == (
        "Invalid attribute type name found; type: X, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}"
    )
    assert refusal("attribute_type(a, b)").endswith("operand type: {NS,SS,L,BS,N,M,B,BOOL,NULL,S}")


@pytest.mark.parametrize("text", ["attribute_exists(:a) and a=a", "attribute_not_exists(size(:a))"])
def test_existence_is_asked_of_a_path(text):
    function = text.partition("(")[0]
    assert refusal(text, values={":a": {"S": "1"}}) == (
        f"Operator or function requires a document path; operator or function: {function}"
    )


@pytest.mark.parametrize(
    ("text", "operator", "operand"),
    [
        ("a = a AND #a = b", "=", "[a]"),
        ("#a <> a", "<>", "[a]"),
        ("a > #a", ">", "[a]"),
        ("((a=a) OR (a=a))", "=", "[a]"),
        ("contains(ab.bc[1].a, ab.bc[1].#a)", "contains", "[ab, bc, [1], a]"),
        ("begins_with(a, #a)", "begins_with", "[a]"),
    ],
)
def test_operands_must_be_distinct(text, operator, operand):
    assert refusal(text, {"#a": "a"}) == (
        "The first operand must be distinct from the remaining operands for this operator or "
        f"function; operator: {operator}, first operand: {operand}"
    )


def test_the_bounds_of_between_are_of_one_type_and_in_order():
    assert refusal("a BETWEEN :l AND :u", values={":l": {"N": "1"}, ":u": {"S": "a"}}) == (
        "The BETWEEN operator requires same data type for lower and upper bounds; lower bound "
        "operand: AttributeValue: {N:1}, upper bound operand: AttributeValue: {S:a}"
    )
    assert refusal("a BETWEEN :l AND :u", values={":l": {"S": "b"}, ":u": {"S": "a"}}) == (
        "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; "
        "lower bound operand: AttributeValue: {S:b}, upper bound operand: AttributeValue: {S:a}"
    )


def test_limits_of_size_operands_depth_and_index():
    assert refusal("") == "The expression can not be empty;"
    exact = "attribute_exists(" + "a" * 4078 + ")"
    assert len(exact) == 4096
    parse_condition(exact, placeholders())
    assert refusal(exact + " ").startswith("Expression size has exceeded the maximum allowed size;")
    values = {":v": {"N": "1"}}
    parse_condition("a IN (" + ",".join([":v"] * 100) + ")", placeholders(None, values))
    assert refusal("a IN (" + ",".join([":v"] * 101) + ")", values=values) == (
        "The IN operator is provided with too many operands; number of operands: 101"
    )
    nested_path = ".".join(["a"] * 33)
    assert "nesting levels" in refusal(f"{nested_path} = :v", values=values)
    assert refusal("a[2147483648] = :v", values=values) == (
        "List index is not within the allowable range; index: [2147483648]"
    )


def test_deep_but_permitted_nesting_parses_and_matches():
    text = "a=:v AND (" * 100 + "a=:v" + ")" * 100
    assert parse_condition(text, placeholders(None, {":v": {"N": "1"}})).matches({"a": {"N": "1"}})


def test_unused_placeholders_are_refused_over_all_expressions_together():
    both = placeholders({"#a": "a", "#b": "b"}, {":a": {"S": "1"}, ":b": {"S": "2"}})
    parse_condition("#a = :a", both)
    with pytest.raises(ApiError) as caught:
        both.finish()
    assert (
        caught.value.message
        == "Value provided in ExpressionAttributeNames unused in expressions: keys: {#b}"
    )
    parse_condition("attribute_exists(#b)", both)
    with pytest.raises(ApiError) as caught:
        both.finish()
    assert (
        caught.value.message
        == "Value provided in ExpressionAttributeValues unused in expressions: keys: {:b}"
    )
    parse_condition("#b = :b", both)
    both.finish()


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ({}, None, "ExpressionAttributeNames must not be empty"),
        (None, {}, "ExpressionAttributeValues must not be empty"),
        ({"a": "a"}, None, 'ExpressionAttributeNames contains invalid key: Syntax error; key: "a"'),
        (
            {"#a-b": "a"},
            None,
            'ExpressionAttributeNames contains invalid key: Syntax error; key: "#a-b"',
        ),
        (
            {"#a": ""},
            None,
            "ExpressionAttributeNames contains invalid value: Empty attribute name for key #a",
        ),
        (
            None,
            {":b": {"a": ""}, "b": {"S": "a"}},
            'ExpressionAttributeValues contains invalid key: Syntax error; key: "b"',
        ),
        (
            None,
            {":b": {"N": "b"}},
            "ExpressionAttributeValues contains invalid value: The parameter cannot be converted to a numeric value: b for key :b",
        ),
        (
            None,
            {":b": {"SS": []}},
            "ExpressionAttributeValues contains invalid value: One or more parameter values were invalid: An string set  may not be empty for key :b",
        ),
        ({"#a": 1}, None, "Unexpected token received from parser"),
        ([], None, "Unexpected field type"),
        (None, [], "Unexpected field type"),
        (None, {":b": {"S": 1}}, "NUMBER_VALUE cannot be converted to String"),
    ],
)
def test_malformed_placeholders_are_refused(names, values, expected):
    with pytest.raises(ApiError) as caught:
        placeholders(names, values)
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ({"ConditionExpression": None}, "ConditionExpression is null"),
        (
            {"UpdateExpression": None, "ConditionExpression": None},
            "UpdateExpression and ConditionExpression are null",
        ),
        ({"ProjectionExpression": "a", "FilterExpression": None}, "FilterExpression is null"),
    ],
)
def test_placeholders_need_an_expression(expressions, expected):
    with pytest.raises(ApiError) as caught:
        placeholders(None, {":v": {"S": ""}}, **expressions)
    assert (
        caught.value.message
        == f"ExpressionAttributeValues can only be specified when using expressions: {expected}"
    )
    if "a" not in expressions.values():
        with pytest.raises(
            ApiError, match="ExpressionAttributeNames can only be specified when using expressions"
        ):
            placeholders({"#a": "a"}, **expressions)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-50, 50))
def test_comparisons_agree_with_numbers(a, b, c):
    values = {":a": {"N": str(a)}, ":b": {"N": str(b)}}
    item = {"c": {"N": str(c)}}

    def holds(text):
        return parse_condition(text, placeholders(None, values)).matches(item)

    assert holds("c < :a") is (c < a)
    assert holds("c <= :a AND NOT c = :b") is (c <= a and c != b)
    assert holds("c > :a OR :b >= c") is (c > a or b >= c)
    if a <= b:
        assert holds("c BETWEEN :a AND :b") is (a <= c <= b)
    assert holds("c IN (:a, :b)") is (c in (a, b))


@given(st.text(alphabet='ab().,[]#:<>=+- ANDOR12_"', max_size=30))
def test_any_text_is_parsed_or_refused_with_a_validation_error(text):
    codes = set()
    try:
        parse_condition(text, placeholders({"#a": "a"}, {":a": {"S": "a"}}))
    except ApiError as error:
        codes.add(error.code)
    assert codes <= {"ValidationException"}

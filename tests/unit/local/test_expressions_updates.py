"""Update expressions: SET, REMOVE, ADD, DELETE."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.local.errors import ApiError
from streamkit.local.expressions import Placeholders, parse_update, pick_paths
from streamkit.local.values import canonical_item

KEYS = frozenset({"pk", "sk"})
INVALID_PATH = "The document path provided in the update expression is invalid for update"
WRONG_TYPE = "An operand in the update expression has an incorrect data type"


def placeholders(names=None, values=None):
    expressions = {"UpdateExpression": "given", "ConditionExpression": None}
    return Placeholders(names, values, expressions=expressions)


def update(text, item, values=None, names=None):
    before = repr(item)
    request = placeholders(names, values)
    result = parse_update(text, request).apply(item, key_attributes=KEYS)
    request.finish()
    assert repr(item) == before, "the old item must stay as it is"
    return result.item


def refusal(text, values=None, names=None, item=None):
    with pytest.raises(ApiError) as caught:
        parse_update(text, placeholders(names, values)).apply(
            {"pk": {"S": "p"}} if item is None else item, key_attributes=KEYS
        )
    assert caught.value.code == "ValidationException"
    return caught.value.message


def n(number):
    return {"N": str(number)}


def s(text):
    return {"S": text}


def listed(*texts):
    return {"L": [s(text) for text in texts]}


@pytest.mark.parametrize(
    ("text", "item", "values", "expected"),
    [
        ("SET a = :v", {}, {":v": s("x")}, {"a": s("x")}),
        ("set a = :v", {"a": n(1)}, {":v": s("x")}, {"a": s("x")}),
        ("SET a = a + :v", {"a": n(10)}, {":v": n(5)}, {"a": n(15)}),
        ("SET a = :v - a", {"a": n("0.1")}, {":v": n(1)}, {"a": n("0.9")}),
        ("SET c = (c - :v)", {"c": n(10)}, {":v": n(3)}, {"c": n(7)}),
        ("SET c = ((c)-(:v))", {"c": n(10)}, {":v": n(3)}, {"c": n(7)}),
        ("SET a = b", {"b": s("x")}, None, {"a": s("x"), "b": s("x")}),
        ("SET a = :v, b = a", {"a": s("old")}, {":v": s("new")}, {"a": s("new"), "b": s("old")}),
        ("SET a = b, b = a", {"a": n(1), "b": n(2)}, None, {"a": n(2), "b": n(1)}),
        ("SET a = if_not_exists(a, :v)", {"a": s("kept")}, {":v": s("x")}, {"a": s("kept")}),
        ("SET a = if_not_exists(a, :v)", {}, {":v": s("x")}, {"a": s("x")}),
        (
            "SET a = if_not_exists(a, :v)",
            {"a": {"NULL": True}},
            {":v": s("x")},
            {"a": {"NULL": True}},
        ),
        ("SET a = if_not_exists(a, :z) - :i", {}, {":z": n(0), ":i": n(3)}, {"a": n(-3)}),
        (
            "SET a = if_not_exists(a, if_not_exists(b, :z))",
            {"b": n(4)},
            {":z": n(0)},
            {"a": n(4), "b": n(4)},
        ),
        (
            "SET a = list_append(a, :v)",
            {"a": listed("a")},
            {":v": listed("b")},
            {"a": listed("a", "b")},
        ),
        (
            "SET a = list_append(:v, a)",
            {"a": listed("a")},
            {":v": listed("b")},
            {"a": listed("b", "a")},
        ),
        (
            "SET a = list_append(if_not_exists(a, :e), :v)",
            {},
            {":e": {"L": []}, ":v": listed("x")},
            {"a": listed("x")},
        ),
        (
            "SET m.a = :v",
            {"m": {"M": {"k": s("kept")}}},
            {":v": s("x")},
            {"m": {"M": {"k": s("kept"), "a": s("x")}}},
        ),
        (
            "SET m.a.b = m.a.b + :v",
            {"m": {"M": {"a": {"M": {"b": n(1)}}}}},
            {":v": n(1)},
            {"m": {"M": {"a": {"M": {"b": n(2)}}}}},
        ),
        ("SET l[1] = :v", {"l": listed("a", "b")}, {":v": s("x")}, {"l": listed("a", "x")}),
        ("SET l[7] = :v", {"l": listed("a")}, {":v": s("x")}, {"l": listed("a", "x")}),
        (
            "SET l[9] = :x, l[7] = :y",
            {"l": listed("a")},
            {":x": s("x"), ":y": s("y")},
            {"l": listed("a", "y", "x")},
        ),
        (
            "SET l[0].a = :v",
            {"l": {"L": [{"M": {}}]}},
            {":v": s("x")},
            {"l": {"L": [{"M": {"a": s("x")}}]}},
        ),
        ("REMOVE a", {"a": s("x"), "b": s("y")}, None, {"b": s("y")}),
        ("REMOVE a, b", {"a": s("x"), "b": s("y")}, None, {}),
        ("REMOVE ghost", {"a": s("x")}, None, {"a": s("x")}),
        ("REMOVE m.ghost", {"m": {"M": {"a": s("x")}}}, None, {"m": {"M": {"a": s("x")}}}),
        ("REMOVE m.a", {"m": {"M": {"a": s("x")}}}, None, {"m": {"M": {}}}),
        ("REMOVE l[1]", {"l": listed("a", "b", "c")}, None, {"l": listed("a", "c")}),
        ("REMOVE l[0], l[2]", {"l": listed("a", "b", "c", "d")}, None, {"l": listed("b", "d")}),
        ("REMOVE l[2], l[0]", {"l": listed("a", "b", "c", "d")}, None, {"l": listed("b", "d")}),
        ("REMOVE l[9]", {"l": listed("a")}, None, {"l": listed("a")}),
        (
            "SET l[1] = :v REMOVE l[0]",
            {"l": listed("a", "b", "c")},
            {":v": s("x")},
            {"l": listed("x", "c")},
        ),
        (
            "REMOVE l[3] SET l[9] = :v",
            {"l": listed("a", "b", "c")},
            {":v": s("x")},
            {"l": listed("a", "b", "c", "x")},
        ),
        ("ADD a :v", {"a": n(10)}, {":v": n(3)}, {"a": n(13)}),
        ("ADD a :v", {}, {":v": n(3)}, {"a": n(3)}),
        ("ADD m.a :v", {"m": {"M": {}}}, {":v": n(3)}, {"m": {"M": {"a": n(3)}}}),
        (
            "ADD a :v",
            {"a": {"SS": ["a", "b"]}},
            {":v": {"SS": ["b", "c"]}},
            {"a": {"SS": ["a", "b", "c"]}},
        ),
        ("ADD a :v", {}, {":v": {"NS": ["1"]}}, {"a": {"NS": ["1"]}}),
        (
            "DELETE a :v",
            {"a": {"SS": ["a", "b", "c"]}},
            {":v": {"SS": ["b"]}},
            {"a": {"SS": ["a", "c"]}},
        ),
        ("DELETE a :v", {"a": {"SS": ["a", "b"]}}, {":v": {"SS": ["b", "a"]}}, {}),
        ("DELETE a :v", {}, {":v": {"SS": ["b"]}}, {}),
        (
            "DELETE m.a :v",
            {"m": {"M": {"a": {"NS": ["1"]}}}},
            {":v": {"NS": ["1"]}},
            {"m": {"M": {}}},
        ),
        (
            "ADD a :v REMOVE b SET c = :v DELETE d :s",
            {"a": n(1), "b": s("x"), "d": {"SS": ["a", "b"]}},
            {":v": n(2), ":s": {"SS": ["a"]}},
            {"a": n(3), "c": n(2), "d": {"SS": ["b"]}},
        ),
    ],
)
def test_an_update_gives_a_new_item(text, item, values, expected):
    assert update(text, item, values) == expected


def test_an_update_shares_what_it_leaves_alone():
    item = {"pk": s("p"), "kept": {"M": {"a": n(1)}}, "m": {"M": {"x": listed("a"), "y": n(1)}}}
    new = update("SET m.y = :v", item, {":v": n(2)})
    assert new["kept"] is item["kept"]
    assert new["m"]["M"]["x"] is item["m"]["M"]["x"]


def test_names_and_values_of_one_text_change_from_request_to_request():
    text = "SET #a = :v"
    assert update(text, {}, {":v": n(1)}, {"#a": "x"}) == {"x": n(1)}
    assert update(text, {}, {":v": n(2)}, {"#a": "status"}) == {"status": n(2)}


def test_the_paths_of_an_update_are_those_it_names():
    request = placeholders(None, {":v": n(1)})
    parsed = parse_update("SET m.b = :v, m.c = :v REMOVE d ADD e :v", request)
    item = {"m": {"M": {"x": n(0)}}, "d": n(9)}
    result = parsed.apply(item, key_attributes=KEYS)
    assert result.paths == parsed.paths == (("m", "b"), ("m", "c"), ("d",), ("e",))
    assert pick_paths(result.item, result.paths) == {"m": {"M": {"b": n(1), "c": n(1)}}, "e": n(1)}
    assert pick_paths(item, result.paths) == {"d": n(9)}


@pytest.mark.parametrize(
    ("text", "token", "near"),
    [
        ("whatever", "whatever", "whatever"),
        ("INVALID SYNTAX HERE", "INVALID", "INVALID SYNTAX"),
        ("set a", "<EOF>", "a"),
        ("set a = b,", "<EOF>", ","),
        ("set a=set", "set", "=set"),
        ("remove a = b", "=", "a = b"),
        ("add a b", "b", "a b"),
        ("add a = b", "=", "a = b"),
        ("ADD hits : incr", ":", "hits : incr"),
        ("delete a if_not_exist(b)", "if_not_exist", "a if_not_exist("),
        ("set :a = b", ":a", "set :a ="),
        ("remove :a", ":a", "remove :a"),
        ("set a = b / c", "/", "b / c"),
        ("set a[1] = 1", "1", "= 1"),
        ('set a[1] = "eight"', '"', '= "eight'),
        ("SET _123 = :v", "_", "SET _123"),
        ("SET if_not_exists(a, b) = a", "(", "if_not_exists(a"),
        ("set (a = (b + c))", "(", "set (a"),
        ("set a = (b.c).d + e", ".", ").d"),
        ("set a = b + c + d", "+", "c + d"),
        ("set a = (b + c) + d", "+", ") + d"),
        ("set a = if_not_exists(a, b + c)", "+", "b + c"),
    ],
)
def test_a_syntax_error_names_the_token_and_its_surroundings(text, token, near):
    assert (
        refusal(text) == f'Invalid UpdateExpression: Syntax error; token: "{token}", near: "{near}"'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "The expression can not be empty;"),
        (
            " set #c = :c set abOrt = true ",
            "Attribute name is a reserved keyword; reserved keyword: abOrt",
        ),
        ("remove Absolute", "Attribute name is a reserved keyword; reserved keyword: Absolute"),
        ("set #c = if_not_exist(:c) set c = d", "Invalid function name; function: if_not_exist"),
        ("set a = size(b)", "The function is not allowed in an update expression; function: size"),
        (
            "set a = #c set c = :d",
            'The "SET" section can only be used once in an update expression;',
        ),
        (
            "remove #d set a = b remove e",
            'The "REMOVE" section can only be used once in an update expression;',
        ),
        (
            "add #d :e set a = b add e :f",
            'The "ADD" section can only be used once in an update expression;',
        ),
        (
            "delete #d :e set a = b delete #e :f",
            'The "DELETE" section can only be used once in an update expression;',
        ),
        (
            "SET #c = if_not_exists(:c)",
            "An expression attribute name used in the document path is not defined; attribute name: #c",
        ),
        (
            "SET #a = if_not_exists(:c)",
            "An expression attribute value used in expression is not defined; attribute value: :c",
        ),
        (
            "set a = if_not_exists(c)",
            "Incorrect number of operands for operator or function; operator or function: if_not_exists, number of operands: 1",
        ),
        (
            "set a = list_append(c, d, e)",
            "Incorrect number of operands for operator or function; operator or function: list_append, number of operands: 3",
        ),
        (
            "set a = if_not_exists(:n, c)",
            "Operator or function requires a document path; operator or function: if_not_exists",
        ),
        (
            "set a = if_not_exists(if_not_exists(a, b), c)",
            "Operator or function requires a document path; operator or function: if_not_exists",
        ),
        (
            "set a = list_append(:n, a)",
            "Incorrect operand type for operator or function; operator or function: list_append, operand type: N",
        ),
        (
            "set a = a + :s",
            "Incorrect operand type for operator or function; operator or function: +, operand type: S",
        ),
        (
            "set a = :l - a",
            "Incorrect operand type for operator or function; operator or function: -, operand type: L",
        ),
        (
            "add a.b :s",
            "Incorrect operand type for operator or function; operator: ADD, operand type: STRING",
        ),
        (
            "add a.b :l",
            "Incorrect operand type for operator or function; operator: ADD, operand type: LIST",
        ),
        (
            "add a.b :t",
            "Incorrect operand type for operator or function; operator: ADD, operand type: BOOLEAN",
        ),
        (
            "delete a.b :n",
            "Incorrect operand type for operator or function; operator: DELETE, operand type: NUMBER",
        ),
        (
            "set b = list_append(:s, a), c = if_not_exists(a) add a.b :s",
            "Incorrect operand type for operator or function; operator: ADD, operand type: STRING",
        ),
    ],
)
def test_a_faulty_expression_is_refused_in_the_order_of_the_service(text, expected):
    values = {":n": n(1), ":s": s("a"), ":l": {"L": []}, ":t": {"BOOL": True}}
    assert refusal(text, values, {"#a": "a", "#b": "b"}) == f"Invalid UpdateExpression: {expected}"


@pytest.mark.parametrize(
    ("text", "relation", "one", "two"),
    [
        (
            "set d[1] = a, d.b = a, c[1].a = a, #c = if_not_exists(a)",
            "overlap",
            "[c, [1], a]",
            "[c]",
        ),
        ("set c.b.#c = a, c = a, #d = a", "overlap", "[c, b, c]", "[c]"),
        ("set a = b remove a, #c, #d", "overlap", "[a]", "[a]"),
        ("set f = a, f = b", "overlap", "[f]", "[f]"),
        ("set #c[3].#d = a, #c[3] = a", "overlap", "[c, [3], [3]]", "[c, [3]]"),
        ("remove c, #c.a, #d", "overlap", "[c]", "[c, a]"),
        (
            "set #c[3].#d = a, #c.#d[3] = if_not_exists(a)",
            "conflict",
            "[c, [3], [3]]",
            "[c, [3], [3]]",
        ),
        ("remove a.#c set a[1] = #d", "conflict", "[a, c]", "[a, [1]]"),
    ],
)
def test_paths_must_neither_overlap_nor_conflict(text, relation, one, two):
    assert refusal(text, names={"#c": "c", "#d": "[3]"}) == (
        f"Invalid UpdateExpression: Two document paths {relation} with each other; must remove or "
        f"rewrite one of these paths; path one: {one}, path two: {two}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SET pk = :v",
        "ADD pk.b :v",
        "REMOVE d SET b = :v, pk = :v",
        "DELETE b :v REMOVE pk",
        "SET sk[1] = :v",
    ],
)
def test_key_attributes_cannot_be_updated(text):
    attribute = "sk" if "sk" in text else "pk"
    values = {":v": {"NS": ["1"]}}
    assert refusal(text, values) == (
        "One or more parameter values were invalid: Cannot update attribute "
        f"{attribute}. This attribute is part of the key"
    )
    with pytest.raises(ApiError, match="Cannot update attribute"):
        parse_update(text, placeholders(None, values)).check_keys(KEYS)


@pytest.mark.parametrize(
    "text",
    [
        "set b.a = :a, #1 = :a",
        "set b[1] = :a",
        "set y.a = :a",
        "set y[1] = :a",
        "set c[1] = :a",
        "set c.x.y = :a",
        "set d.#1 = :a",
        "set d[5].a = :a",
        "remove b.a",
        "remove b[1] set #1 = :a",
        "remove y.a",
        "remove c[1]",
        "remove d.#1",
        "delete b.a :a",
        "delete y.a :a",
        "delete d.#1 :a",
        "add b[1] :a",
        "add y.a :a",
        "add d.#1 :a",
    ],
)
def test_a_path_must_lead_into_a_document_that_is_there(text):
    item = {"b": s("x"), "c": {"M": {"1": s("a")}}, "d": listed("a", "b")}
    assert refusal(text, {":a": {"SS": ["a"]}}, {"#1": "1"}, item) == INVALID_PATH


@pytest.mark.parametrize(
    "text", ["set c = ghost", "set c = list_append(ghost, c)", "set c = b + ghost", "set c = b.x"]
)
def test_a_value_is_read_only_where_there_is_one(text):
    assert refusal(text, item={"b": n(1)}) == (
        "The provided expression refers to an attribute that does not exist in the item"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("delete d :a", {"SS": ["1"]}),
        ("delete b :a", {"NS": ["1"]}),
        ("delete b.a :a", {"NS": ["1"]}),
        ("delete c :a", {"NS": ["1"]}),
        ("add b :a", {"NS": ["1"]}),
        ("add d :a", {"N": "1"}),
        ("add c :a", {"NS": ["1"]}),
        ("set e = t + :a", {"N": "1"}),
        ("set e = b - :a", {"N": "1"}),
        ("set e = list_append(d, if_not_exists(f, :a))", {"L": []}),
    ],
)
def test_a_type_that_does_not_fit_the_item_is_refused(text, value):
    item = {"b": {"M": {"a": {"SS": ["1"]}}}, "c": n(1), "d": {"NS": ["1"]}, "t": s("x")}
    assert refusal(text, {":a": value}, item=item) == WRONG_TYPE


def test_arithmetic_that_does_not_fit_a_number_is_refused():
    values = {":a": n("9.9e125"), ":b": n("9.9e125")}
    assert refusal("SET n = :a + :b", values).startswith("Number overflow")
    assert refusal(
        "ADD n :a", {":a": n("9.9e125")}, item=canonical_item({"n": n("9.9e125")})
    ).startswith("Number overflow")


def test_an_update_cannot_nest_documents_deeper_than_a_put():
    deep = s("leaf")
    for _ in range(30):
        deep = {"M": {"n": deep}}
    item = {"pk": s("p"), "m": {"M": {}}}
    assert update("SET m.a = :v", item, {":v": deep})["m"] == {"M": {"a": deep}}
    assert "Nesting Levels" in refusal("SET m.a = :v", {":v": {"M": {"n": deep}}}, item=item)
    assert update("SET a = :v", item, {":v": {"M": {"n": deep}}})["a"] == {"M": {"n": deep}}


def test_an_expression_has_at_most_300_operators_and_functions():
    sums = ",".join(f"a{i}=b+c" for i in range(300))
    parse_update("SET " + sums, placeholders())
    assert refusal("SET " + sums + ",d=b+c") == (
        "Invalid UpdateExpression: The expression contains too many operators; operator count: 301"
    )


simple_values = (
    st.integers(-99, 99).map(n)
    | st.text(max_size=3).map(s)
    | st.booleans().map(lambda flag: {"BOOL": flag})
)
names = st.sampled_from("abcdef")


@given(st.dictionaries(names, simple_values), st.dictionaries(names, simple_values, min_size=1))
def test_what_is_set_can_be_read_back_and_the_rest_stays(item, changes):
    text = "SET " + ", ".join(f"{name} = :{name}" for name in changes)
    new = update(text, item, {f":{name}": value for name, value in changes.items()})
    assert new == item | changes


@given(st.lists(simple_values, max_size=6), st.sets(st.integers(0, 8), min_size=1))
def test_removed_indexes_are_those_of_the_old_list(elements, indexes):
    text = "REMOVE " + ", ".join(f"l[{index}]" for index in indexes)
    new = update(text, {"l": {"L": elements}})
    assert new["l"]["L"] == [value for index, value in enumerate(elements) if index not in indexes]


@given(st.text(alphabet="ab().,[]#:<>=+- SETADD12_", max_size=30))
def test_any_text_is_parsed_or_refused_with_a_validation_error(text):
    codes = set()
    try:
        parse_update("SET " + text, placeholders({"#a": "a"}, {":a": s("a")}))
    except ApiError as error:
        codes.add(error.code)
    assert codes <= {"ValidationException"}

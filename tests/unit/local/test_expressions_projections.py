"""Projection expressions, and picking parts of an item by paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.local.errors import ApiError
from streamkit.local.expressions import RESERVED_WORDS, Placeholders, parse_projection, pick_paths

ITEM = {
    "pk": {"S": "p"},
    "a": {"M": {"b": {"S": "x"}, "c": {"M": {"d": {"N": "1"}, "e": {"N": "2"}}}}},
    "l": {"L": [{"S": "l0"}, {"S": "l1"}, {"M": {"x": {"S": "y"}, "z": {"S": "w"}}}]},
}


def placeholders(names=None):
    return Placeholders(names, expressions={"ProjectionExpression": "given"})


def project(text, names=None):
    request = placeholders(names)
    projection = parse_projection(text, request)
    request.finish()
    return projection.apply(ITEM)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pk", {"pk": {"S": "p"}}),
        ("pk, ghost", {"pk": {"S": "p"}}),
        ("ghost", {}),
        ("a.b", {"a": {"M": {"b": {"S": "x"}}}}),
        ("a.c.d , a.b", {"a": {"M": {"c": {"M": {"d": {"N": "1"}}}, "b": {"S": "x"}}}}),
        ("a.ghost", {}),
        ("a.b.ghost", {}),
        ("a[0]", {}),
        ("l.x", {}),
        ("l[1]", {"l": {"L": [{"S": "l1"}]}}),
        ("l[2], l[0]", {"l": {"L": [{"S": "l0"}, {"M": {"x": {"S": "y"}, "z": {"S": "w"}}}]}}),
        ("l[2].x, l[0]", {"l": {"L": [{"S": "l0"}, {"M": {"x": {"S": "y"}}}]}}),
        ("l[7], pk", {"pk": {"S": "p"}}),
    ],
)
def test_a_projection_returns_the_parts_that_are_there(text, expected):
    assert project(text) == expected


def test_names_stand_for_any_attribute_name():
    assert project("#p, a.#c.d", {"#p": "pk", "#c": "c"}) == {
        "pk": {"S": "p"},
        "a": {"M": {"c": {"M": {"d": {"N": "1"}}}}},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "The expression can not be empty;"),
        ("a..b", 'Syntax error; token: ".", near: "..b"'),
        ("a b", 'Syntax error; token: "b", near: "a b"'),
        ("a,", 'Syntax error; token: "<EOF>", near: ","'),
        ("a, :v", 'Syntax error; token: ":v", near: ", :v"'),
        ("a[b]", 'Syntax error; token: "b", near: "[b]"'),
        ("pk, status", "Attribute name is a reserved keyword; reserved keyword: status"),
        ("a.abORt", "Attribute name is a reserved keyword; reserved keyword: abORt"),
        (
            "a, #undefined",
            "An expression attribute name used in the document path is not defined; attribute name: #undefined",
        ),
        (
            "a, a",
            "Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a]",
        ),
        (
            "a, a.b[1]",
            "Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a, b, [1]]",
        ),
        (
            "a[1], a.b",
            "Two document paths conflict with each other; must remove or rewrite one of these paths; path one: [a, [1]], path two: [a, b]",
        ),
        ("l[99999999999]", "List index is not within the allowable range; index: [99999999999]"),
    ],
)
def test_a_faulty_projection_is_refused_in_the_words_of_the_service(text, expected):
    with pytest.raises(ApiError) as caught:
        parse_projection(text, placeholders())
    assert caught.value.message == f"Invalid ProjectionExpression: {expected}"


def test_the_reserved_words_are_those_of_the_documentation():
    assert len(RESERVED_WORDS) == 573
    assert {"STATUS", "NAME", "DATA", "TTL", "ZONE", "ABORT"} <= RESERVED_WORDS
    assert all(word == word.upper() for word in RESERVED_WORDS)


def test_picking_merges_paths_and_a_whole_swallows_its_parts():
    assert pick_paths(ITEM, [("a", "b"), ("a",)]) == {"a": ITEM["a"]}
    assert pick_paths(ITEM, [("a",), ("a", "b")]) == {"a": ITEM["a"]}
    assert pick_paths(ITEM, [("l", 0), ("ghost", "x")]) == {"l": {"L": [{"S": "l0"}]}}
    assert pick_paths(ITEM, []) == {}


@given(
    st.sets(
        st.sampled_from(["pk", "a.b", "a.c.d", "a.c.e", "l[0]", "l[1]", "l[2].x", "ghost"]),
        min_size=1,
    )
)
def test_a_projection_never_returns_more_than_the_item(paths):
    def within(part, whole):
        ((kind, raw),) = part.items()
        if kind == "M":
            return all(within(value, whole["M"][name]) for name, value in raw.items())
        if kind == "L":
            return all(
                any(within(value, other) for other in whole["L"] if other.keys() == value.keys())
                for value in raw
            )
        return part == whole

    picked = project(", ".join(sorted(paths)))
    assert all(within(value, ITEM[name]) for name, value in picked.items())
    assert set(picked) == {path[0] if path[0] != "p" else "pk" for path in paths if path != "ghost"}

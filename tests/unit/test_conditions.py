"""Conditions of the commonest kinds are compiled without boto3's builder, to what it makes."""

import pytest
from boto3.dynamodb.conditions import ConditionExpressionBuilder
from hypothesis import given
from hypothesis import strategies as st

from streamkit.model.codec import encode
from streamkit.model.conditions import (
    AsRead,
    Attr,
    _is_simple,
    absent,
    all_of,
    any_of,
    as_it_was,
    attribute,
    compile_condition,
    present,
)
from streamkit.model.expressions import compile_all

names = st.sampled_from(["status", "a.b", "l[0]", "día", "n"])
integers = st.integers(-(10**38) + 1, 10**38 - 1)  # a table has no more than 38 digits
values = st.one_of(st.text(), integers, st.booleans(), st.binary(), st.lists(integers))
attributes = st.builds(lambda make, name: make(name), st.sampled_from([Attr, attribute]), names)
terms = st.one_of(
    attributes.map(lambda one: one.exists()),
    attributes.map(lambda one: one.not_exists()),
    st.builds(lambda one, value: one.eq(value), attributes, values),
    st.builds(lambda one, other: one.eq(other), attributes, attributes),
    st.builds(lambda one, value: one.ne(value), attributes, values),
    st.builds(lambda one, value: one.size().eq(value), attributes, integers),
    st.just(present),
)


@given(st.lists(terms, min_size=1, max_size=5))
def test_what_is_compiled_is_what_boto3_makes_of_it(parts):
    condition = all_of(parts, "pk")
    assert compile_all(parts, "pk") == compile_condition(condition)
    built = ConditionExpressionBuilder().build_expression(condition)
    shown = {"\ufdd0": ".", "\ufdd1": "[", "\ufdd2": "]"}
    assert compile_condition(condition) == (
        built.condition_expression,
        {
            place: name.translate(str.maketrans(shown))
            for place, name in built.attribute_name_placeholders.items()
        },
        {place: encode(value) for place, value in built.attribute_value_placeholders.items()},
    )


@given(
    st.dictionaries(names, values.filter(lambda one: one != ()), max_size=4),
    st.lists(names, unique=True, min_size=1),
    st.lists(terms, max_size=2),
)
def test_what_was_read_is_compiled_to_a_condition_for_each_attribute(image, read, others):
    item = {name: encode(value) for name, value in image.items()}
    one_by_one = [*as_it_was(read, image), *others]
    assert compile_all([present, *one_by_one], "pk") == compile_condition(
        all_of([present, *one_by_one], "pk")
    )
    text, placed, held = compile_all([present, AsRead(read, item)], "pk")
    assert (text, placed, held) == compile_all([present, *as_it_was(read, image)], "pk")
    beside = compile_all([present, AsRead(read, item), *others], "pk")
    assert beside == compile_all([present, *one_by_one], "pk")


def test_what_a_path_a_size_or_another_attribute_is_compared_with_is_left_to_boto3():
    assert _is_simple(Attr("a").eq(1))
    assert _is_simple(attribute("a.b").eq(1))
    assert not _is_simple(Attr("a.b").exists())
    assert not _is_simple(Attr("a").size().eq(1))
    assert not _is_simple(Attr("a").eq(Attr("b")))
    assert not _is_simple(Attr("a").lt(1))


@pytest.mark.parametrize(
    "others",
    [
        (Attr("n").lt(1), Attr("n").gt(1)),
        (Attr("n").eq(1), Attr("n").eq("1")),
        (Attr("n").eq(1), Attr("n").eq(True)),
        (Attr("n").eq(1), Attr("m").eq(1)),
        (any_of(absent, Attr("n").eq(1)), any_of(present, Attr("n").eq(1))),
    ],
)
def test_of_two_conditions_with_different_meanings_none_is_left_out(others):
    one, other = (compile_all([condition], "pk")[0] for condition in others)
    both = compile_all([*others, *others], "pk")[0]
    assert both.count("#n") == one.count("#n") + other.count("#n")

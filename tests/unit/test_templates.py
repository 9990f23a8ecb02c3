"""Key templates build keys that are unambiguous, sort as their values do, and match their shape."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration
from streamkit.model.templates import KeyTemplate

HERE = Declaration("Order", "shop.py", 12)


class Color(Enum):
    RED = "red"


def template(text: str) -> KeyTemplate:
    return KeyTemplate.parse(text, HERE)


def pattern(parsed: KeyTemplate) -> re.Pattern[str]:
    """Say by a pattern what keys a template matches."""
    return re.compile(".+?".join(map(re.escape, parsed.shape)), re.DOTALL)


@pytest.mark.parametrize(
    ("text", "values", "key"),
    [
        ("ORDER#{id}", {"id": "a"}, "ORDER#a"),
        ("BRANDS", {}, "BRANDS"),
        ("{{{a}}}", {"a": "x"}, "{x}"),
        ("D#{day:%Y-%m-%d}", {"day": date(2024, 5, 1)}, "D#2024-05-01"),
        ("D#{day}", {"day": date(2024, 5, 1)}, "D#2024-05-01"),
        ("{at}", {"at": datetime(2024, 5, 1, tzinfo=UTC)}, "2024-05-01T00:00:00+00:00"),
        ("I#{n:08d}", {"n": 42}, "I#00000042"),
        ("I#{n:desc08d}", {"n": 42}, "I#99999957"),
        ("I#{n:desc4d}", {"n": 1}, "I#9998"),
        ("{n}", {"n": Decimal("1.50")}, "1.5"),
        ("{n}", {"n": Decimal("1E+2")}, "100"),
        ("{n}", {"n": Decimal("-0.0")}, "0"),
        ("{n}", {"n": Color.RED}, "red"),
        ("{n}", {"n": UUID(int=5)}, "00000000-0000-0000-0000-000000000005"),
        ("{day}-{id}", {"day": date(2024, 5, 1), "id": "x-y"}, "2024-05-01-x-y"),
    ],
)
def test_a_key_is_built_from_the_fields(text: str, values: dict[str, object], key: str) -> None:
    assert template(text).build(values) == key
    assert template(text).matches(key)
    assert pattern(template(text)).fullmatch(key)


def test_a_key_is_built_from_an_object_as_from_a_mapping() -> None:
    class Thing:
        a = "1"

    assert template("T#{a}").build(Thing()) == "T#1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{a.b}",
        "{a[0]}",
        "{a!r}",
        "{a",
        "a}",
        "{a:x}",
        "{a:descd}",
        "{a:desc0d}",
        "{a:{b}}",
        "{a}{b}",
        "{0}",
    ],
)
def test_a_mistake_in_a_template_names_the_declaration(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"Order \(shop.py:12\)"):
        template(text)


@pytest.mark.parametrize("text", ["X#{a}", "X#{a:%Y-%m}", "X#{a:03d}", "X#{a:desc03d}"])
@pytest.mark.parametrize(
    "value", [None, "", True, 1.5, b"x", ["x"], *map(Decimal, ["NaN", "-Infinity"])]
)
def test_a_value_that_cannot_be_in_a_key_is_refused_by_name(value: object, text: str) -> None:
    with pytest.raises(ValueError, match="Order: a "):
        template(text).build({"a": value})


def test_a_value_that_holds_the_literal_that_ends_it_is_refused() -> None:
    both = template("{a}#{b}")
    assert both.build({"a": "1", "b": "2#3"}) == "1#2#3"
    with pytest.raises(ValueError, match=r"another item could get the same key") as refusal:
        both.build({"a": "secret#2", "b": "3"})
    assert "secret" not in str(refusal.value)


def test_a_value_whose_end_begins_the_literal_is_refused() -> None:
    with pytest.raises(ValueError, match="same key"):
        template("{a}##{b}").build({"a": "1#", "b": "2"})


def test_a_descending_number_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit in 3"):
        template("{n:desc03d}").build({"n": 1000})
    with pytest.raises(ValueError, match="does not fit in 3"):
        template("{n:desc03d}").build({"n": -1})


@given(st.lists(st.integers(0, 10**8 - 1), min_size=2, max_size=2))
def test_descending_numbers_sort_backwards(numbers: list[int]) -> None:
    keys = [template("N#{n:desc08d}").build({"n": n}) for n in numbers]
    assert (keys[0] < keys[1]) == (numbers[0] > numbers[1])


parts = st.text("ab#-", min_size=1, max_size=4)


@given(st.tuples(parts, parts), st.tuples(parts, parts))
def test_different_values_never_give_the_same_key(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    keys = []
    for values in (first, second):
        try:
            keys.append(template("X{a}#-{b}").build(dict(zip("ab", values, strict=True))))
        except ValueError:
            return
    assert (keys[0] == keys[1]) == (first == second)


@given(st.text("ab#", max_size=9))
def test_matching_agrees_with_the_regex(key: str) -> None:
    for text in ("a#{x}", "{x}#", "a#{x}#{y}b", "{x}ab{y}", "ab", "{x}##{y}"):
        parsed = template(text)
        assert parsed.matches(key) == bool(pattern(parsed).fullmatch(key)), text


def test_a_template_knows_its_fields_prefix_and_literals() -> None:
    parsed = template("A#{x}#{y}#{x}!")
    assert parsed.fields == ("x", "y")
    assert parsed.prefix == "A#"
    assert parsed.literal_length == 5
    assert parsed.shape == ("A#", "#", "#", "!")

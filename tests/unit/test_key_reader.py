"""Fields that stand only in a key are read from it, where the key can be split in one way."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime

from streamkit.entity import Entity
from streamkit.model.epoch import EpochSeconds
from streamkit.stream.decode.keyed import key_reader


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def entity(pk: str, sk: str | None = None, **fields: Any) -> type[Entity]:
    annotations = {"__annotations__": fields, "__module__": __name__}
    return type("Thing", (Entity,), annotations, pk=pk, sk=sk)  # type: ignore[call-overload,no-any-return]


def read(made: type[Entity], pk: str, sk: str | None = None) -> dict[str, Any]:
    return key_reader(made).read(pk, sk)


@pytest.mark.parametrize(
    ("template", "kind", "text", "value"),
    [
        ("ORDER#{x}", str, "ORDER#a", "a"),
        ("ORDER#{x}#end", str, "ORDER#a#b#end", "a#b"),
        ("{x}", str, "any#thing", "any#thing"),
        ("I#{x:08d}", int, "I#00000042", 42),
        ("I#{x:08d}", int, "I#123456789", 123456789),
        ("I#{x:08d}", int, "I#-0000042", -42),
        ("I#{x:5d}", int, "I#   42", 42),
        ("I#{x:desc08d}", int, "I#99999957", 42),
        ("I#{x}", int, "I#-7", -7),
        ("I#{x}", Decimal, "I#1.5", Decimal("1.5")),
        ("D#{x:%Y-%m-%d}", date, "D#2024-05-01", "2024-05-01"),
        ("D#{x:%d %B %Y}", date, "D#01 May 2024", "2024-05-01"),
        ("D#{x}", date, "D#2024-05-01", "2024-05-01"),
        ("D#{x:%Y%m%dT%H%M%S}", datetime, "D#20240501T101112", "2024-05-01T10:11:12"),
        ("D#{x:%Y%m%dT%H%M%SZ}", datetime, "D#20240501T101112Z", "2024-05-01T10:11:12+00:00"),
        ("D#{x:%Y%m%d%H%M%S}", EpochSeconds, "D#20240501101112", "2024-05-01T10:11:12+00:00"),
        ("D#{x:%Y%m%d%H%M%S}", AwareDatetime, "D#20240501101112", "2024-05-01T10:11:12+00:00"),
        ("{x}", Color, "red", "red"),
        ("{x}", Literal["a", 1], "1", 1),
        ("{x}", str | None, "a", "a"),
        ("{x}", UUID, str(UUID(int=5)), str(UUID(int=5))),
    ],
)
def test_a_field_is_read_from_its_key(template: str, kind: Any, text: str, value: object) -> None:
    assert read(entity(template, x=kind), text) == {"x": value}


@pytest.mark.parametrize(
    ("template", "kind", "text"),
    [
        ("ORDER#{x}", str, "OTHER#a"),
        ("ORDER#{x}", str, "ORDER#"),
        ("I#{x:08d}", int, "I#42"),
        ("I#{x:desc08d}", int, "I#999"),
        ("I#{x:desc08d}", int, "I#999999579"),
        ("I#{x}", int, "I#seven"),
        ("D#{x:%Y-%m-%d}", date, "D#2024-13-01"),
        ("{x}", Color, "green"),
        ("{x:%Y-%m}", date, "2024-05"),
        ("{x:%y-%m-%d}", date, "24-05-01"),
        ("{x:%Y-%m-%d}", datetime, "2024-05-01"),
        ("{x}", int | str, "7"),
        ("{x}", Any, "7"),
    ],
)
def test_what_a_key_does_not_tell_is_not_made_up(template: str, kind: Any, text: str) -> None:
    assert read(entity(template, x=kind), text) == {}


@pytest.mark.parametrize(
    ("pk", "sk", "fields", "key", "found"),
    [
        ("A#{a}#{b}", None, {"a": str, "b": str}, ("A#x#y",), {"a": "x", "b": "y"}),
        ("A#{a}#{b}", None, {"a": str, "b": str}, ("A#x#y#z",), {}),
        ("A#{a}#{b}", None, {"a": int, "b": str}, ("A#7#y#z",), {"a": 7, "b": "y#z"}),
        ("{a}#{d:%Y#%m#%d}#{b}", None, {"a": str, "d": date, "b": str},
         ("x#y#2024#05#01#z#w",), {"a": "x#y", "d": "2024-05-01", "b": "z#w"}),
        ("{a}#{n}", None, {"a": str, "n": int}, ("x#y#7",), {"a": "x#y", "n": 7}),
        ("{n}1{a}", None, {"a": str, "n": int}, ("5123",), {"a": "23", "n": 5}),
        ("{n}1{a}", None, {"a": str, "n": int}, ("51213",), {}),
        ("A#{a}", "A#{a}#{b}", {"a": str, "b": str}, ("A#x#y", "A#x#y#z"), {"a": "x#y", "b": "z"}),
        ("A#{a}#{b}", "A#{a}", {"a": str, "b": str}, ("A#x#y#z", "A#x#y"), {"a": "x#y", "b": "z"}),
        ("A#{a}", "A#{a}", {"a": str}, ("A#x", "A#x"), {"a": "x"}),
        ("A#{a}", "A#{a}", {"a": str}, ("A#x", "A#y"), {}),
        ("A#{a}", "B#{a}", {"a": str}, ("A#x", "B#y"), {}),
        ("A#{a}", "B#{a}", {"a": str}, ("C#x", "B#y"), {}),
        ("A#{a}", "B#{b}", {"a": str, "b": str}, ("A#x", "C#y"), {"a": "x"}),
        ("{d:%Y-%m}", "{d:%Y-%m-%d}", {"d": date}, ("2024-05", "2024-05-01"), {"d": "2024-05-01"}),
        ("A#{a}##{b}", None, {"a": str, "b": str}, ("A#x###y",), {}),
    ],
)  # fmt: skip
def test_a_key_is_split_where_there_is_one_way(
    pk: str, sk: str | None, fields: dict[str, Any], key: tuple[str, ...], found: dict[str, Any]
) -> None:
    assert read(entity(pk, sk, **fields), *key) == found


PARTS = st.text(alphabet="ab#-|", min_size=1, max_size=6)
THREE = entity("P#{a}#{b}--{c}|", a=str, b=str, c=str)


def all_splits(key: str) -> list[dict[str, str]]:
    """Split a key in every way there is."""
    inner = key.removeprefix("P#").removesuffix("|")
    return [
        {"a": inner[:i], "b": inner[i + 1 : j], "c": inner[j + 2 :]}
        for i in range(1, len(inner))
        for j in range(i + 2, len(inner) - 2)
        if inner[i] == "#" and inner[j : j + 2] == "--"
    ]


@given(PARTS, PARTS, PARTS)
def test_a_key_is_read_exactly_if_one_split_exists(a: str, b: str, c: str) -> None:
    key = f"P#{a}#{b}--{c}|"
    ways = all_splits(key)
    assert {"a": a, "b": b, "c": c} in ways
    assert read(THREE, key) == (ways[0] if len(ways) == 1 else {})


@given(st.integers(-(10**8) + 1, 10**9), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))  # noqa: DTZ001
def test_what_a_template_builds_is_read_back(number: int, moment: datetime) -> None:
    made = entity("{n:08d}#{at:%Y-%m-%dT%H:%M:%S}", "{n}/{at}", n=int, at=AwareDatetime)
    at = moment.replace(tzinfo=UTC, microsecond=0)
    item = made(n=number, at=at)
    key = item.item_key
    assert made.model_validate(read(made, key.pk, key.sk)) == item

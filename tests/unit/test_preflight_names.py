"""What a table and its entities are called is held against streamkit's own names at start."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import Field

from streamkit import App, Entity, Inserted
from streamkit.core.tables import AppTables
from streamkit.kinds.copy_directory import CopyEntry
from streamkit.kinds.preflight import findings
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.stream.decode import ImageDecoder


def schema(pk: str = "PK", sk: str | None = "SK", index: str = "GSI1PK") -> TableSchema:
    gsi = IndexSchema("GSI1", ((index, "S"),), (), "ALL", frozenset(), is_global=True)
    arn = "arn:aws:dynamodb:::table/t/stream/2024"
    return TableSchema("t", pk, sk, "S", sk and "S", {"GSI1": gsi}, stream_arn=arn)


def found(entity: type[Entity], **names: Any) -> list[tuple[str, str]]:
    app = App("shop", table="t")

    @app.on
    def listen(change: Inserted[entity]) -> None:  # type: ignore[valid-type]
        pass

    described = schema(**names)
    return [(f.severity, f.text) for f in findings(app, AppTables(described, described))]


class Plain(Entity, pk="P#{name}", sk="P"):
    name: str


def test_ordinary_names_are_found_nothing_about() -> None:
    assert found(Plain) == []


@pytest.mark.parametrize("names", [{"pk": "_sk_kind"}, {"sk": "_sk_x"}, {"index": "_sk_owner"}])
def test_keys_that_are_called_as_our_attributes_are_an_error(names: dict[str, str]) -> None:
    ((severity, text),) = found(Plain, **names)
    assert severity == "error"
    assert "need other names" in text


def test_a_field_that_is_stored_as_our_attributes_are_is_an_error() -> None:
    class Clash(Entity, pk="P#{name}", sk="P"):
        name: str
        owner: str = Field(default="", alias="_sk_of")

    ((severity, text),) = found(Clash)
    assert severity == "error"
    assert "owner is stored as '_sk_of'" in text


def test_a_field_that_stands_in_the_key_alone_has_to_be_told_by_it() -> None:
    class Month(Entity, pk="M#{day:%Y-%m}", sk="M"):
        day: date

    assert found(Month) == [], "it is stored as an attribute"

    class Hidden(Entity, pk="M#{day:%Y-%m}", sk="M"):
        day: date = Field(exclude=True)

    for entity, names in ((Month, {"pk": "day"}), (Hidden, {})):
        ((severity, text),) = found(entity, **names)
        assert severity == "error"
        assert "day stands in the key alone" in text
        assert "test_preflight_names.py:" in text

    class Day(Entity, pk="M#{day:%Y-%m-%d}", sk="M"):
        day: date

    assert found(Day, pk="day") == [], "it is read from the key"


def test_a_field_that_is_stored_where_the_key_is_can_only_be_read() -> None:
    class Raw(Entity, pk="P#{name}", sk="P"):
        name: str
        key_of_it: str = Field(alias="PK")

    ((severity, text),) = found(Raw)
    assert severity == "warning"
    assert "an item cannot be put" in text


def test_entries_of_a_mirrors_directory_keep_their_names_where_these_are_free() -> None:
    entry = CopyEntry(mirror="m", source="s", copied="c", pk="P", sk="S")
    assert set(entry.attributes(schema())) == {"PK", "SK", *CopyEntry.model_fields}
    for described in (schema("pk", "sk"), schema("sk", None), schema(index="mirror")):
        item = entry.attributes(described)
        assert not set(item) & {*CopyEntry.model_fields} - described.key_attributes
        read = ImageDecoder(CopyEntry, described).decode_item(item)
        assert (read.pk, read.sk, read.mirror, read.source) == ("P", "S", "m", "s")


def number_findings(sort: str) -> list[str]:
    class Reading(Entity, pk="P#{name}", sk=sort):
        name: str
        at: int
        of: int = 0

    app = App("shop", table="t")

    @app.on
    def listen(change: Inserted[Reading]) -> None:
        pass

    described = replace(schema(), sk_type="N")
    return [f.text for f in findings(app, AppTables(described, described))]


@pytest.mark.parametrize("sort", ["{at}", "0", "-1", "1.5"])
def test_a_single_field_or_digits_make_a_key_that_is_a_number(sort: str) -> None:
    assert number_findings(sort) == []


@pytest.mark.parametrize("sort", ["AT#{at}", "{at:08d}", "{at}#{of}", "META", "007", "1.50"])
def test_a_template_that_builds_no_number_for_a_key_that_is_one_is_an_error(sort: str) -> None:
    (text,) = number_findings(sort)
    assert f"the key 'SK' is a number, and {sort!r} builds none" in text
    assert "use a single field" in text

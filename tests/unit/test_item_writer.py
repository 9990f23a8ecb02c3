"""An entity of scalars is stored by a generated function, exactly as the general way stores it."""

import warnings
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    computed_field,
    field_serializer,
    model_serializer,
)

from streamkit import Entity, Index
from streamkit import entity as entities
from streamkit.errors import DeclarationError
from streamkit.model.item_as_read import remember_key
from streamkit.model.item_writer import item_writer
from streamkit.model.schema import IndexSchema, TableSchema

BY_DAY = IndexSchema("ByDay", (("GSI1PK", "S"),), (("GSI1SK", "N"),), "ALL", frozenset(), True)
TABLES = (
    TableSchema("t", "PK", "SK", "S", "S", {"ByDay": BY_DAY}, type_attribute="type"),
    TableSchema("t", "pk", "sk", "S", "B", {"ByDay": BY_DAY}),
    TableSchema("t", "id", None, "S", None, {"ByDay": BY_DAY}, type_attribute="kind"),
)


class Size(StrEnum):
    LARGE = "large"


class Alone(Entity, pk="ALONE#{name}", sk="ALONE#{name}"):
    name: str
    count: int = 0
    note: str | None = None


class Many(Entity, pk="MANY#{name}#{day:%Y-%m-%d}", sk="{count:08d}"):
    by_day: ClassVar = Index("ByDay", pk="DAY#{day:%Y-%m-%d}", sk="{count}")
    name: Annotated[str, StringConstraints(strip_whitespace=True)]
    count: Annotated[int, Field(ge=0, lt=10**8)]
    day: date
    price: Decimal | None = None
    share: float = 0.5
    fine: bool = True
    raw: bytes | None = None
    at: datetime | None = None
    clock: time | None = None
    lasts: timedelta | None = None
    number: UUID | None = None
    label: Annotated[str, AfterValidator(str.lower), Field(alias="Label")] = "x"


class Sparse(Entity, pk="{name}", sk="SPARSE"):
    some: ClassVar = Index("ByDay", pk="SOME", sk="{count}", when=lambda item: item.count > 0)
    name: str
    count: int = 0


class Elsewhere(Entity, pk="{name}", sk="ELSEWHERE"):
    absent: ClassVar = Index("Absent", pk="{name}", when=lambda item: item.count > 0)
    name: str
    count: int = 0


class Loose(Entity, pk="LOOSE#{name}", sk="LOOSE", frozen=False):
    name: str
    count: int = 0


def both_ways(item: Entity, table: TableSchema) -> tuple[Any, Any]:
    """Return what is stored, or the error, by the generated function and by the general way."""

    def told() -> Any:
        try:
            return list(item.attributes(table).items())
        except (ValueError, DeclarationError) as error:
            return type(error), str(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic dumps values that were never validated with one
        ours = told()
        with mock.patch.object(entities, "item_writer", return_value=None):
            return ours, told()


names = st.text(max_size=6)
counts = st.integers() | st.integers(min_value=10**37, max_value=10**39)
anything = st.none() | names | counts | st.booleans() | st.binary() | st.decimals()
anything |= st.sampled_from(Size) | st.lists(names, max_size=2) | st.floats()
many = st.fixed_dictionaries(
    {"name": names.filter(str.strip), "count": st.integers(0, 10**8 - 1), "day": st.dates()},
    optional={
        "price": st.none() | st.decimals(allow_nan=False, allow_infinity=False),
        "share": st.floats(),
        "fine": st.booleans(),
        "raw": st.none() | st.binary(),
        "at": st.none() | st.datetimes(),
        "clock": st.none() | st.times(),
        "lasts": st.none() | st.timedeltas(),
        "number": st.none() | st.uuids(),
        "Label": names,
    },
)


@pytest.mark.parametrize("table", TABLES)
@given(values=many)
@settings(deadline=None, max_examples=50)
def test_every_scalar_is_stored_as_the_general_way_stores_it(table, values):
    item = Many(**values)
    ours, usual = both_ways(item, table)
    assert ours == usual
    assert item_writer(Many, table) is not None


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("entity", [Alone, Sparse, Elsewhere, Loose])
@given(name=anything, count=anything, note=anything)
@settings(deadline=None, max_examples=50)
def test_values_that_were_never_validated_are_stored_or_refused_alike(
    table, entity, name, count, note
):
    fields = {"name": name, "count": count} | ({"note": note} if entity is Alone else {})
    if entity in (Sparse, Elsewhere) and not isinstance(count, int | float | Decimal):
        fields["count"] = 1  # `when` compares it
    ours, usual = both_ways(entity.model_construct(**fields), table)
    assert ours == usual
    assert item_writer(entity, table) is not None


def test_an_item_that_was_read_is_stored_under_the_key_that_it_was_read_with():
    item = Alone(name="a")
    remember_key(item, ("OLD#a", "OLD", ()))
    stored = item.attributes(TABLES[0])
    assert (stored["PK"], stored["SK"]) == ({"S": "OLD#a"}, {"S": "OLD"})


class Computed(Entity, pk="{name}", sk="X"):
    name: str

    @computed_field
    def loud(self) -> str:
        return self.name.upper()


class Written(Entity, pk="{name}", sk="X"):
    name: str

    @field_serializer("name")
    def written(self, name: str) -> str:
        return name.upper()


class Whole(Entity, pk="{name}", sk="X"):
    name: str

    @model_serializer
    def whole(self) -> dict[str, str]:
        return {"name": self.name.upper()}


class Annotation(Entity, pk="{name}", sk="X"):
    name: Annotated[str, PlainSerializer(str.upper)]


class Excluded(Entity, pk="{name}", sk="X"):
    name: str
    secret: str = Field("s", exclude=True)


class Nested(Entity, pk="{name}", sk="X"):
    name: str
    tags: list[str] = []


class Extra(Entity, pk="{name}", sk="X", extra="allow"):
    name: str


class InKey(Entity, pk="{name}", sk="{PK}"):
    name: str
    PK: str


@pytest.mark.parametrize(
    "entity", [Computed, Written, Whole, Annotation, Excluded, Nested, Extra, InKey]
)
def test_what_pydantic_has_to_dump_and_what_a_key_shares_goes_the_general_way(entity):
    assert item_writer(entity, TABLES[0]) is None


def test_an_entity_without_a_sort_key_is_refused_where_the_table_has_one():
    class NoSortKey(Entity, pk="{name}"):
        name: str

    ours, usual = both_ways(NoSortKey(name="a"), TABLES[0])
    assert ours == usual == (ValueError, "NoSortKey has no sk, but t has one")

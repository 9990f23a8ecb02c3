"""What does not fit is found before the first change: images, arguments, TTL, spread groups, sinks."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar

import pytest

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    EpochSeconds,
    Expired,
    Inserted,
    Modified,
    Removed,
    Send,
    Table,
    Until,
    Webhook,
)
from streamkit.core.tables import AppTables
from streamkit.kinds.preflight import findings
from streamkit.model.schema import TableSchema

VIEWS = ["NEW_AND_OLD_IMAGES", "NEW_IMAGE", "OLD_IMAGE", "KEYS_ONLY"]


def schema(**more: Any) -> TableSchema:
    given: dict[str, Any] = {"sk": "sk", "sk_type": "S", "stream_arn": "a/1"} | more
    return TableSchema("t", "pk", pk_type=given.pop("pk_type", "S"), indexes={}, **given)


class Note(Entity, pk="N#{day}", sk="N#{name}"):
    day: EpochSeconds
    name: str


class Visits(Aggregate[Note], pk="V#{day:%Y%m%d%H%M%S}", sk="V"):
    day: EpochSeconds
    notes: Annotated[int, Count()] = 0
    until: Annotated[EpochSeconds | None, Until("day", keep=timedelta(1))] = None


class Spread(Aggregate[Note], pk="S#{name}", sk="S", spread=4):
    name: str
    notes: Annotated[int, Count()] = 0


def found(*handlers: Any, control: TableSchema | None = None, **more: Any) -> list[str]:
    app = App("shop", table="t")
    for one in handlers:
        app.aggregate(one) if isinstance(one, type) else app.on(one)
    described = schema(**more)
    return [
        f"{f.severity}: {f.text}" for f in findings(app, AppTables(described, control or described))
    ]


def listening(kinds: Any) -> Any:
    def listen(change: Any) -> None: ...

    listen.__annotations__["change"] = kinds
    return listen


# -- images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "new", "old"),
    [
        (Inserted[Note], True, False),
        (Modified[Note], True, True),
        (Removed[Note], False, True),
        (Expired[Note], False, True),
        (Change[Note], True, True),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_stream_has_to_carry_the_images_that_handlers_need(kinds, new, old, view):
    texts = [text for text in found(listening(kinds), view_type=view, ttl="ttl") if "image" in text]
    lacks = [
        name
        for name, needed, views in (("new", new, VIEWS[:2]), ("old", old, VIEWS[0:3:2]))
        if needed and view not in views
    ]
    assert [f"needs the {name} image" in text for name, text in zip(lacks, texts, strict=True)] == [
        True for _ in lacks
    ]


# -- what a handler asks for and returns -----------------------------------------------------------


def test_a_handler_that_reads_the_table_has_to_be_an_async_one():
    def plain(change: Inserted[Note], table: Table) -> None: ...

    async def reading(change: Inserted[Note], table: Table) -> None: ...

    (text,) = found(plain)
    assert text.startswith("error: plain")
    assert "is an async def" in text
    assert found(reading) == []


@pytest.mark.parametrize("shadow", [False, True])
def test_what_a_handler_sends_needs_a_sink_unless_it_is_compared_only(shadow):
    def sending(change: Inserted[Note]) -> Send | None: ...

    def texts():
        return [f.text for f in findings(app, AppTables(schema(), schema()))]

    app = App("shop", table="t")
    app.on(shadow=shadow)(sending)
    assert ["has no sink" in text for text in texts()] == ([] if shadow else [True])
    app.sink(Webhook("hook", "https://example.com/hook"))
    assert texts() == []


# -- keys and groups -------------------------------------------------------------------------------


def test_an_entity_without_a_sort_key_does_not_fit_a_table_that_has_one():
    class Single(Entity, pk="S#{name}"):
        name: str

    texts = found(listening(Inserted[Single]))
    assert any(text.startswith("error: Single") and "declare sk=" in text for text in texts)


@pytest.mark.parametrize("sort", [{"sk_type": "N"}, {"sk": None, "sk_type": None, "pk_type": "N"}])
def test_a_group_is_spread_where_its_key_ends_with_a_string_alone(sort):
    def spread(texts):
        return [text for text in texts if "spread= needs a string" in text]

    assert len(spread(found(Spread, control=schema(), **sort))) == 1
    assert spread(found(Spread)) == []


def test_a_handler_of_a_spread_group_is_told_that_it_would_see_parts():
    (text,) = found(Spread, listening(Modified[Spread]))
    assert text.startswith("error: listen")
    assert "only one part" in text


# -- expiry ----------------------------------------------------------------------------------------


def test_a_bucket_ends_by_the_tables_own_ttl_attribute():
    assert found(Visits, ttl="until") == []
    (none,), (other,) = found(Visits), found(Visits, ttl="expires")
    assert none.endswith("t has no TTL attribute, so that old buckets stay for ever")
    assert "the TTL attribute 'expires'" in other


@pytest.mark.parametrize(
    ("kind", "expires"),
    [
        (int, True),
        (float | None, True),
        (EpochSeconds, True),
        (EpochSeconds | None, True),
        (str, False),
        (str | None, False),
    ],
)
def test_an_item_whose_ttl_attribute_is_no_number_never_expires(kind, expires):
    class Code(Entity, pk="C#{name}", sk="C"):
        __annotations__: ClassVar = {"name": str, "ttl": kind}
        name: str

    texts = found(listening(Inserted[Code]), ttl="ttl")
    assert ["never expires" in text for text in texts] == ([] if expires else [True])


def test_who_listens_to_expiries_and_to_more_is_not_warned_of_a_table_without_them():
    assert len(found(listening(Expired[Note]))) == 1
    assert found(listening(Expired[Note] | Removed[Note])) == []


# -- in which order --------------------------------------------------------------------------------


def test_errors_are_told_before_warnings():
    class Single(Entity, pk="S#{name}"):
        name: str

    texts = found(Visits, listening(Expired[Single]), view_type="KEYS_ONLY")
    kinds = [text.partition(":")[0] for text in texts]
    assert kinds == sorted(kinds)
    assert set(kinds) == {"error", "warning"}

"""Keys that could be of two entities are found at start; a more specific template wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import App, Entity, Inserted, Put
from streamkit.core.overlaps import undecided
from streamkit.core.tables import AppTables
from streamkit.entity import spec_of
from streamkit.kinds.preflight import findings
from streamkit.model.schema import TableSchema


def entity(pk: str, sk: str | None = None) -> type[Entity]:
    fields = {"__annotations__": {"a": str, "b": str, "c": str}, "__module__": __name__}
    return type("Thing", (Entity,), fields, pk=pk, sk=sk)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("ORDER#{a}",), ("ORDER#{a}#LINE#{b}",), False),
        (("{a}",), ("ENDS#{b}",), False),
        (("{a}#END",), ("START#{b}",), True),
        (("{a}#X#{b}",), ("{a}#Y#{b}",), True),
        (("A#{a}",), ("B#{a}",), False),
        (("A#{a}",), ("A#{b}",), False),
        (("A#{a}#X",), ("A#{a}#Y",), False),
        (("ALL",), ("{a}",), False),
        (("C#{a}", "ORDER#{b}"), ("C#{a}", "NOTE#{b}"), False),
        (("C#{a}", "{b}"), ("{a}", "ORDER#{b}"), True),
        (("C#{a}", "{b}"), ("C#{a}", "ORDER#{b}"), False),
        (("C#{a}", "PROFILE"), ("C#{a}", "{b}"), False),
    ],
)
def test_two_entities_overlap_where_neither_is_more_specific(
    one: tuple[str, ...], other: tuple[str, ...], shared: bool
) -> None:
    found = list(undecided([entity(*one), entity(*other)], has_sort_key=len(one) == 2))
    assert bool(found) is shared


TEXT = st.text(alphabet="ab", max_size=2)
TEMPLATES = st.builds(
    lambda first, middle, last, two: f"{first}{{a}}{middle}{{b}}{last}" if two else f"{first}{{a}}{last}",
    TEXT, st.text(alphabet="ab", min_size=1, max_size=2), TEXT, st.booleans(),
)  # fmt: skip


@given(TEMPLATES, TEMPLATES)
def test_what_overlaps_is_found_among_all_short_keys(one: str, other: str) -> None:
    made = [entity(one), entity(other)]
    first, second = (spec_of(each).pk for each in made)
    keys = (f"{n:b}"[1:].translate({48: "a", 49: "b"}) for n in range(2, 2**10))
    fits = {(first.matches(key), second.matches(key)) for key in keys}
    apart = {(True, True), (True, False), (False, True)}
    found = bool(list(undecided(made, has_sort_key=False)))
    assert found or not (fits >= apart), "an overlap was not found"


def app_of(*entities: type[Entity]) -> App:
    app = App("shop", table="t", entities=entities[1:])

    @app.on
    def listen(change: Inserted[entities[0]]) -> None:  # type: ignore[valid-type]
        pass

    return app


def found(app: App) -> list[tuple[str, str]]:
    arn = "arn:aws:dynamodb:::table/t/stream/2024"
    schema = TableSchema(
        "t", "PK", None, "S", None, {}, stream_arn=arn, type_attribute=app.type_attribute
    )
    return [(f.severity, f.text) for f in findings(app, AppTables(schema, schema))]


def test_what_nothing_tells_apart_is_an_error_at_start_that_says_what_to_do() -> None:
    ((severity, text),) = found(app_of(entity("{a}#X#{b}"), entity("{a}#Y#{b}")))
    assert severity == "error"
    assert "type_attribute" in text
    assert text.count("test_overlaps.py:") == 2


def test_what_only_its_length_tells_apart_is_a_warning() -> None:
    ((severity, _),) = found(app_of(entity("{a}#END"), entity("START#{b}")))
    assert severity == "warning"


def test_a_table_with_types_is_told_apart_by_them() -> None:
    class Some(Entity, pk="{a}#X#{b}"):
        a: str
        b: str

    class Other(Entity, pk="{a}#Y#{b}"):
        a: str
        b: str

    def listen(change: Inserted[Other]) -> None: ...

    typed = App("shop", table="t", type_attribute="type", entities=[Some])
    untyped = App("shop", table="t", entities=[Some])
    for app in (typed, untyped):
        app.on(listen)
    assert found(typed) == []
    assert len(found(untyped)) == 1


def test_an_overlap_with_what_an_annotation_names_alone_is_a_warning() -> None:
    """The handler may only put items of it; none may ever be read."""
    first, written = entity("{a}#X#{b}"), entity("{a}#Y#{b}")

    def listen(change: Inserted[first]) -> Put[written]:  # type: ignore[valid-type]
        raise AssertionError

    app = App("shop", table="t")
    app.on(listen)
    ((severity, text),) = found(app)
    assert severity == "warning"
    assert "nothing tells" not in text


def test_views_of_one_item_in_annotations_are_no_overlap() -> None:
    first, view = entity("X#{a}"), entity("X#{b}")
    app = App("shop", table="t")

    @app.on(cycle="bounded")
    def listen(change: Inserted[first]) -> Put[view]:  # type: ignore[valid-type]
        raise AssertionError

    assert view in app.named
    assert found(app) == []

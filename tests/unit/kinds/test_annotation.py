"""The annotation of a handler's change says kinds and entity, or is refused with a hint."""

from typing import Annotated, Any, Union

import pytest

from streamkit.app import App
from streamkit.changes import Change, Expired, Inserted, Kind, Modified, Removed
from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.kinds.annotation import read_annotation
from streamkit.model.declaration import Declaration

PLACE = Declaration("handler", "deals.py", 3)


class Deal(Entity, pk="DEAL#{id}", sk="DEAL#{id}"):
    id: str


class Brand(Entity, pk="BRAND#{name}", sk="BRAND#{name}"):
    name: str


class Abstract(Entity):
    name: str


@pytest.mark.parametrize(
    ("annotation", "kinds"),
    [
        (Inserted[Deal], {Kind.INSERTED}),
        (Expired[Deal], {Kind.EXPIRED}),
        (Inserted[Deal] | Modified[Deal], {Kind.INSERTED, Kind.MODIFIED}),
        (Union[Removed[Deal], Expired[Deal]], {Kind.REMOVED, Kind.EXPIRED}),  # noqa: UP007
        (Change[Deal], set(Kind)),
        (Annotated[Modified[Deal], "x"], {Kind.MODIFIED}),
    ],
)
def test_an_annotation_says_kinds_and_entity(annotation: Any, kinds: set[Kind]) -> None:
    assert read_annotation(annotation, PLACE) == (frozenset(kinds), Deal)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Deal, r"say which change of Deal: Inserted\[Deal\]"),
        (Inserted, "Inserted of which entity"),
        (Inserted[Deal] | Modified[Brand], "one entity, not to Brand, Deal"),
        (Inserted[Deal] | None, "is not a kind of change"),
        (Deal | Brand, "say which change of Deal"),
        (int, "is not a kind of change"),
        (Inserted[int], "int is not an entity"),  # type: ignore[type-var]
        (Inserted[Abstract], "abstract base"),
    ],
)
def test_an_annotation_that_says_neither_is_refused(annotation: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refusal:
        read_annotation(annotation, PLACE)
    assert str(refusal.value).startswith("handler (deals.py:3): ")


@pytest.mark.parametrize("kind", ["on", "derive"])
@pytest.mark.parametrize("given", [Deal, "Deal", Inserted[Deal]], ids=["class", "text", "kind"])
def test_an_entity_in_place_of_the_function_is_refused_with_a_hint(kind: str, given: Any) -> None:
    decorator = getattr(App("deals", table="T"), kind)
    with pytest.raises(DeclarationError, match=rf"@app.{kind}\(...\).*whose annotation names the"):
        decorator(given)

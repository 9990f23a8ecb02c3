"""Changes are typed by their annotation, and say what differs."""

from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Union

import pytest

from streamkit.changes import (
    Change,
    Expired,
    Inserted,
    ItemKey,
    Kind,
    Modified,
    Removed,
    read_annotation,
)
from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration


class Deal(Entity, pk="DEAL#{id}", sk="DEAL#{id}"):
    id: str
    price: int = 0
    title: str = ""


class Brand(Entity, pk="BRAND#{name}", sk="BRAND#{name}"):
    name: str


class Abstract(Entity):
    name: str


KEY = ItemKey("DEAL#1", "DEAL#1")


@dataclass
class Record:
    kind: Kind
    item_key: ItemKey = KEY
    event_id: str = "e1"
    position: str = "0" * 39 + "1"
    created_at: float = 1714521600.0


OLD, NEW = Deal(id="1", price=1), Deal(id="1", price=2)


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
    assert read_annotation(annotation) == (frozenset(kinds), Deal)


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
    place = Declaration("handler", "deals.py", 3)
    with pytest.raises(DeclarationError, match=message) as refusal:
        read_annotation(annotation, place)
    assert str(refusal.value).startswith("handler (deals.py:3): ")
    with pytest.raises(DeclarationError, match=message):
        read_annotation(annotation)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.INSERTED, Inserted),
        (Kind.MODIFIED, Modified),
        (Kind.REMOVED, Removed),
        (Kind.EXPIRED, Expired),
    ],
)
def test_a_record_becomes_the_change_of_its_kind(kind: Kind, expected: type) -> None:
    change = Change.of(Record(kind), old=OLD, new=NEW, shard_id="s", handler="h")
    assert type(change) is expected
    assert change.key == KEY
    assert change.created_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert change.origin == "application"
    with pytest.raises(FrozenInstanceError):
        change.handler = "x"  # type: ignore[misc]


def test_changed_compares_fields() -> None:
    change = Change.of(Record(Kind.MODIFIED), old=OLD, new=NEW)
    assert change.changed("price")
    assert change.changed("title", "price")
    assert change.changed()
    assert not change.changed("title")
    with pytest.raises(ValueError, match="no field colour"):
        change.changed("colour")


def test_with_one_image_every_field_has_changed() -> None:
    assert Change.of(Record(Kind.INSERTED), old=None, new=NEW).changed("title")
    assert Change.of(Record(Kind.REMOVED), old=OLD, new=None).changed("title")


def test_the_idempotency_key_is_the_changes_and_the_handlers() -> None:
    change = Change.of(Record(Kind.INSERTED), old=None, new=NEW, handler="a")
    again = Change.of(Record(Kind.INSERTED), old=None, new=NEW, handler="a", shard_id="x")
    other = Change.of(Record(Kind.INSERTED, event_id="e2"), old=None, new=NEW, handler="a")
    assert change.idempotency_key == again.idempotency_key
    assert change.idempotency_key != other.idempotency_key
    assert change.idempotency_key != change.for_handler("b").idempotency_key


def test_the_digest_of_a_record_is_that_of_the_entitys_key() -> None:
    assert ItemKey("DEAL#1", "DEAL#1").digest == Deal.key(id="1").digest
    assert ItemKey("DEAL#1").digest != Deal.key(id="1").digest

"""Changes are typed by their annotation, and say what differs."""

import pickle
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import UTC, datetime

import pytest

from streamkit.changes import (
    Change,
    Expired,
    Inserted,
    ItemKey,
    Kind,
    Modified,
    Removed,
)
from streamkit.entity import Entity
from streamkit.errors import DecodeError


class Deal(Entity, pk="DEAL#{id}", sk="DEAL#{id}"):
    id: str
    price: int = 0
    title: str = ""


KEY = ItemKey("DEAL#1", "DEAL#1")


@dataclass
class Record:
    kind: Kind
    item_key: ItemKey = KEY
    event_id: str = "e1"
    position: str = "0" * 39 + "1"
    created_at: float = 1714521600.0


@dataclass
class Source:
    record: Record
    old: Deal | None
    new: Deal | None


OLD, NEW = Deal(id="1", price=1), Deal(id="1", price=2)


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
    change = Change.of(Source(Record(kind), OLD, NEW), shard_id="s", handler="h")
    assert type(change) is expected
    assert change.key == KEY
    assert change.created_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert change.origin == "application"
    with pytest.raises(FrozenInstanceError):
        change.handler = "x"  # type: ignore[misc]


def test_changed_compares_fields() -> None:
    change = Change.of(Source(Record(Kind.MODIFIED), OLD, NEW))
    assert change.changed("price")
    assert change.changed("title", "price")
    assert change.changed()
    assert not change.changed("title")
    with pytest.raises(ValueError, match="no field colour"):
        change.changed("colour")


def test_with_one_image_every_field_has_changed() -> None:
    assert Change.of(Source(Record(Kind.INSERTED), None, NEW)).changed("title")
    assert Change.of(Source(Record(Kind.REMOVED), OLD, None)).changed("title")


def test_the_idempotency_key_is_the_changes_and_the_handlers() -> None:
    change = Change.of(Source(Record(Kind.INSERTED), None, NEW), handler="a")
    again = Change.of(Source(Record(Kind.INSERTED), None, NEW), handler="a", shard_id="x")
    other = Change.of(Source(Record(Kind.INSERTED, event_id="e2"), None, NEW), handler="a")
    assert change.idempotency_key == again.idempotency_key
    assert change.idempotency_key != other.idempotency_key
    assert change.idempotency_key != replace(change, handler="b").idempotency_key


def test_the_digest_of_a_record_is_that_of_the_entitys_key() -> None:
    assert ItemKey("DEAL#1", "DEAL#1").digest == Deal.key(id="1").digest
    assert ItemKey("DEAL#1").digest != Deal.key(id="1").digest


# -- what is read when it is asked for -------------------------------------------------------------


class Unreadable:
    """A source whose new image does not fit its entity; it counts how often it was asked."""

    record = Record(Kind.MODIFIED)
    asked = 0

    @property
    def old(self) -> Deal:
        self.asked += 1
        return OLD

    @property
    def new(self) -> Deal:
        raise DecodeError("Deal: price: Field required")


def test_an_image_is_read_when_it_is_asked_for_and_once() -> None:
    source = Unreadable()
    change = Change.of(source)
    change.require_read()
    assert source.asked == 0
    assert (change.old, change.old) == (OLD, OLD)
    assert source.asked == 1


def test_an_image_that_does_not_fit_raises_where_it_is_asked_for_and_again_afterwards() -> None:
    change = Change.of(Unreadable())
    with suppress(DecodeError):
        assert change.new
    with pytest.raises(DecodeError, match="price"):
        change.require_read()


def test_a_change_that_was_made_by_hand_has_nothing_left_to_read() -> None:
    made = replace(Change.of(Source(Record(Kind.INSERTED), None, NEW)), handler="h")
    made.require_read()
    assert made.new == NEW


def test_a_change_that_is_read_late_is_equal_to_one_that_was_made_by_hand() -> None:
    source = Source(Record(Kind.INSERTED), None, NEW)
    made = replace(Change.of(source), shard_id="s")
    late = Change.of(source, shard_id="s")
    assert (late, hash(late), repr(late)) == (made, hash(made), repr(made))
    copied = pickle.loads(pickle.dumps(Change.of(source, shard_id="s")))
    assert copied == made


def test_a_change_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="'Inserted' object has no attribute 'colour'"):
        assert Change.of(Source(Record(Kind.INSERTED), None, NEW)).colour  # type: ignore[attr-defined]

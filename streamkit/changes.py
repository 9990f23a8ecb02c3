"""Changes: what happened to one item, typed by its entity.

A handler's annotation says which changes it wants: `Inserted[Deal]`, a union of kinds, or
`Change[Deal]` for all four. Changes are frozen and may be shared between handlers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS
from streamkit.model.codec import key_digest
from streamkit.model.origin import APPLICATION, Origin, WriteOrigin

E_co = TypeVar("E_co", bound=Entity, covariant=True)

KeyValue = str | bytes | int | Decimal


class Kind(StrEnum):
    """The kind of a change.

    It is text for its hash, which C computes: each change is looked up by it several times.
    """

    INSERTED = "inserted"
    MODIFIED = "modified"
    REMOVED = "removed"
    EXPIRED = "expired"


class ItemKey(NamedTuple):
    """The primary key of an item as its stream record has it."""

    pk: KeyValue
    sk: KeyValue | None = None

    @property
    def digest(self) -> str:
        """Return a short hash for logs; equal to the digest of the entity's key."""
        return key_digest(self.pk) if self.sk is None else key_digest(self.pk, self.sk)


class RecordLike(Protocol):
    """The parts of a record that a change is made from, besides its images."""

    @property
    def kind(self) -> Kind:
        """Return the kind of the change."""

    @property
    def item_key(self) -> ItemKey:
        """Return the item's key."""

    @property
    def event_id(self) -> str:
        """Return the stream's id of the record."""

    @property
    def position(self) -> str:
        """Return the padded sequence number."""

    @property
    def created_at(self) -> float:
        """Return when the change was made, in seconds since 1970 UTC."""


class ChangeSource(Protocol):
    """What a change reads when it is asked: its record, and its images as entities."""

    @property
    def record(self) -> RecordLike:
        """Return the record."""

    @property
    def old(self) -> Any:
        """Return the image before the change; raise `DecodeError` if it does not fit."""

    @property
    def new(self) -> Any:
        """Return the image after the change; raise `DecodeError` if it does not fit."""


@lru_cache(maxsize=64)
def _moment(seconds: float) -> datetime:
    """Return the datetime; cached, because the changes of a page are of the same few seconds."""
    return datetime.fromtimestamp(seconds, UTC)


_READ_LATER: Mapping[str, Callable[[ChangeSource], Any]] = {
    "old": lambda source: source.old,
    "new": lambda source: source.new,
    "event_id": lambda source: source.record.event_id,
    "sequence_number": lambda source: source.record.position,
    "created_at": lambda source: _moment(source.record.created_at),
}


class _Lazy:
    """Reads fields of a change when they are asked for: most handlers need few of them.

    An image that does not fit its entity raises where it is asked for. `_failure` keeps that error,
    because the handler's code may catch it, and the change would count as handled.
    """

    __slots__ = ("_failure", "_source")

    _failure: Exception | None
    _source: ChangeSource

    if not TYPE_CHECKING:  # type checkers would take it for any attribute at all

        def __getattr__(self, name: str) -> Any:
            """Read a field that has no value yet, and keep it."""
            read = _READ_LATER.get(name)
            if read is None:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            try:
                value = read(self._source)
            except USER_ERRORS as error:
                object.__setattr__(self, "_failure", error)
                raise
            object.__setattr__(self, name, value)
            return value


@dataclass(frozen=True, slots=True)
class Change(_Lazy, Generic[E_co]):
    """One change of one item: the common part of its four kinds.

    An image becomes an entity when it is asked for. One that does not fit raises `DecodeError`
    there, and the change is parked; a handler that does not look at it is not held up.

    `sequence_number` is padded to 40 digits, so that it sorts as text; it orders the changes of one
    item, and nothing else. `created_at` is DynamoDB's, rounded down to the second.

    `origin` says what wrote the item: the application, a handler of this app or a migration. `hops`
    is how many handlers' effects lie between this change and a write of the application. A deletion
    cannot carry an origin: it counts as the application's, even if it was a handler's `Delete`.
    """

    key: ItemKey
    event_id: str
    sequence_number: str
    shard_id: str
    created_at: datetime
    old: E_co | None
    new: E_co | None
    origin: Origin = "application"
    handler: str = ""
    hops: int = 0

    @staticmethod
    def of(
        source: ChangeSource,
        *,
        shard_id: str = "",
        handler: str = "",
        wrote: WriteOrigin = APPLICATION,
        key: ItemKey | None = None,
    ) -> "Change[Any]":
        """Return the change that a record describes, in the class of its kind.

        `key` is the record's, if it was read already.
        """
        record = source.record
        change: Change[Any] = object.__new__(CHANGE_TYPES[record.kind])
        _give_source(change, source)
        _give_failure(change, None)
        _give_key(change, key or record.item_key)
        _give_shard_id(change, shard_id)
        _give_origin(change, wrote.writer)
        _give_handler(change, handler)
        _give_hops(change, wrote.hops)
        return change

    @property
    def idempotency_key(self) -> str:
        """Return a key that is the same for every delivery of this change to this handler only."""
        return blake2b(f"{self.handler}\0{self.event_id}".encode(), digest_size=16).hexdigest()

    def require_read(self) -> None:
        """Raise the error of an image that was asked for and does not fit, if code has caught it.

        Raises:
            DecodeError: an image does not fit the entity.
        """
        failure = getattr(self, "_failure", None)  # a change that was made by hand has none
        if failure is not None:
            raise failure

    def changed(self, *fields: str) -> bool:
        """Return whether any of the fields (or any at all, without arguments) differs.

        If there is only one image, all fields differ.

        Raises:
            ValueError: the entity has no such field.
        """
        old, new = self.old, self.new
        present: Entity | None = old if new is None else new
        known = () if present is None else tuple(type(present).model_fields)
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ValueError(f"no field {', '.join(unknown)} to have changed")
        if old is None or new is None:
            return True
        return any(getattr(old, name) != getattr(new, name) for name in fields or known)


# A change is frozen. Its slots' own setters take half the time of `object.__setattr__`.
_give_source, _give_failure = vars(_Lazy)["_source"].__set__, vars(_Lazy)["_failure"].__set__
_give_key, _give_shard_id = vars(Change)["key"].__set__, vars(Change)["shard_id"].__set__
_give_origin, _give_handler = vars(Change)["origin"].__set__, vars(Change)["handler"].__set__
_give_hops = vars(Change)["hops"].__set__


@dataclass(frozen=True, slots=True)
class Inserted(Change[E_co]):
    """An item was created."""

    old: None
    new: E_co


@dataclass(frozen=True, slots=True)
class Modified(Change[E_co]):
    """An item was changed."""

    old: E_co
    new: E_co


@dataclass(frozen=True, slots=True)
class Removed(Change[E_co]):
    """An item was deleted by a request."""

    old: E_co
    new: None


@dataclass(frozen=True, slots=True)
class Expired(Change[E_co]):
    """An item was deleted because its time to live was over."""

    old: E_co
    new: None


CHANGE_TYPES: Mapping[Kind, type[Change[Any]]] = {
    Kind.INSERTED: Inserted,
    Kind.MODIFIED: Modified,
    Kind.REMOVED: Removed,
    Kind.EXPIRED: Expired,
}

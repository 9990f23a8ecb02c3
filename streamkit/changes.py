"""Changes: what happened to one item, typed by its entity.

A handler's annotation says which changes it wants: `Inserted[Deal]`, a union of kinds, or
`Change[Deal]` for all four. Changes are frozen and may be shared between handlers.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError
from streamkit.model.codec import key_digest
from streamkit.model.declaration import Declaration
from streamkit.model.origin import APPLICATION, Origin, WriteOrigin

E_co = TypeVar("E_co", bound=Entity, covariant=True)

KeyValue = str | bytes | int | Decimal


class Kind(Enum):
    """The kind of a change."""

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
        """Return the seconds since 1970."""


@lru_cache(maxsize=64)
def _moment(seconds: float) -> datetime:
    """Return the datetime; cached, because the changes of a page are of the same few seconds."""
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class Change(Generic[E_co]):
    """One change of one item: the common part of its four kinds.

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
        record: RecordLike,
        *,
        old: Entity | None,
        new: Entity | None,
        shard_id: str = "",
        handler: str = "",
        wrote: WriteOrigin = APPLICATION,
        key: ItemKey | None = None,
    ) -> "Change[Any]":
        """Return the change that a record describes, in the class of its kind.

        `key` is the record's, if it was read already.
        """
        return CHANGE_TYPES[record.kind](
            key=key or record.item_key,
            event_id=record.event_id,
            sequence_number=record.position,
            shard_id=shard_id,
            created_at=_moment(record.created_at),
            old=old,
            new=new,
            origin=wrote.writer,
            handler=handler,
            hops=wrote.hops,
        )

    @property
    def idempotency_key(self) -> str:
        """Return a key that is the same for every delivery of this change to this handler only."""
        return blake2b(f"{self.handler}\0{self.event_id}".encode(), digest_size=16).hexdigest()

    def for_handler(self, name: str) -> Self:
        """Return the same change with the idempotency key of another handler."""
        return replace(self, handler=name)

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

_KINDS: Mapping[object, frozenset[Kind]] = {
    Change: frozenset(Kind),
    **{change: frozenset({kind}) for kind, change in CHANGE_TYPES.items()},
}


def read_annotation(
    annotation: Any, declaration: Declaration | None = None
) -> tuple[frozenset[Kind], type[Entity]]:
    """Return the kinds and the entity that the annotation of a handler's change asks for.

    Raises:
        DeclarationError: the annotation does not say which kinds of change of which entity.
    """
    try:
        return _one_entity(*_wanted(annotation))
    except DeclarationError as error:
        if declaration is None:
            raise
        raise DeclarationError(f"{declaration}: {error}") from None


def _one_entity(
    kinds: frozenset[Kind], entities: set[type[Entity]]
) -> tuple[frozenset[Kind], type[Entity]]:
    if len(entities) > 1:
        names = ", ".join(sorted(entity.__name__ for entity in entities))
        raise DeclarationError(f"a handler listens to one entity, not to {names}")
    (entity,) = entities
    spec_of(entity)
    return kinds, entity


def _wanted(annotation: Any) -> tuple[frozenset[Kind], set[type[Entity]]]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _wanted(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        members = [_wanted(member) for member in get_args(annotation)]
        kinds = frozenset[Kind]().union(*(kinds for kinds, _ in members))
        return kinds, set[type[Entity]]().union(*(entities for _, entities in members))
    kinds_of = _KINDS.get(origin)
    if kinds_of is not None:
        (entity,) = get_args(annotation)
        if isinstance(entity, type) and issubclass(entity, Entity):
            return kinds_of, {entity}
        text = f"{getattr(entity, '__name__', entity)} is not an entity"
    elif annotation in _KINDS:
        text = f"{annotation.__name__} of which entity? Say {annotation.__name__}[Deal]"
    elif isinstance(annotation, type) and issubclass(annotation, Entity):
        name = annotation.__name__
        text = f"say which change of {name}: Inserted[{name}], Modified[{name}], Change[{name}]"
    else:
        text = f"{annotation!r} is not a kind of change; say Inserted[Deal], or a union of kinds"
    raise DeclarationError(text)

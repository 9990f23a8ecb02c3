"""Writes: which entities a handler may write, by its signature, and a check of it. Pure.

In: the annotation of a handler's result, or its declaration's `writes=`. Out: the entities, and
which kinds of change each effect can lead to; None if the signature does not say. A handler that
returns an effect on another entity of its table fails, and the error names both.
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from streamkit.changes import Kind
from streamkit.core.handler import Handler, Sends
from streamkit.effects import (
    Add,
    AddToSet,
    Check,
    Completed,
    Delete,
    Effect,
    Put,
    RemoveFromSet,
    Send,
    Set,
)
from streamkit.entity import Entity, Key, spec_of
from streamkit.errors import DeclarationError, UndeclaredWrite
from streamkit.model.declaration import Declaration

ANY_KIND = frozenset({Kind.INSERTED, Kind.MODIFIED, Kind.REMOVED})
"""The kinds of change that a write can lead to at once; an expiry comes by itself, later."""

_UPSERT = frozenset({Kind.INSERTED, Kind.MODIFIED})
_CAUSES: Mapping[object, frozenset[Kind]] = {
    Put: _UPSERT,
    Set: _UPSERT,
    Add: _UPSERT,
    AddToSet: _UPSERT,
    RemoveFromSet: _UPSERT,
    Delete: frozenset({Kind.REMOVED}),
}
_WRITE_NOTHING = (Check, Send, Completed)


class DeclaredWrites(msgspec.Struct, frozen=True):
    """What a signature says: entities with the kinds of change that its effects can lead to.

    `entities` is None if it does not say; `effects` is false only if it says that there are none,
    and `sends` only if it says that none is a `Send`; it is `perhaps` if it does not say.
    """

    entities: Mapping[type[Entity], frozenset[Kind]] | None = None
    effects: bool = True
    sends: Sends = "perhaps"


@dataclass(slots=True)
class _Reading:
    """An annotation while it is read; `vague` says that a part of it names no entity."""

    found: dict[type[Entity], frozenset[Kind]] = field(default_factory=dict)
    vague: bool = False
    effects: bool = False
    sends: bool = False

    def read(self, annotation: Any) -> None:
        annotation = getattr(annotation, "__value__", annotation)  # `type X = ...`
        origin, arguments = get_origin(annotation), get_args(annotation)
        if annotation in (None, types.NoneType, Ellipsis):
            return
        if origin is Annotated:
            self.read(arguments[0])
        elif origin in _CAUSES:
            self.effects = True
            self._entities(arguments[0], _CAUSES[origin])
        elif annotation in _WRITE_NOTHING or origin in _WRITE_NOTHING:
            self.effects = True
            self.sends = self.sends or annotation is Send
        elif origin in (Union, types.UnionType) or _is_collection(origin):
            for argument in arguments:
                self.read(argument)
        elif _is_no_effect(origin or annotation):
            name = getattr(annotation, "__name__", annotation)
            raise DeclarationError(f"a handler returns effects, as in -> Put[Order], not {name}")
        else:
            self.effects = self.vague = True

    def _entities(self, entity: Any, kinds: frozenset[Kind]) -> None:
        if get_origin(entity) in (Union, types.UnionType):
            for member in get_args(entity):
                self._entities(member, kinds)
        elif isinstance(entity, type) and issubclass(entity, Entity):
            self.found[entity] = self.found.get(entity, frozenset()) | kinds
        else:
            self.vague = True


def _is_no_effect(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(
        kind, Entity | Key | str | bytes | Mapping | int | float | Decimal
    )


def _is_collection(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Iterable)


def read_writes(annotation: Any) -> DeclaredWrites:
    """Read the annotation of a handler's result.

    Raises:
        DeclarationError: it names something that is not an effect, such as an entity.
    """
    reading = _Reading()
    reading.read(annotation)
    entities = None if reading.vague else reading.found
    perhaps: Sends = "perhaps" if reading.vague else False
    return DeclaredWrites(entities, reading.effects, reading.sends or perhaps)


def named_entities(annotation: Any) -> Iterator[type[Entity]]:
    """Yield the entities that an annotation names, in unions, effects and collections too."""
    annotation = getattr(annotation, "__value__", annotation)  # `type X = ...`
    if isinstance(annotation, type) and issubclass(annotation, Entity) and annotation.__entity__:
        yield annotation
    for argument in get_args(annotation):
        yield from named_entities(argument)


def declared_writes(
    writes: Iterable[type[Entity]], read: DeclaredWrites, declared: Declaration
) -> DeclaredWrites:
    """Return what `writes=` says about entities; the annotation still says what happens to them.

    Raises:
        DeclarationError: something in it is not an entity.
    """
    for entity in writes:
        if not (isinstance(entity, type) and issubclass(entity, Entity)):
            raise DeclarationError(f"{declared}: writes={entity!r} is not an entity")
        spec_of(entity)
    known = read.entities or {}
    return DeclaredWrites({entity: known.get(entity, ANY_KIND) for entity in writes}, read.effects)


def entity_of(effect: Effect) -> type[Entity] | None:
    """Return the entity that an effect is on; None if it is on no item of an entity."""
    if isinstance(effect, Put):
        return type(effect.entity)
    key = getattr(effect, "key", None)
    entity: type[Entity] | None = getattr(key, "entity", None)
    return entity


def check_writes(handler: Handler, effects: Iterable[Effect], table: str) -> None:
    """Check effects on the app's table against what their handler may write.

    Raises:
        UndeclaredWrite: one is on another entity.
    """
    if handler.writes is None or handler.is_aggregate:
        return
    allowed = handler.writes
    for effect in effects:
        entity = entity_of(effect)
        if entity is None or entity in allowed or isinstance(effect, Check):
            continue
        if issubclass(entity, tuple(allowed)):
            continue
        if effect.table in (None, table):
            names = ", ".join(sorted(known.__name__ for known in allowed)) or "nothing"
            raise UndeclaredWrite(
                f"{handler.declared} says that it writes {names}, and returned a"
                f" {type(effect).__name__} of {entity.__name__}; add it to its annotation, or to"
                " writes="
            )

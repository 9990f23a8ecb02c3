"""Read the annotation of a handler's change: the kinds of changes it wants, and the entity.

In: `Inserted[Deal]`, a union of kinds, or `Change[Deal]`. Out: the kinds and the entity. On
failure: `DeclarationError`, with what the annotation has to say.
"""

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from streamkit.changes import CHANGE_TYPES, Change, Kind
from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration

_KINDS: Mapping[object, frozenset[Kind]] = {
    Change: frozenset(Kind),
    **{change: frozenset({kind}) for kind, change in CHANGE_TYPES.items()},
}


def read_annotation(annotation: Any, declared: Declaration) -> tuple[frozenset[Kind], type[Entity]]:
    """Return the kinds and the entity that the annotation of a handler's change asks for.

    Raises:
        DeclarationError: the annotation does not say which kinds of change of which entity.
    """
    try:
        return _one_entity(*_wanted(annotation))
    except DeclarationError as error:
        raise DeclarationError(f"{declared}: {error}") from None


def _one_entity(
    kinds: frozenset[Kind], entities: set[type[Entity]]
) -> tuple[frozenset[Kind], type[Entity]]:
    if len(entities) > 1:
        names = ", ".join(sorted(entity.__name__ for entity in entities))
        raise DeclarationError(
            f"a handler listens to one entity, not to {names}; declare one handler for each"
        )
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
        if get_origin(entity) in (Union, types.UnionType):
            text = f"a handler listens to one entity, not to {entity}; declare one handler for each"
    elif annotation in _KINDS:
        text = f"{annotation.__name__} of which entity? Say {annotation.__name__}[Deal]"
    elif isinstance(annotation, type) and issubclass(annotation, Entity):
        name = annotation.__name__
        text = f"say which change of {name}: Inserted[{name}], Modified[{name}], Change[{name}]"
    else:
        text = f"{annotation!r} is not a kind of change; say Inserted[Deal], or a union of kinds"
    raise DeclarationError(text)

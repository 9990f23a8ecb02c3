"""What an entity's class statement declares, read and checked when the class is made.

Everything here runs once for a class and raises `DeclarationError`s that name it and its line, so
that a wrong template, alias or keyword is found before the first change.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel

from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration
from streamkit.model.key_fields import KeyFields
from streamkit.model.key_texts import DATES, MOMENTS
from streamkit.model.keys import Index
from streamkit.model.templates import KeyTemplate, Placeholder

_KNOWN_KEYS_MAX = 4096
_NOT_IN_KEYS = (bool, float, bytes, set, frozenset, list, dict, tuple)


@dataclass(frozen=True, slots=True)
class EntitySpec:
    """The declarations in an entity's class keywords and indexes."""

    declaration: Declaration
    pk: KeyTemplate
    sk: KeyTemplate | None
    type: str
    indexes: Mapping[str, Index]
    key_names: tuple[str, ...] = field(init=False)
    key_fields: frozenset[str] = field(init=False)
    known_keys: dict[Any, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Keys by the values that they were lately built from."""

    def __post_init__(self) -> None:
        """Collect the fields that the key is built from; every new key is checked with them."""
        names = dict.fromkeys(self.pk.fields + (self.sk.fields if self.sk else ()))
        object.__setattr__(self, "key_names", tuple(names))
        object.__setattr__(self, "key_fields", frozenset(names))

    def remember(self, values: tuple[Any, ...], key: object) -> None:
        """Keep a key that was built from these values, in bounded memory."""
        if len(self.known_keys) >= _KNOWN_KEYS_MAX:
            self.known_keys.clear()
        self.known_keys[values] = key

    def build(self, values: dict[str, Any] | object) -> tuple[str, str | None]:
        """Return the texts of the key of these field values (a mapping, or an object with them).

        Raises:
            ValueError: a field is missing, empty, or would make the key ambiguous.
        """
        pk = self.pk.build(values)
        if self.sk is None:
            return pk, None
        # Often both are the same text: an item is alone in its partition.
        return pk, pk if self.sk.text == self.pk.text else self.sk.build(values)


def read_spec(
    entity: type[BaseModel],
    inherited: EntitySpec | None,
    declaration: Declaration,
    *,
    pk: str | None,
    sk: str | None,
    type_name: str | None,
) -> EntitySpec | None:
    """Return what a class declares or inherits by keywords and indexes; `None` if it is abstract.

    Raises:
        DeclarationError: keywords do not go together, or a template cannot be read.
    """
    for word, text in (("pk", pk), ("sk", sk), ("type", type_name)):
        if not isinstance(text, str | None):
            raise DeclarationError(f"{declaration}: {word}={text!r}: it is a text")
    indexes = {
        name: value
        for base in reversed(entity.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, Index)
    }
    if pk is not None:
        return EntitySpec(
            declaration,
            KeyTemplate.parse(pk, declaration),
            None if sk is None else KeyTemplate.parse(sk, declaration),
            type_name or entity.__name__,
            indexes,
        )
    if sk is not None or (inherited is None and type_name is not None):
        raise DeclarationError(f"{declaration}: an entity with sk or type needs pk")
    if inherited is None:
        return None
    own_type = type_name or inherited.type
    return EntitySpec(declaration, inherited.pk, inherited.sk, own_type, indexes)


def check_fields(
    entity: type[BaseModel], declaration: Declaration, spec: EntitySpec | None
) -> None:
    """Check that templates and aliases fit the model's fields.

    Raises:
        DeclarationError: a template uses a field that does not exist or cannot be in a key, or a
            field is written to an attribute that it is not read from.
    """
    _check_aliases(entity, declaration)
    if spec is None:
        return
    keys: list[tuple[Declaration, KeyTemplate | KeyFields | None]]
    keys = [(spec.declaration, spec.pk), (spec.declaration, spec.sk)]
    for index in spec.indexes.values():
        keys += [(index.declaration, index.pk), (index.declaration, index.sk)]
    for place, key in keys:
        if key is None:
            continue
        parts: tuple[Placeholder | str, ...]
        parts = key.fields if isinstance(key, KeyFields) else key.placeholders
        for part in parts:
            problem = _problem(entity, part)
            if problem:
                named = f"{spec.declaration}"
                if place != spec.declaration:
                    named += f", {place}"
                of = "key" if isinstance(part, str) else f"key template {key.text!r}"
                raise DeclarationError(f"{named}: {of}: {problem}")


def _problem(entity: type[BaseModel], part: Placeholder | str) -> str | None:
    name = part if isinstance(part, str) else part.name
    field = entity.model_fields.get(name)
    if field is None:
        return f"{entity.__name__} has no field {name!r}"
    if name == "index":
        return "a field in a key cannot be called 'index'; an alias keeps the attribute's name"
    kinds = [kind for kind in _members(field.annotation) if kind is not types.NoneType]
    kind = get_origin(kinds[0]) or kinds[0]
    if len(kinds) != 1 or not isinstance(kind, type):
        return None
    if not isinstance(part, str):
        return _kind_problem(part, kind)
    # Bytes are a key as they are, though no part of a text.
    refused = issubclass(kind, _NOT_IN_KEYS) and not issubclass(kind, bytes)
    return f"a {kind.__name__} ({name}) cannot be part of a key" if refused else None


def _kind_problem(placeholder: Placeholder, kind: type) -> str | None:
    if issubclass(kind, _NOT_IN_KEYS):
        return f"a {kind.__name__} ({placeholder.name}) cannot be part of a key"
    if placeholder.is_temporal and not issubclass(kind, DATES + MOMENTS):
        return f"{placeholder.name} is not a date, but its format {placeholder.spec!r} is one"
    if placeholder.is_numeric and not issubclass(kind, int | Decimal):
        return f"{placeholder.name} is not a number, but its format {placeholder.spec!r} is one"
    return None


def _check_aliases(entity: type[BaseModel], declaration: Declaration) -> None:
    for name, info in entity.model_fields.items():
        written = info.serialization_alias or name
        read = info.validation_alias
        choices = list(read.choices) if isinstance(read, AliasChoices) else [read]
        if written != name and written not in choices:
            raise DeclarationError(
                f"{declaration}: {name} is written as {written!r}, but not read from it"
            )


def let_absent_be_empty(entity: type[BaseModel]) -> None:
    """Give required fields that can be `None`, or an empty set, that value as their default.

    Neither is stored at the top level of an item, so a field without the default could be written
    but not read again.
    """
    changed = False
    for info in entity.model_fields.values():
        if not info.is_required():
            continue
        members = _members(info.annotation)
        if types.NoneType in members or Any in members:
            info.default = None
        elif members and get_origin(members[0]) in (set, frozenset):
            info.default_factory = get_origin(members[0])
        else:
            continue
        changed = True
    if changed:
        entity.model_rebuild(force=True)


def _members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)

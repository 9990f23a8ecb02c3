"""The fast path from an image's bytes to plain values: one parse, no intermediate dictionaries.

The plain path makes a dictionary for every `{"S": "…"}`, and walks them all again in Python to get
the values out. Here each entity gets its own msgspec type: one struct for the image, with the
attributes that the model looks at as members, and in each a struct of the one attribute type that
the field's annotation suggests:

    brand: str            image.a0.S = "APPLE"
    price: Decimal        image.a1.N = "12.5"       then a number
    note: str | None      image.a2.S = None         from {"NULL": true}
    anything: Any         image.a3 = {"L": […]}     then `codec.decode`

msgspec skips all other attributes unread. A generated function (as dataclasses generate `__init__`)
puts the values into one dictionary:

    {"brand": image.a0.S, "price": number(image.a1.N), …}

The entity's *own* validator takes this dictionary, so that validators, aliases and defaults need no
care here. The values are exactly those of the plain path, only without the attributes that nothing
looks at.

Annotations are hints. An attribute of another type than expected makes msgspec raise, and the
caller takes the plain path for that image; so a wrong hint costs time, never correctness. Entities
whose validation sees the whole item (extra attributes, validators before the model) have no fast
path.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import AliasChoices, AliasPath
from pydantic.fields import FieldInfo

from streamkit.entity import Entity
from streamkit.model.codec import decode, decode_number
from streamkit.model.fields import StoredAs
from streamkit.model.schema import TableSchema
from streamkit.stream.decode.keyed import KeyedFields

ValuesReader = Callable[[bytes | Raw], tuple[dict[str, Any], Any, Any]]
"""Reads an image's plain values by attribute name, and the texts of its key, None where there is
none; raises `ValueError` to ask for the plain path."""


class _S(Struct, frozen=True, gc=False):
    S: str


class _N(Struct, frozen=True, gc=False):
    N: str


@dataclass(frozen=True, slots=True)
class _Form:
    """How an attribute is parsed: its msgspec type, the member to take, and the expression for it.

    `expression` is Python, with `%s` for the member's value. `is_field` is false for a key that is
    only read along.
    """

    type: Any
    member: str
    expression: str
    may_be_absent: bool = False
    is_field: bool = True


_OPEN = _Form(dict[str, Any], "", "decode(%s)", may_be_absent=True)
"""Any attribute value, decoded as on the plain path."""

# For an attribute stored as `S`, as a list of `S`, and so on: its content, and the expression.
_CONTENTS: Mapping[str, tuple[Any, str]] = {
    "S": (str, "%s"),
    "N": (str, "number(%s)"),
    "N:int": (str, "int(%s)"),
    "BOOL": (bool, "%s"),
    "B": (bytes, "%s"),
    "SS": (set[str], "%s"),
    "NS": (list[str], "{number(text) for text in %s}"),
    "BS": (set[bytes], "%s"),
    "L:S": (list[_S], "[member.S for member in %s]"),
    "L:N": (list[_N], "[number(member.N) for member in %s]"),
    "M:S": (dict[str, _S], "{key: value.S for key, value in %s.items()}"),
    "M:N": (dict[str, _N], "{key: number(value.N) for key, value in %s.items()}"),
}

# In this order: a bool is an int.
_SCALARS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool,), "BOOL"),
    ((str, date, time, timedelta, UUID), "S"),
    ((int,), "N:int"),
    ((float, Decimal), "N"),
    ((bytes,), "B"),
)


def values_reader(entity: type[Entity], fields: Iterable[str], schema: TableSchema) -> ValuesReader:
    """Return a function that reads the attributes of these fields.

    The caller has checked that nothing else matters: `CompiledModel.needs_all_attributes`.
    """
    forms = _forms(entity, fields, KeyedFields(entity, schema))
    keys = _keys(forms, schema)
    namespace: dict[str, Any] = {
        "parse": msgspec.json.Decoder(_image_type(forms)).decode,
        "number": decode_number,
        "decode": decode,
        "UNSET": UNSET,
    }
    code = compile(_source(forms, keys), f"<image of {entity.__name__}>", "exec")
    exec(code, namespace)  # noqa: S102 - of our own making; names are quoted
    read: ValuesReader = namespace["read"]
    return read


def _keys(forms: dict[str, _Form], schema: TableSchema) -> tuple[str, str]:
    """Add an image's key to the forms; return the expressions of its texts.

    A field that is read from a key attribute is parsed like the key.
    """
    expressions = []
    for name, kind in ((schema.pk, schema.pk_type), (schema.sk, schema.sk_type)):
        if name is None or kind is None:
            expressions.append("None")
            continue
        content, expression = _CONTENTS[kind]
        attribute = _attribute_type(kind, content, nullable=False)
        is_field = name in forms
        forms[name] = _Form(attribute, kind, expression, may_be_absent=True, is_field=is_field)
        taken = f"image.a{list(forms).index(name)}.{kind}"
        decoded = f"{taken}.decode()" if kind == "B" else taken
        expressions.append(f"None if {taken} is UNSET else {decoded}")
    return expressions[0], expressions[1]


def _source(forms: Mapping[str, _Form], keys: tuple[str, str]) -> str:
    always, sometimes = [], []
    for n, (attribute, form) in enumerate(forms.items()):
        if not form.is_field:
            continue
        taken = f"image.a{n}.{form.member}" if form.member else f"image.a{n}"
        if form.may_be_absent:
            made = form.expression % "value"
            sometimes += [
                f"value = {taken}",
                "if value is not UNSET:",
                f"    values[{attribute!r}] = None if value is None else {made}",
            ]
        else:
            always.append(f"{attribute!r}: {form.expression % taken}")
    lines = ["image = parse(raw)", f"values = {{{', '.join(always)}}}", *sometimes]
    body = "\n    ".join([*lines, f"return values, {keys[0]}, {keys[1]}"])
    return f"def read(raw):\n    {body}\n"


def _image_type(forms: Mapping[str, _Form]) -> type[Struct]:
    members: list[Any] = []
    for n, form in enumerate(forms.values()):
        if not form.may_be_absent:
            members.append((f"a{n}", form.type))
        elif form.member:
            members.append((f"a{n}", form.type, form.type(**{form.member: UNSET})))
        else:
            members.append((f"a{n}", form.type | UnsetType, UNSET))
    renamed = {f"a{n}": attribute for n, attribute in enumerate(forms)}
    return msgspec.defstruct("Image", members, rename=renamed, kw_only=True, gc=False)


def _forms(entity: type[Entity], fields: Iterable[str], keyed: KeyedFields) -> dict[str, _Form]:
    """Return the form of every attribute of the fields; if two fields share one, the last one's."""
    forms: dict[str, _Form] = {}
    for name in fields:
        field = entity.model_fields[name]
        attributes = [a for a in _attributes(name, field) if a not in keyed.in_key]
        form = _form(field)
        if len(attributes) > 1 or not field.is_required() or name in keyed.names:
            form = replace(form, may_be_absent=True)
        for attribute in attributes:
            forms[attribute] = form
    return forms


def _attributes(name: str, field: FieldInfo) -> list[str]:
    """Return the attributes that a field may be read from."""
    alias = field.validation_alias
    if isinstance(alias, str) and field.is_required():
        # If the value is under the field's name instead, the plain path will find it.
        return [alias]
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    firsts = [choice.path[0] if isinstance(choice, AliasPath) else choice for choice in choices]
    return list(dict.fromkeys([*(first for first in firsts if isinstance(first, str)), name]))


def _form(field: FieldInfo) -> _Form:
    if isinstance(field.validation_alias, AliasPath | AliasChoices):
        return _OPEN
    annotation, nullable = _without_none(field.annotation)
    kind = _stored_as(field.metadata) or _kind(annotation)
    if kind is None or kind not in _CONTENTS:
        return _OPEN
    content, expression = _CONTENTS[kind]
    member = kind.partition(":")[0]
    attribute = _attribute_type(member, content, nullable=nullable)
    return _Form(attribute, member, expression, may_be_absent=nullable)


def stored_kind(field: FieldInfo) -> str | None:
    """Return the type of the attribute that stores a field, if its annotation says it."""
    kind = _stored_as(field.metadata) or _kind(_without_none(field.annotation)[0])
    return kind and kind.partition(":")[0]


def _attribute_type(member: str, content: Any, *, nullable: bool) -> type[Struct]:
    members: list[Any] = [(member, content)]
    if nullable:
        members = [(member, content | None, None), ("NULL", bool, False)]
    return msgspec.defstruct(
        # An attribute of another type must not pass for an absent member.
        "Attribute",
        members,
        frozen=True,
        gc=False,
        forbid_unknown_fields=True,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not types.NoneType]
    if len(members) == 1 and len(get_args(annotation)) == 2:
        return members[0], True
    return None, False


def _kind(annotation: Any) -> str | None:
    """Return the attribute type that stores values of this Python type, if it is a simple one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _stored_as(arguments[1:]) or _kind(arguments[0])
    if origin is Literal:
        return _kind_of_values(arguments)
    if origin in (set, frozenset):
        return f"{_member_kind(arguments[0])}S"
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return f"L:{_member_kind(arguments[0])}"
    if origin is dict:
        return f"M:{_member_kind(arguments[1])}" if arguments[0] is str else None
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Enum):
        return _kind_of_values([member.value for member in annotation])
    return next((kind for classes, kind in _SCALARS if issubclass(annotation, classes)), None)


def _stored_as(metadata: Iterable[Any]) -> str | None:
    return next((part.kind for part in metadata if isinstance(part, StoredAs)), None)


def _member_kind(annotation: Any) -> str:
    return (_kind(annotation) or "").partition(":")[0]


def _kind_of_values(values: Iterable[Any]) -> str | None:
    kinds = {_kind(type(value)) for value in values if not isinstance(value, Enum)}
    return kinds.pop() if len(kinds) == 1 else None

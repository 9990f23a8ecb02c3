"""An entity's fields as pydantic compiled them, each usable without the whole model.

Keys, partial updates and partial decodes validate some fields of an entity, by the fields' own
types and validators. This module takes a model's core schema apart once, and is the only place that
knows how pydantic nests it.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Self, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator, core_schema

Schema = dict[str, Any]
"""A pydantic core schema; its shape is pydantic's own."""


class StoredAs(msgspec.Struct, frozen=True):
    """In an annotation: the type (`S`, `N`, …) of the attribute value that stores the field.

    It only affects decoding speed, where the Python type would suggest another attribute type.
    """

    kind: str


class CompiledModel(msgspec.Struct, frozen=True):
    """The parts of a model's core schema.

    `outer` and `inner` are the validators of the whole model: those around it, which see and return
    instances, and those between it and its fields, which see its input. `definitions` are schemas
    that other schemas refer to by name.
    """

    outer: tuple[Schema, ...]
    model: Schema
    inner: tuple[Schema, ...]
    fields: Mapping[str, Schema]
    definitions: tuple[Schema, ...]

    @classmethod
    def of(cls, model: type[BaseModel]) -> Self | None:
        """Return the parts of `model`, or `None` if its schema has an unknown shape."""
        if not model.__pydantic_complete__:
            model.model_rebuild()
        schema: Any = model.__pydantic_core_schema__
        definitions: tuple[Schema, ...] = ()
        passed: dict[str, list[Schema]] = {"model": [], "model-fields": []}
        found: dict[str, Schema] = {}
        for target, before in passed.items():
            while schema["type"] != target:
                if schema["type"] == "definitions":
                    definitions = tuple(schema["definitions"])
                elif schema["type"] != "definition-ref":
                    before.append(schema)
                schema = _inside(schema, definitions)
                if schema is None:
                    return None
            found[target] = schema
            schema = schema.get("schema")
        return cls(
            outer=tuple(passed["model"]),
            model=found["model"],
            inner=tuple(passed["model-fields"]),
            fields=found["model-fields"]["fields"],
            definitions=definitions,
        )

    @property
    def has_whole_validators(self) -> bool:
        """Return whether a validator, initialiser or hook sees more than one field."""
        return bool(self.outer or self.inner or self.model.get("post_init") or self.has_init)

    @property
    def has_init(self) -> bool:
        """Return whether the class has its own `__init__`."""
        return bool(self.model.get("custom_init"))

    @property
    def needs_all_attributes(self) -> bool:
        """Return whether validation looks at, or keeps, attributes that are not fields."""
        extra = self.model.get("config", {}).get("extra_fields_behavior", "ignore")
        sees_input = any(schema["type"] != "function-after" for schema in self.outer)
        return bool(sees_input or self.inner or self.has_init or extra != "ignore")

    def is_independent(self, name: str) -> bool:
        """Return whether a field's validation does not depend on other fields."""
        return not _looks_around(self.fields[name]["schema"], self.definitions)

    def validator(self, schema: Schema) -> SchemaValidator:
        """Return a validator of a part of the model, with the model's own settings."""
        whole: Any = schema
        if self.definitions:
            whole = core_schema.definitions_schema(whole, list(self.definitions))
        return SchemaValidator(whole, self.model.get("config"))


def validate_fields(
    entity: type[BaseModel], values: Mapping[str, Any], *, where: str
) -> dict[str, Any]:
    """Validate some fields by their own types; return their values by field name.

    Raises:
        ValueError: values do not fit; names the fields, never the values.
    """
    read = _partial_reader(entity, tuple(values))
    try:
        return read(dict(values))
    except ValidationError as error:
        raise ValueError(f"{where}: {problems(error)}") from None


def dump_fields(entity: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some fields as their serializers store them, by field name."""
    return _instance_of(entity, dict(values)).model_dump(include=set(values), by_alias=False)


_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)


def _instance_of(entity: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return an instance that has these fields alone, and keeps the dictionary.

    `model_construct` would add the other fields' defaults, and takes far longer.
    """
    partial = object.__new__(entity)
    _set_values(partial, values)
    _set_fields(partial, values.keys())
    _set_extra(partial, None)
    _set_private(partial, None)
    return partial


def problems(error: ValidationError) -> str:
    """Return which fields do not fit, as `2 fields do not fit: price (decimal_parsing), …`.

    The text has no values, and no deeper paths, because the keys of a map are data.
    """
    found = dict.fromkeys(
        f"{line['loc'][0] if line['loc'] else 'the whole'} ({line['type']})"
        for line in error.errors(include_url=False, include_input=False, include_context=False)
    )
    noun = "field does" if len(found) == 1 else "fields do"
    return f"{len(found)} {noun} not fit: {', '.join(found)}"


def partial_model(
    compiled: CompiledModel, entity: type[BaseModel], names: Iterable[str]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function from plain values by attribute name to an instance of some fields alone.

    An absent field gets its default, if it has one; otherwise validation fails. Nothing that sees
    the whole model takes part.
    """
    read = _reader(compiled, {name: compiled.fields[name] for name in names})
    return lambda values: _instance_of(entity, read(values))


@lru_cache(maxsize=1024)
def _partial_reader(
    entity: type[BaseModel], names: tuple[str, ...]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    compiled = CompiledModel.of(entity)
    if compiled is None:
        raise ValueError(f"{entity.__name__} is not an ordinary model with fields")
    fields = {
        name: {"type": "model-field", "schema": compiled.fields[name]["schema"]} for name in names
    }
    return _reader(compiled, fields)


def _reader(
    compiled: CompiledModel, fields: Mapping[str, Schema]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    # Not as a typed dict, which looks names and aliases up differently.
    validate = compiled.validator({"type": "model-fields", "fields": dict(fields)}).validate_python

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = validate(values)[0]
        return found

    return read


def _inside(schema: Schema, definitions: tuple[Schema, ...]) -> Schema | None:
    if schema["type"] == "definition-ref":
        return _definition(schema["schema_ref"], definitions)
    inner: Schema | None = schema.get("schema")
    return inner


def _looks_around(schema: Any, definitions: tuple[Schema, ...]) -> bool:
    """Return whether a schema contains a function that receives the other fields' values.

    A type with a name is a definition that its fields refer to.
    """
    if isinstance(schema, Mapping):
        if schema.get("type") == "with-info" or schema.get("default_factory_takes_data"):
            return True
        # The validators of a nested model see that model's fields, not these.
        if schema.get("type") in ("model", "dataclass", "typed-dict"):
            return False
        if schema.get("type") == "definition-ref":
            # Without those that were followed already, because a type may contain itself.
            ref = schema["schema_ref"]
            others = tuple(one for one in definitions if one.get("ref") != ref)
            return _looks_around(_definition(ref, definitions), others)
        return any(_looks_around(part, definitions) for part in schema.values())
    if isinstance(schema, list | tuple):
        return any(_looks_around(part, definitions) for part in schema)
    return False


def _definition(ref: str, definitions: tuple[Schema, ...]) -> Schema | None:
    return next((schema for schema in definitions if schema.get("ref") == ref), None)


def classes_of(annotation: Any) -> Iterator[type]:
    """Yield the classes that an annotation comes down to, without None."""
    if get_origin(annotation) is Annotated:
        yield from classes_of(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from classes_of(member)
    elif isinstance(get_origin(annotation), type):  # set[str]: the members do not matter
        yield get_origin(annotation)
    elif isinstance(annotation, type) and annotation is not types.NoneType:
        yield annotation

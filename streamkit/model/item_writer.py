"""Item writers: a generated function that stores an entity whose fields are all scalars.

In general pydantic dumps the entity, each value is encoded by its type, and templates build the
keys. With scalars alone all of this is known before, so a function is generated for an entity and a
table (as `stream.decode.fast` generates those that read images):

    v0 = values.get("number")
    if type(v0) is str:
        stored["number"] = {"S": v0}
    elif v0 is not None:
        stored["number"] = encode(v0, "Receipt.number")
    pk = "RECEIPT#" + v0 if type(v0) is str and v0 else build_pk(item)
    stored["PK"] = {"S": pk}

What it stores is exactly what the general way stores. Entities with serializers, with other types,
or with a field in an attribute of the key have no such function.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streamkit.model.codec import AttributeValue, encode, encode_key, is_short
from streamkit.model.fields import CompiledModel
from streamkit.model.schema import TableSchema
from streamkit.model.spec import EntitySpec
from streamkit.model.templates import KeyTemplate

if TYPE_CHECKING:
    from streamkit.entity import Entity

ItemWriter = Callable[["Entity"], dict[str, AttributeValue]]
"""Returns an entity's whole item for a put; raises `ValueError` as the general way does."""

_SCALARS = frozenset(
    {"bool", "bytes", "date", "datetime", "decimal", "float", "int", "str", "time", "timedelta"}
    | {"uuid"}
)
"""The types of pydantic's core whose values a dump leaves as they are."""


@lru_cache(maxsize=1024)
def item_writer(entity: "type[Entity]", schema: TableSchema) -> ItemWriter | None:
    """Return the writer of an entity's items for a table; None if only the general way is right."""
    spec, kinds = entity.__entity__, _scalars(entity)
    if spec is None or kinds is None or (spec.sk is None and schema.sk is not None):
        return None
    attributes = {name: entity.model_fields[name].serialization_alias or name for name in kinds}
    if not _reserved(spec, schema).isdisjoint(attributes.values()):
        return None
    lines = ["values = item.__dict__", "stored = {}"]
    for n, (name, kind) in enumerate(kinds.items()):
        lines += _field(n, name, attributes[name], kind, entity.__name__)
    numbers = {name: n for n, (name, kind) in enumerate(kinds.items()) if kind == "str"}
    lines += _keys(spec, schema, numbers)
    lines += [f"stored |= index{n}(item, schema)" for n in range(len(spec.indexes))]
    if schema.type_attribute is not None:
        lines.append(f"stored[{schema.type_attribute!r}] = {{'S': {spec.type!r}}}")
    namespace: dict[str, Any] = {
        "encode": encode,
        "encode_key": encode_key,
        "is_short": is_short,
        "schema": schema,
        "build_pk": spec.pk.build,
        "build_sk": spec.sk and spec.sk.build,
    }
    namespace |= {f"index{n}": i.attributes for n, i in enumerate(spec.indexes.values())}
    body = "\n    ".join([*lines, "return stored"])
    code = compile(f"def write(item):\n    {body}\n", f"<item of {entity.__name__}>", "exec")
    exec(code, namespace)  # noqa: S102 - of our own making; names are quoted
    write: ItemWriter = namespace["write"]
    return write


def _reserved(spec: EntitySpec, schema: TableSchema) -> set[str | None]:
    """Return the attributes that are written beside those of the fields."""
    reserved = {*schema.key_attributes, schema.type_attribute}
    for index in spec.indexes.values():
        named = {index.pk_attribute, index.sk_attribute}
        known = schema.indexes.get(index.name)
        reserved |= named | {name for name, _ in (known.keys if known else ())}
    return reserved


def _scalars(entity: "type[Entity]") -> Mapping[str, str] | None:
    """Return the type of each field in pydantic's core; None if pydantic has to dump one."""
    compiled, decorators = CompiledModel.of(entity), entity.__pydantic_decorators__
    written = decorators.computed_fields or decorators.field_serializers
    if compiled is None or written or decorators.model_serializers:
        return None
    if compiled.model.get("config", {}).get("extra_fields_behavior", "ignore") == "allow":
        return None
    kinds: dict[str, str] = {}
    for name, field in compiled.fields.items():
        kind = _scalar(field["schema"])
        if kind is None or field.get("serialization_exclude"):
            return None
        kinds[name] = kind
    return kinds


def _scalar(schema: Mapping[str, Any]) -> str | None:
    """Return the scalar type that a field's validators and defaults are around, if there is one."""
    if "serialization" in schema:
        return None
    if schema["type"] in _SCALARS:
        return str(schema["type"])
    inner = schema.get("schema")
    around = schema["type"] in ("default", "nullable") or schema["type"].startswith("function-")
    return _scalar(inner) if around and inner is not None else None


def _field(n: int, name: str, attribute: str, kind: str, entity: str) -> list[str]:
    """Return the lines that store a field; None is not stored."""
    common = {
        "str": (f"type(v{n}) is str", f"{{'S': v{n}}}"),
        "int": (f"type(v{n}) is int and is_short(v{n})", f"{{'N': str(v{n})}}"),
    }
    test, value = common.get(kind, (f"v{n} is None", ""))
    return [
        f"v{n} = values.get({name!r})",
        f"if {test}:",
        f"    stored[{attribute!r}] = {value}" if value else "    pass",
        f"elif v{n} is not None:",
        f"    stored[{attribute!r}] = encode(v{n}, {f'{entity}.{attribute}'!r})",
    ]


def _keys(spec: EntitySpec, schema: TableSchema, texts: Mapping[str, int]) -> list[str]:
    """Return the lines that store the primary key."""
    lines = [f"pk = {_built(spec.pk, 'build_pk', texts)}"]
    if spec.sk is not None:
        same = spec.sk.text == spec.pk.text
        lines.append(f"sk = {'pk' if same else _built(spec.sk, 'build_sk', texts)}")
    for name, kind, text in ((schema.pk, schema.pk_type, "pk"), (schema.sk, schema.sk_type, "sk")):
        if name is not None:
            value = f"{{'S': {text}}}" if kind == "S" else f"encode_key({text}, {kind!r})"
            lines.append(f"stored[{name!r}] = {value}")
    return lines


def _built(template: KeyTemplate, build: str, texts: Mapping[str, int]) -> str:
    """Return the expression of a key; for a text behind a prefix, no template is needed."""
    if template.is_prefix_and_field and not template.placeholders[0].spec:
        n = texts.get(template.placeholders[0].name)
        if n is not None:
            return f"{template.prefix!r} + v{n} if type(v{n}) is str and v{n} else {build}(item)"
    return f"{build}(item)"

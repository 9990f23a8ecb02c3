"""Check the keys and indexes that an entity builds against those that its table has.

In: an entity and a table. Out: findings. A key that is a number must be built as DynamoDB returns
it, and an index must have the attributes that the entity stores for it.
"""

from collections.abc import Iterator
from decimal import Decimal

from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.finding import Finding
from streamkit.model.declaration import Declaration
from streamkit.model.key_fields import KeyFields
from streamkit.model.keys import Index
from streamkit.model.schema import KeyAttributes, TableSchema
from streamkit.model.templates import KeyTemplate
from streamkit.stream.decode.fast import stored_kind


def check_keys(entity: type[Entity], schema: TableSchema) -> Iterator[Finding]:
    """Find what is wrong with the keys of an entity, of the table and of its indexes."""
    spec = spec_of(entity)
    for index in spec.indexes.values():
        yield from _index(entity, index, schema)
    yield from _number(spec.declaration, spec.pk, (schema.pk, schema.pk_type))
    if schema.sk is not None and schema.sk_type is not None:
        yield from _number(spec.declaration, spec.sk, (schema.sk, schema.sk_type))


def _index(entity: type[Entity], index: Index, schema: TableSchema) -> Iterator[Finding]:
    """Find what is wrong with an index of an entity, in its table."""
    try:
        keys = index.key_attributes(schema)
    except DeclarationError as error:
        yield Finding("error", str(error))
        return
    for key, there in zip((index.pk, index.sk), keys, strict=True):
        if isinstance(key, KeyFields):
            yield from _key_fields(entity, index, key, there)
        else:
            yield from _number(index.declaration, key, there[0] if there else None)
    known = schema.indexes.get(index.name)
    if known is None:
        yield Finding(
            "warning",
            f"{index.declaration}: {schema.name} has no index {index.name}; items get its"
            " attributes, and nobody can query it: correct the name, or add the index to the table",
        )
    elif (known.pk, known.sk) != keys:
        wanted, has = (" and ".join(name for name, _ in one) for one in (sum(keys, ()), known.keys))
        yield Finding(
            "error",
            f"{index.declaration}: it stores {wanted}, and {index.name} of {schema.name} has the"
            f" keys {has}; items would be missing in the index: correct pk_attribute= and"
            " sk_attribute=, or leave them out",
        )
    elif not known.is_active:
        yield Finding(
            "warning",
            f"{index.declaration}: {index.name} of {schema.name} is being created; nobody can query"
            " it until its IndexStatus is ACTIVE",
        )


def _number(
    declared: Declaration, template: KeyTemplate | None, attribute: tuple[str, str] | None
) -> Iterator[Finding]:
    """Find templates that build no number, or not as DynamoDB returns it, for a key that is one."""
    if template is None or attribute is None or attribute[1] != "N":
        return
    if not template.placeholders:
        builds = _as_returned(template.text)
    else:
        (first, *more) = template.placeholders
        builds = not (more or template.literal_length or first.is_numeric)
    if not builds:
        yield Finding(
            "error",
            f"{declared}: the key {attribute[0]!r} is a number, and {template.text!r} builds"
            ' none as DynamoDB stores it; use a single field without a format, as in "{number}"',
        )


def _key_fields(
    entity: type[Entity], index: Index, key: KeyFields, there: KeyAttributes
) -> Iterator[Finding]:
    """Find fields that are not stored as the attributes of the index's key."""
    stored = attribute_names(entity)
    wanted, names = [stored[name] for name in key.fields], [name for name, _ in there]
    if wanted != names:
        yield Finding(
            "error",
            f"{index.declaration}: {index.name} has the key attributes {', '.join(names)}, and"
            f" {key.text} of {entity.__name__} are stored as {', '.join(wanted)}; name the fields"
            " in the order of the index, or give them aliases",
        )
        return
    for name, (attribute, kind) in zip(key.fields, there, strict=True):
        held = stored_kind(entity.model_fields[name])
        if held not in (None, kind):
            yield Finding(
                "error",
                f"{index.declaration}: {attribute} of {index.name} is of type {kind}, and"
                f" {entity.__name__} stores {name} as {held}; DynamoDB would refuse its items",
            )


def _as_returned(text: str) -> bool:
    """Return whether DynamoDB returns a number as this text."""
    try:
        number = Decimal(text).normalize()
    except ArithmeticError:
        return False
    return number.is_finite() and f"{number:f}" == text

"""Preflight: check an app against its table before the first change is read.

In: an app and its tables. Out: findings: errors that stop a worker, and warnings that `streamkit
check` prints. Everything that a type checker cannot see is checked here, so that it never fails at
the first change.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from streamkit.changes import Kind
from streamkit.core.cascades import cycles
from streamkit.core.completion import Completions
from streamkit.core.consumer import Consumer
from streamkit.core.overlaps import undecided
from streamkit.core.tables import AppTables
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.kinds.finding import Finding
from streamkit.kinds.injection import OWN
from streamkit.kinds.key_checks import check_keys
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE
from streamkit.stream.decode.keyed import key_reader


def findings(app: Consumer, tables: AppTables, resources: tuple[Any, ...] = ()) -> list[Finding]:
    """Return everything that is wrong with an app on its table, errors first."""
    found = [*_control(app, tables), *_entities(app, tables.table), *_ttl(app, tables.table)]
    found += [*_names(app, tables.table), *_spread(app, tables.table), *_buckets(app, tables.table)]
    found += [*_handlers(app, tables.table, resources), *_mirrors(app, tables.table)]
    found += _loops(app)
    found += _own_io(app, tables.control)
    return sorted(found, key=lambda finding: finding.severity)


def require(found: list[Finding]) -> None:
    """Raise if there are errors.

    Raises:
        ConfigurationError: there are any; the message lists them all.
    """
    errors = [finding.text for finding in found if finding.severity == "error"]
    if errors:
        raise ConfigurationError("\n".join(errors))


def _control(app: Consumer, tables: AppTables) -> Iterator[Finding]:
    try:
        tables.space(app)
    except ConfigurationError as error:
        yield Finding("error", str(error))


def _entities(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    if not (app.handlers or app.copies):
        apart = " without a start= of its own; give the app that start" if app.listeners else ""
        yield Finding("error", f"{app.declared}: no handler is registered{apart}")
    for entity in app.entities:
        spec = spec_of(entity)
        if schema.sk is not None and spec.sk is None:
            yield Finding("error", f"{spec.declaration}: {schema.name} has a sort key; declare sk=")
        yield from check_keys(entity, schema)
    try:
        app.router(schema)
    except DeclarationError as error:
        yield Finding("error", str(error))
    if schema.type_attribute is None:
        yield from _overlaps(app, schema)


def _overlaps(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    """Find keys that two entities may both claim: a warning, or an error if only chance decides.

    The entity with more literal characters gets such a key; if both have the same number, chance
    decides.
    """
    for one, other in undecided(app.known, has_sort_key=schema.sk is not None):
        lengths = [_literals(entity) for entity in (one, other)]
        by_chance = lengths[0] == lengths[1] and not {one, other} & {*app.named}
        decides = "nothing tells" if by_chance else "only the number of literal characters tells"
        yield Finding(
            "error" if by_chance else "warning",
            f"{spec_of(one).declaration} and {spec_of(other).declaration}: a key may have the shape"
            f" of both, and {decides} which of them its item is; begin their keys with different"
            " prefixes, or name the attribute that says an item's type: App(type_attribute=...)",
        )


def _literals(entity: type[Entity]) -> int:
    spec = spec_of(entity)
    return spec.pk.literal_length + (spec.sk.literal_length if spec.sk else 0)


def _names(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    """Find names that begin like streamkit's own attributes, and fields that cannot be stored."""
    own = {name for name in schema.reserved_attributes if name.startswith(CONTROL_ATTRIBUTE)}
    if own:
        yield Finding(
            "error",
            f"{schema.name}: {', '.join(sorted(own))} begins with {CONTROL_ATTRIBUTE!r}, as"
            " streamkit's own attributes do; keys and indexes need other names",
        )
    for entity in app.entities:
        spec, readable = spec_of(entity), key_reader(entity).readable
        for name, attribute in attribute_names(entity).items():
            if attribute.startswith(CONTROL_ATTRIBUTE):
                yield Finding(
                    "error",
                    f"{spec.declaration}: {name} is stored as {attribute!r}, which begins as"
                    " streamkit's own attributes do; choose another alias",
                )
            in_key = name in spec.key_fields
            info = entity.model_fields[name]
            if (
                in_key
                and name not in readable
                and info.is_required()
                and (info.exclude or attribute in schema.key_attributes)
            ):
                yield Finding(
                    "error",
                    f"{spec.declaration}: {name} stands in the key alone, which does not tell it"
                    " whole; store it as an attribute (alias=), or write all of it in the template",
                )
            elif attribute in schema.key_attributes and not in_key:
                yield Finding(
                    "warning",
                    f"{spec.declaration}: {name} is stored as {attribute!r}, which is a key of"
                    f" {schema.name}; it can be read, but an item cannot be put: give it an alias",
                )


def _spread(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    """Find groups whose key cannot have a suffix, and handlers that would see single parts."""
    kind = schema.pk_type if schema.sk is None else schema.sk_type
    for entity in app.entities:
        if entity.__parts__ is not None and kind != "S":
            yield Finding(
                "error",
                f"{spec_of(entity).declaration}: spread= needs a string at the end of the key of"
                f" {schema.name}",
            )
    for handler in app.handlers:
        if handler.entity.__parts__ is not None and not handler.sees_parts:
            yield Finding(
                "error",
                f"{handler.declared}: it listens to {handler.entity.__name__}, which is spread over"
                " parts: each change shows only one part",
            )


_NEW, _OLD = ["NEW_AND_OLD_IMAGES", "NEW_IMAGE"], ["NEW_AND_OLD_IMAGES", "OLD_IMAGE"]


def _handlers(app: Consumer, schema: TableSchema, resources: tuple[Any, ...]) -> Iterator[Finding]:
    for handler in app.handlers:
        if handler.sends is True and not (app.sinks or handler.shadow):
            yield Finding(
                "error",
                f"{handler.declared}: it returns Send, and {app.declared} has no sink; register the"
                " one that it names there, with app.sink(...)",
            )
        view = schema.view_type or "NEW_AND_OLD_IMAGES"
        new = bool(handler.kinds & {Kind.INSERTED, Kind.MODIFIED})
        old = bool(handler.kinds - {Kind.INSERTED})
        for wanted, name, views in ((new, "new", _NEW), (old, "old", _OLD)):
            if wanted and view not in views:
                yield Finding(
                    "error",
                    f"{handler.declared}: it needs the {name} image, and the stream of"
                    f" {schema.name} carries {view}; a stream cannot be changed: disable it,"
                    " then enable one with NEW_AND_OLD_IMAGES",
                )
        for parameter, wanted_type in handler.needs.items():
            if wanted_type in OWN:
                if not handler.is_async:
                    yield Finding(
                        "error",
                        f"{handler.declared}: a handler that reads the table is an async def",
                    )
            elif not any(isinstance(resource, wanted_type) for resource in resources):
                yield Finding(
                    "error",
                    f"{handler.declared}: nothing that the app's lifespan yields is a"
                    f" {wanted_type.__name__}, which {parameter!r} asks for",
                )


def _mirrors(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    """Warn of copies whose directory entries share one key, because the table has no sort key."""
    if schema.sk is not None:
        return
    from streamkit.kinds.copy_directory import CopyEntry

    for handler in app.handlers:
        writes = handler.writes or frozenset()
        if CopyEntry not in writes or handler.broadcast is None:
            continue
        for copy in writes - {CopyEntry}:
            if spec_of(copy).indexes:
                yield Finding(
                    "warning",
                    f"{handler.declared}: {schema.name} has no sort key, so that all copies of a"
                    " source share one place in the directory of copies; if copies= asks an index"
                    f" of {copy.__name__}, and a source has several copies, one that the index does"
                    " not show yet may stay as it was: keep them in a table with a sort key, or"
                    " let copies= name their keys",
                )


def _loops(app: Consumer) -> Iterator[Finding]:
    cascades = app.cascades()
    for cycle in cycles(cascades.handlers, cascades.same):
        yield Finding("error", str(cycle))


def _own_io(app: Consumer, control: TableSchema) -> Iterator[Finding]:
    for handler in app.handlers:
        own = any(wanted not in OWN for wanted in handler.needs.values())
        if handler.is_async and own and not (handler.effects or handler.delivery):
            yield Finding(
                "warning",
                f"{handler.declared}: it works on what the lifespan yields, and returns no effects:"
                " that may happen more than once for a change; if it may, say"
                ' delivery="at_least_once"',
            )
        if Completions in handler.needs.values() and control.ttl is None:
            yield Finding(
                "warning",
                f"{handler.declared}: {control.name} has no TTL attribute enabled, so that the"
                " records of completed changes stay for ever",
            )


def _ttl(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    """Find TTL attributes that are not numbers: such items never expire, without any error."""
    if schema.ttl is None:
        for handler in app.handlers:
            if handler.kinds == {Kind.EXPIRED}:
                yield Finding(
                    "warning",
                    f"{handler.declared}: it listens to expiries, and {schema.name} has no TTL"
                    " attribute enabled, so that nothing ever expires",
                )
        return
    for entity in app.entities:
        names = {attribute: name for name, attribute in attribute_names(entity).items()}
        field = names.get(schema.ttl)
        if field is not None and not _stores_number(entity, field):
            yield Finding(
                "warning",
                f"{spec_of(entity).declaration}: {field} is the TTL attribute {schema.ttl!r} but is"
                " not stored as a number, so the item never expires; use EpochSeconds",
            )


def _buckets(app: Consumer, schema: TableSchema) -> Iterator[Finding]:
    for entity in app.entities:
        until = getattr(entity, "__until__", None)  # only aggregates have one
        if until is not None and until[0] != schema.ttl:
            has = "no TTL attribute" if schema.ttl is None else f"the TTL attribute {schema.ttl!r}"
            yield Finding(
                "warning",
                f"{spec_of(entity).declaration}: Until writes {until[0]!r}, and {schema.name} has"
                f" {has}, so that old buckets stay for ever",
            )


def _stores_number(entity: type[Entity], field: str) -> bool:
    info = entity.model_fields[field]
    # `EpochSeconds | None` keeps its serialiser in the member, `EpochSeconds` in the field.
    for member in getattr(info.annotation, "__args__", (info.annotation,)):
        notes = (*info.metadata, *getattr(member, "__metadata__", ()))
        plain = getattr(member, "__origin__", member)
        if any(getattr(note, "return_type", None) is int for note in notes):
            return True
        if isinstance(plain, type) and issubclass(plain, int | float | Decimal):
            return True
    return False

"""Find where a table differs from the shape that its app declares, for `check`. Pure.

In: an app and its tables as described. Out: warnings. A worker takes names and types from the table
itself; tests and `streamkit dev` take them from the shape. Where both differ, something that passes
locally may fail on AWS.
"""

from collections.abc import Iterator

from streamkit.app import App
from streamkit.core.table_shape import IndexShape, TableShape, entities_of
from streamkit.core.tables import AppTables
from streamkit.kinds.finding import Finding
from streamkit.model.schema import IndexSchema, KeyAttributes, TableSchema


def shape_findings(app: App, tables: AppTables) -> list[Finding]:
    """Return where tables are not as `App(shape=...)` and `App(tables={...})` say."""
    found: list[Finding] = []
    for name, shape in app.shapes.items():
        entities = entities_of(app) if name == app.table else ()
        request = shape.create_table(name, entities, stream=False)
        declared = TableSchema.from_description(request, ttl=shape.ttl)
        found += [
            Finding("warning", f"{app.declared}: the shape of {name} says {text}")
            for text in _differences(shape, declared, tables.schemas[name])
        ]
    return found


def _differences(shape: TableShape, declared: TableSchema, there: TableSchema) -> Iterator[str]:
    said, is_ = key_types(declared), key_types(there)
    if said != is_:
        yield (
            f"the keys {_text(said)}, and the table has {_text(is_)}: tests and `streamkit dev` use"
            f" other keys than workers; write TableShape({_as_shape(there)})"
        )
    if declared.ttl != there.ttl:
        yield f"{_expiry(declared)}, and the table has {_expiry(there)}: {_ttl_advice(there)}"
    for name, index in shape.indexes.items():
        if name not in declared.indexes:
            yield f"the index {name}, which no entity of the app declares: correct its name there"
        elif name in there.indexes:
            yield from _index(index, declared.indexes[name], there.indexes[name])


def _index(said: IndexShape, declared: IndexSchema, there: IndexSchema) -> Iterator[str]:
    """Yield what differs of one index; that it is missing is an error of its entities."""
    named = said.pk is not None or said.sk is not None
    types = [kind for _, kind in declared.keys] != [kind for _, kind in there.keys]
    if types or (named and declared.keys != there.keys):
        yield (
            f"the keys {_text(declared.keys)} of the index {there.name}, and the table has"
            f" {_text(there.keys)}: correct IndexShape(...), or make the index again"
        )
    carried = (declared.projection, declared.included)
    if carried != (there.projection, there.included):
        yield (
            f"that the index {there.name} carries {_carries(declared)}, and it carries"
            f" {_carries(there)}: correct project= in IndexShape(...), or make the index again"
        )


def key_types(schema: TableSchema) -> KeyAttributes:
    """Return the key attributes of a table with their types."""
    pk = (schema.pk, schema.pk_type)
    return (pk,) if schema.sk is None else (pk, (schema.sk, schema.sk_type or "S"))


def _text(keys: KeyAttributes) -> str:
    return " and ".join(f"{name} ({kind})" for name, kind in keys)


def _as_shape(there: TableSchema) -> str:
    types = [
        f'{name}="{kind}"'
        for name, kind in (("pk_type", there.pk_type), ("sk_type", there.sk_type))
        if kind not in (None, "S")
    ]
    sk = "None" if there.sk is None else f'"{there.sk}"'
    return ", ".join([f'pk="{there.pk}"', f"sk={sk}", *types])


def _expiry(schema: TableSchema) -> str:
    return "no TTL attribute" if schema.ttl is None else f"the TTL attribute {schema.ttl}"


def _ttl_advice(there: TableSchema) -> str:
    if there.ttl is None:
        return "nothing expires there until `aws dynamodb update-time-to-live` enables it"
    return f'write TableShape(ttl="{there.ttl}"), so that items expire in tests as they do there'


def _carries(index: IndexSchema) -> str:
    if index.projection == "INCLUDE":
        return f"its keys and {', '.join(sorted(index.included))}"
    return "all attributes" if index.projection == "ALL" else "its keys alone"

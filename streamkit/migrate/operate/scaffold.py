"""Write the file of a new migration, which runs as it is and changes nothing.

In: an app, a name, an entity and a mode. Out: a file under the next number, or under the name
alone, with the entity's fields in its docstring. On failure: `ConfigurationError`; no file is
overwritten.
"""

import json
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from streamkit.app import App
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.migration import Mode
from streamkit.migrate.book.discovery import files_of, folder_of

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DIGITS = 4

_IN_PLACE = '''
from streamkit import Set
{imports}

@app.migration("{number}", {entity}{mode})
def {name}({field}: {kind}) -> Set[{entity}] | None:
    """The parameters are what it reads; it returns None for an item that is right."""
    return None  # Set({field}=...)
'''
_PAIRS = '''
{imports}

@app.migration("{number}", {entity}{mode})
def {name}(item: {entity}) -> {entity} | None:
    """{what}"""
    return None
'''
_MERGE = '''
{imports}


class More({entity}, {more}):
    """Put the entity of the other items here: its keys have the same fields as {entity}."""


class Merged({entity}, {merged}):
    """Put the new entity here."""


def apart(item: Merged) -> list[{entity} | More]:
    """Return the items that it was."""
    return []


@app.migration("{number}", {entity}{mode}, reverse=apart)
def {name}(one: {entity} | None, more: More | None) -> Merged | None:
    """{what}"""
    return None
'''
_AGGREGATE = """
{imports}

app.migration("{number}", {entity}{mode})
"""
_BOTH = """

    settle="item" is for items with a version or rules across fields, counters= for numbers to which
    old and new code both add.
    """
_WHAT = {
    "rekey": f"Return the entity as it is to be, at its new key; None leaves an item alone.{_BOTH}",
    "split": f"Return the item's parts as entities, and what to Set in the item at the end.{_BOTH}",
    "merge": f"Return the entity that the items there become; None leaves them alone.{_BOTH}",
    "derive": "Return the items that follow from it, as entities; None where there are none.",
}


_DRAFT = '''
{imports}

@app.migration("{number}", {entity}{mode})
def {name}(item: {entity}) -> {entity}:
    """It is stored as a put would store it today; change it first where that is not enough."""
    return {result}
'''


def next_number(app: App) -> str:
    """Return the number after all that an app's migrations have."""
    known = {*files_of(app), *app.migrations}
    taken = [int(number) for number in known if number.isdecimal()]
    return f"{max(taken, default=0) + 1:0{_DIGITS}d}"


def write_migration(
    app: App,
    where: str,
    name: str,
    *,
    entity: str | None = None,
    mode: Mode = "in_place",
    named: bool = False,
    draft: Sequence[str] | None = None,
) -> Path:
    """Write the file of a new migration, and return its path.

    `where` is the app as the command line names it, `module:app`. The `entity` is the name of a
    class, and can be left out if there is just one. If it is `named`, it has the name instead of a
    number. `draft` is what a sample of the table has shown: the function does what it can about it.

    Raises:
        ConfigurationError: the name cannot be a function's, there is no such entity or mode, or the
            file is there already.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r}: small letters, digits and _, as in order_status")
    if keyword.iskeyword(name):
        raise ConfigurationError(f"{name!r} is a word of Python's own; take another name")
    if mode not in get_args(Mode):
        raise ConfigurationError(f"mode {mode!r}: one of {', '.join(get_args(Mode))}")
    module = where.partition(":")[0]
    chosen = _entity(app, module, entity, aggregates=mode == "aggregate")
    number = name if named else next_number(app)
    folder = folder_of(app)
    folder.mkdir(exist_ok=True)
    path = folder / (f"{name}.py" if named else f"{number}_{name}.py")
    if path.exists():
        raise ConfigurationError(f"{path} is there already")
    path.write_text(_text(app, where, chosen, number, name, mode, draft))
    return path


def entities_of(app: App, where: str, name: str | None) -> list[type[Entity]]:
    """Return the entity of this name, or all that an app and its module have, no aggregates.

    Raises:
        ConfigurationError: there is no such entity.
    """
    module = where.partition(":")[0]
    if name is not None:
        return [_entity(app, module, name, aggregates=False)]
    return _entities(app, module)


def _entity(app: App, module: str, name: str | None, *, aggregates: bool) -> type[Entity]:
    others = [] if aggregates else _entities(app, module)
    found: dict[str, type[Entity]] = {one.__name__: one for one in others or app.aggregates}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        what = "aggregate" if aggregates else "entity"
        known = ", ".join(sorted(found)) or "none"
        raise ConfigurationError(
            f"say which {what} with --entity; {app.name} and the module {module} have: {known}"
        )
    return found[name]


def _entities(app: App, module: str) -> list[type[Entity]]:
    """Return the entities that an app knows, and those of its module; no aggregates."""
    migrated = [migration.entity for migration in app.migrations.values()]
    variables = vars(sys.modules[module]).values() if module in sys.modules else ()
    beside = [
        one
        for one in variables
        if isinstance(one, type) and issubclass(one, Entity) and one.__entity__ is not None
    ]
    found = dict.fromkeys([*app.known, *migrated, *beside])
    return [one for one in found if not issubclass(one, Aggregate)]


def _text(
    app: App,
    where: str,
    entity: type[Entity],
    number: str,
    name: str,
    mode: Mode,
    draft: Sequence[str] | None,
) -> str:
    imports = imports_of(app, where.partition(":")[0], entity)
    template = _IN_PLACE if mode in ("in_place", "touch") else _PAIRS
    template = {"aggregate": _AGGREGATE, "merge": _MERGE}.get(mode, template)
    if draft is not None:
        template = _DRAFT
    field, kind = _first_field(entity)
    fields = "\n".join(f"    {line}" for line in _fields(entity))
    title = f'"""Migration {number} of {app.name}: {name.replace("_", " ")}.'
    said = "" if mode == "in_place" else f', mode="{mode}"'
    body = template.format(
        imports="\n".join(imports),
        number=number,
        entity=entity.__name__,
        mode=said,
        name=name,
        field=field,
        kind=kind,
        what=_WHAT.get(mode, ""),
        more=_keys(entity, "#MORE"),
        merged=_keys(entity, "#MERGED"),
        # An item that was read keeps its key; one that is made has the key that its fields build.
        result=f"{entity.__name__}(**dict(item))" if mode == "rekey" else "item",
    )
    seen = "".join(f"\n    {line}" for line in draft or ())
    shown = f"\nA sample of the table has shown\n{seen}\n" if seen else ""
    # An alias, a Literal, or an attribute of the table may have any characters.
    about = f"{fields}\n{shown}".replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'{title}\n\n{entity.__name__} has\n\n{about}"""\n{body}'


def _keys(entity: type[Entity], ending: str) -> str:
    """Return key templates beside those of an entity, as a class is declared with them."""
    spec = spec_of(entity)
    if spec.sk is None:
        return f"pk={json.dumps(spec.pk.text + ending)}"
    return f"pk={json.dumps(spec.pk.text)}, sk={json.dumps(spec.sk.text + ending)}"


def imports_of(app: App, module: str, entity: type[Entity] | None = None) -> list[str]:
    """Return the lines that import an app, as `app`, and an entity."""
    variables = vars(sys.modules[module]) if module in sys.modules else {}
    variable = next((name for name, value in variables.items() if value is app), "app")
    own = variable if variable == "app" else f"{variable} as app"
    if entity is None:
        return [f"from {module} import {own}"]
    if entity.__module__ != module:
        return [f"from {module} import {own}", f"from {entity.__module__} import {entity.__name__}"]
    return [f"from {module} import {', '.join(sorted((own, entity.__name__)))}"]


def _fields(entity: type[Entity]) -> list[str]:
    names = attribute_names(entity)
    return [
        f"{name}: {_kind(field.annotation)}"
        + (f", stored as {names[name]}" if names[name] != name else "")
        for name, field in entity.model_fields.items()
    ]


def _first_field(entity: type[Entity]) -> tuple[str, str]:
    """Return a field that needs no import; one of the key, which Set cannot change, comes last."""
    key = spec_of(entity).key_fields
    for name, field in sorted(entity.model_fields.items(), key=lambda named: named[0] in key):
        if field.annotation in (str, int, float, bool, bytes):
            return name, field.annotation.__name__
    return next(iter(entity.model_fields)), "object"


def _kind(annotation: Any) -> str:
    """Return a type as text, without what it is annotated with, such as functions of pydantic."""
    bare = get_type_hints(SimpleNamespace(__annotations__={"kind": annotation}))["kind"]
    return bare.__name__ if isinstance(bare, type) else str(bare)

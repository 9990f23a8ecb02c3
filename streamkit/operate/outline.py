"""The outline of an app: what it declares, without a look at any table.

In: an app. Out: its entities with their keys, and its handlers with what they listen to, read,
write and send. What a handler reads and sends is found in its code, by the names that it uses: a
read through a variable of another module is not seen.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamkit.app import App
from streamkit.core.handler import Handler
from streamkit.core.table_shape import entities_of
from streamkit.effects import Effect
from streamkit.entity import Entity, spec_of
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.extremes import extremes_of
from streamkit.kinds.copy_directory import CopyEntry
from streamkit.kinds.injection import OWN
from streamkit.model.json_fields import JsonFields
from streamkit.stream.start import start_text

_TOOLS = frozenset(OWN)
_READS = frozenset({"key", "query", "scan"})
"""Methods that name an item or several: of an entity, or of a table with the entity given."""


@dataclass(frozen=True, slots=True)
class EntityOutline:
    """An entity: the templates of its keys by their names, `primary` and those of its indexes."""

    name: str
    type: str
    keys: dict[str, tuple[str, str | None]]
    counts: dict[str, str]
    declared: str


@dataclass(frozen=True, slots=True)
class HandlerOutline:
    """A handler: the entity whose changes it gets, and the names of what it reads and writes.

    `writes` is None if its declaration does not say.
    """

    name: str
    kind: str
    entity: str
    changes: tuple[str, ...]
    when: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...] | None
    sends: tuple[str, ...]
    delivery: str
    declared: str


@dataclass(frozen=True, slots=True)
class AppOutline(JsonFields):
    """What an app declares, and where it starts; `listeners` are the outlines of its listeners."""

    app: str
    table: str
    tables: tuple[str, ...]
    sinks: dict[str, str]
    entities: tuple[EntityOutline, ...]
    handlers: tuple[HandlerOutline, ...]
    listeners: tuple["AppOutline", ...]
    start: str = "trim_horizon"


def outline_of(app: App) -> AppOutline:
    """Return the outline of an app, with those of its listeners."""
    handlers = [one for each in (app, *app.listeners.values()) for one in each.handlers]
    named = {name for one in handlers for name in (*one.names, *_read_by(one))}
    own = {*entities_of(app), *named} - {CopyEntry}
    return AppOutline(
        app=app.name,
        table=app.table,
        tables=tuple(app.tables),
        sinks={sink.name: type(sink).__name__ for sink in app.sinks},
        entities=tuple(_entity(one) for one in sorted(own, key=lambda one: one.__name__)),
        handlers=tuple(_handler(app, one) for one in app.handlers),
        listeners=tuple(outline_of(one) for one in app.listeners.values()),
        start=start_text(app.start),
    )


def _entity(entity: type[Entity]) -> EntityOutline:
    spec = spec_of(entity)
    keys = {"primary": (spec.pk.text, spec.sk.text if spec.sk else None)}
    for index in spec.indexes.values():
        keys[index.name] = index.pk.text, index.sk.text if index.sk else None
    counts: dict[str, str] = {}
    if issubclass(entity, Aggregate):
        counts = {name: type(one).__name__ for name, one in entity.__measures__.items()}
        counts |= {name: type(one).__name__ for name, one in extremes_of(entity).items()}
    return EntityOutline(entity.__name__, spec.type, keys, counts, str(spec.declaration))


def _handler(app: App, handler: Handler) -> HandlerOutline:
    written = None if handler.writes is None else handler.writes - {CopyEntry}
    if handler.is_aggregate:
        written = frozenset(one for one in app.aggregates if one.__name__ == handler.name)
    read = set(_read_by(handler))
    if handler.broadcast is not None:
        read |= handler.names - {handler.entity} - (written or frozenset())
    return HandlerOutline(
        name=handler.name,
        kind=_kind(handler),
        entity=handler.entity.__name__,
        changes=tuple(sorted(kind.value for kind in handler.kinds)),
        when=handler.when is not None,
        reads=tuple(sorted(one.__name__ for one in read)),
        writes=None if written is None else tuple(sorted(one.__name__ for one in written)),
        sends=_sent_by(app, handler) if handler.sends else (),
        delivery=handler.delivered.replace("_", " "),
        declared=str(handler.declared),
    )


def _kind(handler: Handler) -> str:
    if handler.is_aggregate:
        return "aggregate"
    if handler.converges:
        return "mirror" if CopyEntry in (handler.writes or ()) else "derive"
    return "on" if handler.broadcast is None else "fan_out"


def _sent_by(app: App, handler: Handler) -> tuple[str, ...]:
    """Return the sinks that a handler's code names; all of the app's, if it names none."""
    named = {id(value) for value in _globals_of(handler).values()}
    found = tuple(sink.name for sink in app.sinks if id(sink) in named)
    return found or tuple(sink.name for sink in app.sinks)


def _read_by(handler: Handler) -> Iterator[type[Entity]]:
    """Yield the entities whose items a handler asks its table for."""
    function = _function_of(handler)
    if function is None or _TOOLS.isdisjoint(handler.needs.values()):
        return
    known = _globals_of(handler)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for name in _names_read(tree, known):
        value = known.get(name)
        if isinstance(value, type) and issubclass(value, Entity):
            yield value


def _names_read(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """Yield the names in `Order.key(...)`, `Order.query(...)` and `scan(Order)`, not in effects."""
    if isinstance(node, ast.Call):
        value = known.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(value, type) and issubclass(value, Effect):
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            named = [node.func.value, *node.args]
            yield from (one.id for one in named if isinstance(one, ast.Name))
    for child in ast.iter_child_nodes(node):
        yield from _names_read(child, known)


def _globals_of(handler: Handler) -> dict[str, Any]:
    """Return the values that a handler's function uses from outside, by their names."""
    function = _function_of(handler)
    if function is None:
        return {}
    used = inspect.getclosurevars(function)
    return {**used.globals, **used.nonlocals}


def _function_of(handler: Handler) -> Callable[..., Any] | None:
    """Return the user's function of a handler, if its code says what it reads and sends."""
    function: Any = handler.run
    if handler.broadcast is not None:
        function = inspect.getclosurevars(handler.broadcast.serve).nonlocals.get("function")
    return inspect.unwrap(function) if inspect.isfunction(function) else None

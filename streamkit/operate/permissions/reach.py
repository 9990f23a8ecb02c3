"""Find which entities and effects the code of a handler can name.

In: the functions that a handler runs. Out: what its code refers to, directly or through the
functions and classes that it refers to. No code runs. The search looks at names: code that finds an
entity by other means, such as `getattr` with a computed name, reaches more than is found here.
"""

import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from streamkit.app import App
from streamkit.effects import Effect
from streamkit.entity import Entity
from streamkit.model.queries import Scan

_OWN = "streamkit"
_FOREIGN = frozenset(sys.stdlib_module_names) | {
    "aioboto3",
    "aiobotocore",
    "anyio",
    "boto3",
    "botocore",
    "httpx",
    "msgspec",
    "pydantic",
    "pydantic_core",
    "sqlalchemy",
    "structlog",
}
"""Packages that name no entity of an app; a search in them would only take time."""
_CONTAINERS = (tuple, list, set, frozenset)
_CODE = (types.FunctionType, classmethod, staticmethod, property)


@dataclass
class Reach:
    """What was found.

    `names` are all names that the code uses, attributes included; `parts` are the objects that
    streamkit made from the declaration, such as a `Mirror`.
    """

    entities: set[type[Entity]] = field(default_factory=set)
    effects: set[type[Effect]] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    scans: bool = False
    parts: list[Any] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def visit(self, *things: Any) -> None:
        """Search what these objects refer to, and what those refer to in turn."""
        todo = list(things)
        while todo:
            thing = todo.pop()
            if id(thing) not in self._seen:
                self._seen.add(id(thing))
                todo += self._next(thing)

    def _next(self, thing: Any) -> Iterable[Any]:
        if inspect.ismethod(thing):
            return thing.__self__, thing.__func__
        if inspect.isfunction(thing):
            return self._of_function(thing)
        if isinstance(thing, classmethod | staticmethod):
            return (thing.__func__,)
        if isinstance(thing, property):
            return (thing.fget,)
        if isinstance(thing, functools.partial):
            return thing.func, *thing.args, *thing.keywords.values()
        if get_origin(thing) is not None:
            return get_origin(thing), *get_args(thing)
        if inspect.isclass(thing):
            return self._of_class(thing)
        if isinstance(thing, _CONTAINERS):
            return thing
        if isinstance(thing, dict):
            return thing.values()
        names = _field_names(thing)
        if names is not None and _package(type(thing)) == _OWN and not isinstance(thing, App):
            self.parts.append(thing)
            self.scans |= isinstance(thing, Scan)
            return [getattr(thing, name, None) for name in names]
        return ()

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        function = inspect.unwrap(function)
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # the cell has no value yet
                continue
        if _package(function) in _FOREIGN | {_OWN}:
            return
        names = set(_names(function.__code__))
        self.names |= names
        for name in names:
            found = function.__globals__.get(name)
            if isinstance(found, types.ModuleType):
                if found.__name__.partition(".")[0] not in _FOREIGN:
                    yield from (getattr(found, attribute, None) for attribute in names)
            else:
                yield found
        try:
            yield from get_type_hints(function).values()
        except Exception:  # noqa: BLE001 - annotations are the user's, and may name what is missing
            return

    def _of_class(self, thing: type[Any]) -> Iterable[Any]:
        if issubclass(thing, Effect):
            self.effects.add(thing)
        self.scans |= thing is Scan
        if issubclass(thing, Entity) and thing.__entity__ is not None:
            self.entities.add(thing)
        if _package(thing) in _FOREIGN | {_OWN}:
            return ()
        return [value for value in vars(thing).values() if isinstance(value, _CODE)]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _field_names(thing: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a value or an object; None if it declares none."""
    if is_dataclass(thing):
        return tuple(one.name for one in fields(thing))
    return thing.__struct_fields__ if isinstance(thing, msgspec.Struct) else None


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).partition(".")[0]

"""Shapes: the value types of botocore's models become plain functions.

In: a shape of a botocore model. Out: a function that tells whether botocore sends a value as it is,
and a function that reads a reply's JSON as botocore's parser does. Both are made once for a shape.
They cover AWS JSON 1.0 and the models of DynamoDB; a model that needs more is refused with
`NotImplementedError`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[Any], bool]
Reader: TypeAlias = Callable[[Any], Any]

_NUMBERS: dict[str, type] = {"integer": int, "long": int, "boolean": bool}


class Shapes:
    """The functions of a service's shapes, kept by name because shapes are recursive."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._readers: dict[str, Reader] = {}

    def check(self, shape: Any) -> Check:
        """Return the check whether a value is sent as it is; False may only mean doubt."""
        name = shape.name
        if name not in self._checks:
            # A shape may contain itself, and is then asked for while it is being made.
            self._checks[name] = partial(self._later, self._checks, name)
            self._checks[name] = self._check(shape)
        return self._checks[name]

    @staticmethod
    def _later(made: Mapping[str, Callable[[Any], Any]], name: str, value: Any) -> Any:
        return made[name](value)

    def _check(self, shape: Any) -> Check:
        least = shape.metadata.get("min", 0)
        if shape.type_name == "structure":
            required = tuple(shape.metadata.get("required", ()))
            members = {name: self.check(member) for name, member in _members(shape).items()}
            return partial(_is_structure, members, required)
        if shape.type_name == "map":
            return partial(_is_map, self.check(shape.key), self.check(shape.value))
        if shape.type_name == "list":
            return partial(_is_list, self.check(shape.member), least)
        if shape.type_name == "string":
            return partial(_is_string, least)
        if shape.type_name == "blob":
            return _is_blob
        kind = _NUMBERS.get(shape.type_name)
        return partial(_is_number, kind, least) if kind else _is_never

    def reader(self, shape: Any, parser: Any) -> Reader:
        """Return the function that reads JSON as botocore's parser does."""
        name = shape.name
        if name not in self._readers:
            self._readers[name] = partial(self._later, self._readers, name)
            self._readers[name] = self._reader(shape, parser)
        return self._readers[name]

    def _reader(self, shape: Any, parser: Any) -> Reader:
        if shape.type_name == "structure":
            members = {
                name: self.reader(member, parser) for name, member in _members(shape).items()
            }
            return lambda value: {
                name: members[name](part)
                for name, part in value.items()
                if part is not None and name in members
            }
        if shape.type_name == "map":
            each = self.reader(shape.value, parser)
            return lambda value: {name: each(part) for name, part in value.items()}
        if shape.type_name == "list":
            member = self.reader(shape.member, parser)
            return lambda value: [member(part) for part in value]
        if shape.type_name == "timestamp":
            return parser._timestamp_parser  # type: ignore[no-any-return]  # noqa: SLF001
        if shape.type_name == "blob":
            return parser._blob_parser  # type: ignore[no-any-return]  # noqa: SLF001
        return _same


def _is_structure(members: Mapping[str, Check], required: tuple[str, ...], value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for name, part in value.items():
        check = members.get(name)
        if check is None or not check(part):
            return False
    return all(name in value for name in required) if required else True


def _is_map(key: Check, each: Check, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(map(key, value)) and all(map(each, value.values()))


def _is_list(member: Check, least: int, value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) >= least and all(map(member, value))


def _is_string(least: int, value: Any) -> bool:
    return isinstance(value, str) and len(value) >= least


def _is_blob(value: Any) -> bool:
    return isinstance(value, bytes)


def _is_number(kind: type, least: int, value: Any) -> bool:
    return isinstance(value, kind) and (not least or value >= least)  # type: ignore[operator]


def _is_never(_value: Any) -> bool:
    return False


def _same(value: Any) -> Any:
    return value


def _members(shape: Any) -> dict[str, Any]:
    """Return a structure's members.

    Raises:
        NotImplementedError: a member has another name on the wire.
    """
    if any(member.serialization for member in shape.members.values()):
        raise NotImplementedError(f"{shape.name} has members with other names")
    members: dict[str, Any] = shape.members
    return members


def types_in(shape: Any, met: set[str]) -> set[str]:
    """Return the types of values anywhere in a shape; `met` holds the shapes seen so far."""
    if shape.name in met:
        return set()
    met.add(shape.name)
    parts: list[Any] = []
    if shape.type_name == "structure":
        parts = list(shape.members.values())
    elif shape.type_name == "map":
        parts = [shape.key, shape.value]
    elif shape.type_name == "list":
        parts = [shape.member]
    return {shape.type_name}.union(*(types_in(part, met) for part in parts))


@lru_cache
def shapes_of(_service: str) -> Shapes:
    """Return the shapes of a service, shared by all of its clients."""
    return Shapes()

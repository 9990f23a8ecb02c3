"""Where something was declared: the name and the line that errors point at.

Entities, indexes, handlers and apps are declared at import and checked at start. When a check
fails, the message names the declaration as `BrandLikes (deals.py:41)`, so that people need not
search for it. The line is the user's: frames of streamkit and pydantic are skipped.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from streamkit.errors import DeclarationError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])

_ALIKE = 0.8
"""A misspelt name is this similar to the one that is meant, as `difflib` measures it."""
_OWN_PACKAGES = frozenset({"streamkit", "pydantic", "abc", "functools", "dataclasses"})


class Declaration(msgspec.Struct, frozen=True):
    """A name, and the file and line where it was declared."""

    name: str
    file: str
    line: int

    @classmethod
    def here(cls, name: str) -> Self:
        """Return the line of the nearest caller outside streamkit and pydantic."""
        frame = inspect.currentframe()
        while frame is not None:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package not in _OWN_PACKAGES:
                return cls(name, frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return cls(name, "<unknown>", 0)

    @classmethod
    def of(cls, declared: Callable[..., Any] | type[Any]) -> Self:
        """Return where a function or a class was written, without the decorators that wrap it."""
        unwrapped = inspect.unwrap(declared)
        name = str(getattr(unwrapped, "__qualname__", unwrapped)).rpartition("<locals>.")[2]
        code = getattr(unwrapped, "__code__", None)
        if code is not None:
            return cls(name, code.co_filename, code.co_firstlineno)
        known = getattr(unwrapped, "__declaration__", None)
        if isinstance(known, Declaration):
            return cls(name, known.file, known.line)
        try:
            file = inspect.getsourcefile(unwrapped) or "<unknown>"
            line = inspect.getsourcelines(unwrapped)[1]
        except (OSError, TypeError):
            module = sys.modules.get(getattr(unwrapped, "__module__", ""))
            file, line = getattr(module, "__file__", None) or "<unknown>", 0
        return cls(name, file, line)

    def hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the annotations of a function of this declaration, by name.

        Raises:
            DeclarationError: they name something that is not there.
        """
        try:
            return get_type_hints(function)
        except NameError as error:
            raise DeclarationError(
                f"{self}: its annotations name {error.name!r}, unknown"
            ) from error

    def __str__(self) -> str:
        return f"{self.name} ({Path(self.file).name}:{self.line})"


def by_known_names(what: str) -> Callable[[F], F]:
    """Return a decorator that refuses arguments by names which the function does not have.

    It also refuses values of another type where the annotation is a plain one, such as `bool`: a
    text counts as true. Where the function takes a `function`, it refuses anything else. `what` is
    the call as users write it, such as `@app.on(...)`.
    """

    def decorated(function: F) -> F:
        code = function.__code__
        end = code.co_argcount + code.co_kwonlyargcount
        known = code.co_varnames[code.co_posonlyargcount : end]
        notes = function.__annotations__.items()
        hints = {name: hint for name, hint in notes if name != "return" and _is_plain(hint)}

        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    raise DeclarationError(f"{Declaration.here(what)}: {_unknown(name, known)}")
            if len(args) > code.co_argcount:
                names = ", ".join(known[code.co_argcount - code.co_posonlyargcount :])
                raise DeclarationError(
                    f"{Declaration.here(what)}: give its arguments by name, in parentheses: {names}"
                )
            if code.co_varnames[1] == "function" and len(args) > 1 and not _is_function(args[1]):
                raise DeclarationError(
                    f"{Declaration.here(what)}: it decorates a function, whose annotation names the"
                    f" entity; it takes no {getattr(args[1], '__name__', args[1])!r}"
                )
            for name, value in (dict(zip(code.co_varnames, args, strict=False)) | given).items():
                if name in hints and not _fits(value, hints[name]):
                    here = Declaration.here(what.replace("...", f"{name}={value!r}"))
                    raise DeclarationError(f"{here}: {name} is {_said(hints[name])}")
            return function(*args, **given)

        return cast("F", checked)

    return decorated


def by_known_fields(cls: C) -> C:
    """Let a dataclass of declarations refuse arguments by names that it does not have."""
    cls.__init__ = by_known_names(f"{cls.__name__}(...)")(cls.__init__)
    return cls


def named(given: object) -> str:
    """Return what a value is, for an error that says what should stand there: `the class Order`."""
    if isinstance(given, type):  # the type of a class is its metaclass, which tells nobody anything
        return f"the class {given.__name__}"
    name = "None" if given is None else type(given).__name__
    article = "" if given is None else "an " if name[:1] in "aeiouAEIO" else "a "
    return f"{article}{name}"


def check_types(declared: Any) -> None:
    """Check that each field of a dataclass of declarations has the type of its annotation.

    A list may stand for a tuple, and a whole number for a float.

    Raises:
        DeclarationError: a field has another one; the error says what it takes.
    """
    what = type(declared).__name__
    for name, hint in get_type_hints(type(declared)).items():
        value = getattr(declared, name)
        if not _fits(value, hint):
            here = Declaration.here(f"{what}({name}={value!r})")
            raise DeclarationError(f"{here}: {name} is {_said(hint)}")


def _is_plain(hint: Any) -> bool:
    """Return whether a value can be checked against an annotation, without looking into it."""
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_plain, get_args(hint)))
    return hint in (bool, int, float, str, type(None)) or get_origin(hint) in (Iterable, Mapping)


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple | list) and all(_fits(one, inner[0]) for one in value)
    if origin is Iterable:
        return isinstance(value, Iterable)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(one, inner[1]) for one in value.values())
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _said(hint: Any) -> str:
    """Return what fits a type, for an error."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"{', '.join(inner[:-1])} or {inner[-1]}"
    if origin in (Union, UnionType):
        return " or ".join(map(_said, inner))
    if origin is tuple:
        return f"several, each of them {_said(inner[0])}, as in [...]"
    if origin is Iterable:
        return "several, as in [...]"
    if origin is Mapping:
        return f"by name, each {_said(inner[1])}, as in {{'NAME': ...}}"
    said = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
    return "None" if hint is type(None) else said.get(hint, f"{hint.__name__}(...)")


def _is_function(given: object) -> bool:
    return given is None or (callable(given) and not isinstance(get_origin(given) or given, type))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=_ALIKE)
    names = ", ".join(one for one in known if one != "self")
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {names}"
    return f"unknown argument {name!r}; {hint}"

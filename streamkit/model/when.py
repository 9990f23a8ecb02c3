"""`when`: conditions on the fields of a change, evaluated before its images are decoded.

`changed("status")`, `became("status", "SHIPPED")` and `crossed("stock", below=10)`, combined with
`&`, `|` and `~`. Each knows the fields it looks at, so that only those are read. A missing image
(the item did not exist before, or does not any more) has no value of any field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration
from streamkit.model.fields import classes_of, validate_fields

Values = Mapping[str, Any]
"""The values of a condition's fields, by field name."""

_NUMBERS = (int, float, Decimal)


@dataclass(frozen=True, slots=True)
class When:
    """A condition on a change; `fields` are the fields that it looks at."""

    fields: tuple[str, ...]
    text: str
    _holds: Callable[[Values | None, Values | None], bool] = field(repr=False, compare=False)
    _expected: tuple[tuple[str, Any], ...] = ()
    _limits: tuple[tuple[str, Any], ...] = ()

    def holds(self, old: Values | None, new: Values | None) -> bool:
        """Return whether a change between these values meets the condition; `None` is no image."""
        return self._holds(old, new)

    def check(self, entity: type[BaseModel], declaration: Declaration | None = None) -> None:
        """Check the condition against an entity's fields.

        Raises:
            DeclarationError: a field is unknown, can never have the value asked for, or
                cannot be compared with the limit.
        """
        place = declaration or Declaration.of(entity)
        unknown = [name for name in self.fields if name not in entity.model_fields]
        if unknown:
            raise DeclarationError(
                f"{place}: {self.text}: {entity.__name__} has no field {', '.join(unknown)}"
            )
        for name, value in self._expected:
            problem = _expectation_problem(entity, name, value)
            if problem:
                raise DeclarationError(f"{place}: {self.text}: {problem}")
        for name, limit in self._limits:
            kinds = list(classes_of(entity.model_fields[name].annotation))
            if kinds and not any(_are_ordered(kind, limit) for kind in kinds):
                raise DeclarationError(
                    f"{place}: {self.text}: {name} holds {kinds[0].__name__} values, which"
                    f" cannot be compared with {limit!r}"
                )

    @classmethod
    def _combined(
        cls,
        text: str,
        parts: tuple["When", ...],
        holds: Callable[[Values | None, Values | None], bool],
    ) -> "When":
        fields = _unique(name for part in parts for name in part.fields)
        expected = tuple(pair for part in parts for pair in part._expected)  # noqa: SLF001
        limits = tuple(pair for part in parts for pair in part._limits)  # noqa: SLF001
        return cls(fields, text, holds, expected, limits)

    def __and__(self, other: "When") -> "When":
        return self._combined(
            f"({self.text} & {other.text})",
            (self, other),
            lambda old, new: self.holds(old, new) and other.holds(old, new),
        )

    def __or__(self, other: "When") -> "When":
        return self._combined(
            f"({self.text} | {other.text})",
            (self, other),
            lambda old, new: self.holds(old, new) or other.holds(old, new),
        )

    def __invert__(self) -> "When":
        return self._combined(f"~{self.text}", (self,), lambda old, new: not self.holds(old, new))


def changed(*fields: str) -> When:
    """Hold if any of the fields differs between the images, or if there is only one image.

    Raises:
        DeclarationError: no field is named.
    """
    if not fields:
        raise DeclarationError(f"{Declaration.here('changed()')}: name the fields")

    def holds(old: Values | None, new: Values | None) -> bool:
        if old is None or new is None:
            return True
        return any(old.get(name) != new.get(name) for name in fields)

    return When(_unique(fields), f"changed({', '.join(map(repr, fields))})", holds)


def became(field: str, value: Any) -> When:
    """Hold if the field has the value now, and had another, or there was no item, before."""
    wanted = _plain(value)

    def is_so(values: Values | None) -> bool:
        return values is not None and bool(_plain(values.get(field)) == wanted)

    return When(
        (field,),
        f"became({field!r}, {value!r})",
        lambda old, new: is_so(new) and not is_so(old),
        ((field, value),),
    )


def crossed(field: str, *, below: Any = None, above: Any = None) -> When:
    """Hold if the field is past the limit now, and was not, or there was no item, before.

    `below` or `above` is a number, a date, or any value that is ordered like the field. A field
    without a value is neither below nor above.

    Raises:
        DeclarationError: not exactly one of `below` and `above` is given.
    """
    if (below is None) == (above is None):
        here = Declaration.here(f"crossed({field!r})")
        raise DeclarationError(f"{here}: give either below= or above=")

    def is_beyond(values: Values | None) -> bool:
        value = None if values is None else values.get(field)
        if value is None:
            return False
        return bool(value < below if above is None else value > above)

    limit = f"below={below!r}" if above is None else f"above={above!r}"
    return When(
        (field,),
        f"crossed({field!r}, {limit})",
        lambda old, new: is_beyond(new) and not is_beyond(old),
        _limits=((field, below if above is None else above),),
    )


def checked(when: object) -> When:
    """Return the value of `when=`, if it is a condition.

    Raises:
        DeclarationError: it is something else, such as a function.
    """
    if isinstance(when, When):
        return when
    raise DeclarationError(
        "when= takes changed(...), became(...) and crossed(...), combined with &, | and ~;"
        " anything else is for the handler's first line"
    )


def _unique(names: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _are_ordered(kind: type, limit: Any) -> bool:
    """Return whether values of a class may be compared with a limit; False only if they cannot."""
    if issubclass(kind, _NUMBERS):
        return isinstance(limit, _NUMBERS)
    if issubclass(kind, date):
        return isinstance(limit, date) and isinstance(limit, datetime) == issubclass(kind, datetime)
    if issubclass(kind, str):
        return isinstance(limit, str)
    # A class such as pydantic's AwareDatetime does not say what its values are.
    return not issubclass(kind, Enum) or any("__lt__" in vars(one) for one in kind.__mro__[:-1])


def _expectation_problem(entity: type[BaseModel], name: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        stored = validate_fields(entity, {name: value}, where=entity.__name__)[name]
    except ValueError:
        return f"{name} can never be {value!r}"
    if _plain(stored) != _plain(value):
        return f"{name} holds a {type(stored).__name__}, not a {type(value).__name__}"
    return None

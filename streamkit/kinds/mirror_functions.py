"""Check what the functions of a mirror return, wherever they are called.

In: `copies` and `source`, as a user declares them. Out: the same functions, which say with the
mirror's line what is wrong. On failure: the change is parked.
"""

from collections.abc import Callable
from typing import Any

from streamkit.entity import Entity, Key
from streamkit.kinds.fan_out.audience import as_sources
from streamkit.model.declaration import Declaration, named


def checked_source(
    source: Callable[[Any], Any], entity: type[Entity], declared: Declaration
) -> Callable[[Any], Key[Any] | None]:
    """Return a mirror's `source`, which raises `TypeError` if it returns no key of the source."""

    def checked(copied: Any) -> Key[Any] | None:
        found = source(copied)
        if found is not None and not (isinstance(found, Key) and _kin(found.entity, entity)):
            what = f"a key of {found.entity.__name__}" if isinstance(found, Key) else named(found)
            raise TypeError(
                f"{declared}: source= returns the key of a copy's {entity.__name__}, as in"
                f" {entity.__name__}.key(...), or None; it returned {what}"
            )
        return found

    return checked


def checked_copies(
    copies: Callable[[Any], Any], entity: type[Entity], declared: Declaration
) -> Callable[[Any], Any]:
    """Return a mirror's `copies`, which raises `TypeError` if it asks for another entity."""

    def checked(item: Any) -> Any:
        found = as_sources(copies(item))
        for source in found:
            if not _kin(source.entity, entity):
                raise TypeError(
                    f"{declared}: copies= asks for {source.entity.__name__}, and the function's"
                    f" second parameter is a {entity.__name__}; it takes the source, then the copy"
                )
        return found

    return checked


def _kin(one: type[Entity], other: type[Entity]) -> bool:
    return issubclass(one, other) or issubclass(other, one)

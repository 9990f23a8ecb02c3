"""Cascades: which handlers another handler's effects trigger, and whether that could be endless.

In: the handlers of an app. Out: the entities whose items carry an origin, because a handler listens
to what a handler may write; and the cycles of handlers that would trigger each other. Pure.

A `when=` breaks no cycle here: it selects changes, but does not make them fewer. A handler that
only deletes cannot cause an insert, and no write causes an expiry at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from streamkit.core.handler import Handler
from streamkit.core.writes import ANY_KIND
from streamkit.entity import Entity
from streamkit.model.origin import WriteOrigin

Same = Callable[[type[Entity], type[Entity]], bool]
"""Returns whether an item of the one entity may be an item of the other."""


def same_items(*, typed: bool) -> Same:
    """Return a comparison of entities on a table; `typed` says that it has a type attribute.

    Two views of one item have templates of one shape, or one is the other's subclass.
    """

    def shape(entity: type[Entity]) -> object:
        spec = entity.__entity__
        if spec is None:
            return entity
        return spec.pk.shape, spec.sk and spec.sk.shape, spec.type if typed else ""

    def same(one: type[Entity], other: type[Entity]) -> bool:
        return (
            one is other
            or issubclass(one, other)
            or issubclass(other, one)
            or shape(one) == shape(other)
        )

    return same


@dataclass
class Cascades:
    """Knows the entities whose changes carry an origin.

    Args:
        app: names the app in origins, so that those of two apps differ.
        handlers: the app's handlers.
        same: see `same_items`.
    """

    app: str = ""
    handlers: Sequence[Handler] = ()
    same: Same = field(default_factory=lambda: same_items(typed=False))
    _leaves: dict[type[Entity], bool] = field(default_factory=dict)

    def leaves_origin(self, entity: type[Entity]) -> bool:
        """Return whether effects on an entity's items leave an origin: a handler listens."""
        known = self._leaves.get(entity)
        if known is None:
            known = any(self.same(entity, handler.entity) for handler in self.handlers)
            self._leaves[entity] = known
        return known

    def fed(self) -> frozenset[type[Entity]]:
        """Return the entities that handlers listen to and may write: origins are read for them.

        If a handler does not say what it writes, these are all entities that handlers listen to.
        """
        listened = {handler.entity for handler in self.handlers}
        if any(handler.writes is None for handler in self.handlers):
            return frozenset(listened)
        written = {entity for handler in self.handlers for entity in handler.writes or ()}
        return frozenset(e for e in listened if any(self.same(e, other) for other in written))

    def loop_of(self, handler: Handler) -> list[str]:
        """Return the handlers of the shortest loop through one, by what they say that they write.

        Those that need not be endless are in it, too. Without such a loop there are none.
        """
        feeds = _fed_by(self.handlers, self.same)
        found = [one for one in self.handlers if one.declared == handler.declared]
        path = _shortest(found[0], feeds) if found else None
        return [one.name for one in path or ()]

    def origin_text(self, handler: str, position: str, hops: int, trace: str = "") -> str:
        """Return the origin text that a handler's effects leave, after a change with `hops` hops.

        `trace` is the `traceparent` of the handler's run, if it was traced.
        """
        origin = WriteOrigin("handler", hops + 1, trace)
        return origin.text(handler, f"{self.app}/{position.lstrip('0')}")


class Cycle(msgspec.Struct, frozen=True):
    """Handlers of which each triggers the next, and the last one the first."""

    handlers: tuple[Handler, ...]

    def __str__(self) -> str:
        links = zip(self.handlers, (*self.handlers[1:], self.handlers[0]), strict=True)
        parts = [
            f"{one.declared} writes {other.entity.__name__}, to which {other.declared} listens"
            for one, other in links
        ]
        return (
            f"{'; '.join(parts)}: this could go on for ever. If it comes to an end by itself, say"
            ' cycle="bounded" on one of them'
        )


def cycles(handlers: Iterable[Handler], same: Same) -> list[Cycle]:
    """Return the shortest cycle through each handler that is on one; each set of handlers once.

    Handlers that declare that they come to an end, and those in shadow mode, are left out.
    """
    live = [h for h in handlers if not (h.converges or h.cycle or h.shadow)]
    feeds = _fed_by(live, same)
    found: dict[frozenset[int], Cycle] = {}
    for handler in live:
        path = _shortest(handler, feeds)
        if path:
            found.setdefault(frozenset(map(id, path)), Cycle(tuple(path)))
    return list(found.values())


def _fed_by(handlers: Sequence[Handler], same: Same) -> dict[int, list[Handler]]:
    """Return the handlers that each handler feeds, by its `id`."""
    return {id(one): [other for other in handlers if _feeds(one, other, same)] for one in handlers}


def _feeds(one: Handler, other: Handler, same: Same) -> bool:
    return any(
        same(entity, other.entity) and one.causes.get(entity, ANY_KIND) & other.kinds
        for entity in one.writes or ()
    )


def _shortest(start: Handler, feeds: Mapping[int, Sequence[Handler]]) -> list[Handler] | None:
    """Return the shortest path from a handler back to itself, without its end."""
    paths = [[start]]
    seen: set[int] = set()
    while paths:
        path = paths.pop(0)
        for following in feeds[id(path[-1])]:
            if following is start:
                return path
            if id(following) not in seen:
                seen.add(id(following))
                paths.append([*path, following])
    return None

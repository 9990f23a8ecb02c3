"""Recognition: how a consumer tells the items of its table apart, and where their changes go.

In: the entities that it was given, and those that its handlers name. Out: the router and the routes
of one table. A listener knows what its app knows, because their handlers write the same items.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Self

from streamkit.core.cascades import Cascades, same_items
from streamkit.core.handler import fingerprint_of
from streamkit.core.routes import Routes
from streamkit.core.tables import Tables
from streamkit.entity import Entity
from streamkit.kinds.registration import Registration
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.stream.decode import Router


class Recognition(Registration):
    """What one consumer knows of the items that it reads."""

    type_attribute: str | None
    listeners: Mapping[str, "Recognition"]

    @property
    @abstractmethod
    def head(self) -> "Recognition":
        """Return the app that it is a listener of, or itself."""

    @property
    def family(self) -> "Sequence[Recognition]":
        """Return the app and its listeners, whose handlers write the same items."""
        return (self.head, *self.head.listeners.values())

    def with_joined(self, names: Collection[str]) -> Self:
        """Return this app with the handlers of these listeners, which it takes over.

        It has the fingerprint of the version that declares them without a start.
        """
        joined = copy(self)
        joined._run_too(names)  # noqa: SLF001 - of the same class
        return joined

    def _run_too(self, names: Collection[str]) -> None:
        children = [self.listeners[name] for name in sorted(names) if name in self.listeners]
        self.handlers = [*self.handlers, *(one for child in children for one in child.handlers)]

    @property
    def entities(self) -> tuple[type[Entity], ...]:
        """Return every entity that the app knows, each once; a listener knows those of its app."""
        inherited = self.head.entities if self.head is not self else ()
        own = (*self._entities, *(handler.entity for handler in self.handlers))
        return tuple(dict.fromkeys([*own, *inherited]))

    @property
    def named(self) -> tuple[type[Entity], ...]:
        """Return the entities that only annotations name; a listener knows those of its app."""
        family = dict.fromkeys([self, self.head])
        handlers = [handler for app in family for handler in app.handlers]
        # Sets have no fixed order, and routing must not depend on one.
        found = [e for h in handlers for e in sorted(h.names, key=lambda one: one.__qualname__)]
        return tuple(entity for entity in dict.fromkeys(found) if entity not in self.entities)

    @property
    def known(self) -> tuple[type[Entity], ...]:
        """Return every entity by which items are told apart: those of `entities` and of `named`."""
        return (*self.entities, *self.named)

    def router(self, schema: TableSchema) -> Router:
        """Return the router that tells this app's records apart.

        Raises:
            DeclarationError: two entities cannot be told apart on this table.
        """
        return Router(self.entities, schema, CONTROL_PREFIX, self.named)

    def routes(self, tables: Tables) -> Routes:
        """Return where this app's changes go.

        Raises:
            DeclarationError: two entities cannot be told apart on this table.
        """
        return Routes(self.router(tables.own), tables, self.cascades())

    def cascades(self) -> Cascades:
        """Return which entities' items carry an origin; an app and its listeners count as one."""
        same = same_items(typed=self.type_attribute is not None)
        return Cascades(self.name, tuple(h for app in self.family for h in app.handlers), same)

    def fingerprint(self) -> str:
        """Return a digest of the handlers and definitions; a new one starts a new generation."""
        return fingerprint_of(self.handlers)

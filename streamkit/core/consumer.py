"""Consumer: what the parts below an app know of it.

An `App` is one. Rebuilds, lags and preflight checks take a consumer, so that they do not depend on
how an app is declared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamkit.core.cascades import Cascades
from streamkit.core.handler import Handler
from streamkit.entity import Entity
from streamkit.model.declaration import Declaration
from streamkit.model.schema import TableSchema
from streamkit.sinks.sink import Sink
from streamkit.stream.decode import Router


class Consumer(Protocol):
    """The entities and handlers of one reader of one table's stream, with its name.

    One that `copies` writes an archive, and has no handlers.
    """

    name: str
    table: str
    type_attribute: str | None
    control_table: str | None
    tables: tuple[str, ...]
    declared: Declaration
    copies: bool

    @property
    def handlers(self) -> Sequence[Handler]:
        """Return the handlers, in the order of their declaration."""

    @property
    def entities(self) -> tuple[type[Entity], ...]:
        """Return every entity that it knows, each once."""

    @property
    def named(self) -> tuple[type[Entity], ...]:
        """Return the entities that only annotations name."""

    @property
    def known(self) -> tuple[type[Entity], ...]:
        """Return every entity by which items are told apart."""

    @property
    def aggregates(self) -> Sequence[type[Any]]:
        """Return the aggregates, in the order of their declaration."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Return the sinks that its handlers' sends may name."""

    @property
    def listeners(self) -> Mapping[str, "Consumer"]:
        """Return the other consumers that run beside it, by name."""

    def fingerprint(self) -> str:
        """Return a digest of the handlers and definitions."""

    def router(self, schema: TableSchema) -> Router:
        """Return the router that tells its records apart on a table."""

    def cascades(self) -> Cascades:
        """Return which entities' items carry an origin."""

"""Add declared aggregates to an app, each with the handlers that it needs.

The kind itself is imported when an app has one: functions on Lambda import the app whenever they
start cold.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from streamkit.core.handler import Handler, Policy
from streamkit.entity import Entity
from streamkit.kinds.handler_list import HandlerList
from streamkit.model.declaration import by_known_names
from streamkit.stream.start import Start

if TYPE_CHECKING:
    from streamkit.kinds.aggregate.aggregate import Aggregate

A = TypeVar("A", bound="type[Aggregate[Any]]")


class DeclaredAggregates(HandlerList, ABC):
    """The aggregates of one consumer, beside its other handlers."""

    def __init__(self, entities: Iterable[type[Entity]], policy: Policy) -> None:
        super().__init__(entities, policy)
        self.aggregates: list[type[Aggregate[Any]]] = []

    @property
    @abstractmethod
    def family(self) -> "Sequence[DeclaredAggregates]":
        """Return the app and its listeners, whose handlers write the same items."""

    @abstractmethod
    def _beginning(self, handler: Handler, start: Start | str | None) -> "DeclaredAggregates":
        """Return where a handler is added: here, or on a consumer that it begins by itself."""

    @overload
    def aggregate(self, aggregate: A, /) -> A: ...

    @overload
    def aggregate(self, /, *, start: Start | str) -> Callable[[A], A]: ...

    @by_known_names("@app.aggregate(...)")
    def aggregate(
        self, aggregate: A | None = None, /, *, start: Start | str | None = None
    ) -> A | Callable[[A], A]:
        """Register an aggregate; its items are kept exactly in step with their source.

        Args:
            aggregate: the class, when used without parentheses.
            start: as for `on`: it counts what has changed since then.

        Raises:
            DeclarationError: it has no measure, no source or no recognisable group, or its name is
                taken.
        """
        if aggregate is not None:
            return self._add_aggregate(aggregate)

        def register(target: A) -> A:
            from streamkit.kinds.aggregate.handling import aggregate_handler

            handler = aggregate_handler(target, self._policy)
            return self._beginning(handler, start).aggregate(target)

        return register

    def _add_aggregate(self, aggregate: A) -> A:
        from streamkit.kinds.aggregate.aggregate import stored_as
        from streamkit.kinds.aggregate.emptying import emptying_handler
        from streamkit.kinds.aggregate.extremes import extremes_of
        from streamkit.kinds.aggregate.handling import aggregate_handler
        from streamkit.kinds.aggregate.soundness import check_apart

        handler = aggregate_handler(aggregate, self._policy)
        check_apart(aggregate, _aggregates_of(self.family))
        if extremes_of(aggregate):
            from streamkit.kinds.aggregate.ranked import ranked_handler

            handler = ranked_handler(aggregate, handler)
        self.add_handler(handler)
        self._entities.append(stored_as(aggregate))
        self.aggregates.append(aggregate)
        emptying = emptying_handler(aggregate, self._policy)
        if emptying is not None:
            self.add_handler(emptying)
        return aggregate


def check_all_apart(consumers: Iterable[DeclaredAggregates]) -> None:
    """Refuse aggregates of consumers of one table that add to the same field of the same items.

    Raises:
        DeclarationError: there are two; the message names both.
    """
    aggregates = _aggregates_of(consumers)
    for place, aggregate in enumerate(aggregates):
        from streamkit.kinds.aggregate.soundness import check_apart

        check_apart(aggregate, aggregates[:place])


def _aggregates_of(consumers: Iterable[DeclaredAggregates]) -> "list[type[Aggregate[Any]]]":
    return [one for consumer in consumers for one in consumer.aggregates]

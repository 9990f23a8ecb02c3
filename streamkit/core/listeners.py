"""Listeners: which handlers a record is for, also if it is not one change of one entity.

In: an app's handlers, and records. Out: the handlers that listen, by entity and kind of change; and
pending changes of records that no handler may run for, or that gave their item another type.
"""

from collections.abc import Callable, Iterable

from streamkit.changes import Kind
from streamkit.core.handler import AsRun, Handler, as_registered
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import Failure
from streamkit.entity import Entity
from streamkit.model.origin import APPLICATION, read_origin
from streamkit.stream.decode import Record, Router, Side

Place = tuple[type[Entity], Kind]
"""What handlers listen to: an entity, and a kind of change."""


class Listeners:
    """Knows the handlers of one app by their `places`; `make` makes a pending change for some."""

    def __init__(
        self, handlers: Iterable[Handler], router: Router, make: Callable[..., PendingChange]
    ) -> None:
        self.places: dict[Place, tuple[Handler, ...]] = {}
        for handler in handlers:
            for kind in handler.kinds:
                there = self.places.get((handler.entity, kind), ())
                self.places[handler.entity, kind] = (*there, handler)
        self._router, self._make = router, make

    def wants(self, record: Record) -> bool:
        """Return whether a handler listens to such a change; its `when` is not evaluated."""
        sides = self._router.sides(record)
        return any((entity, side.kind) in self.places for entity, side in sides)

    def unrun(
        self, record: Record, failure: Failure, as_run: AsRun = as_registered
    ) -> list[PendingChange]:
        """Return the pending change of a record that must not run: each handler has failed."""
        sides = self._router.sides(record)
        if not sides:
            return []
        place = record.position, record.created_at, record, sides[-1][0], record.item_key
        change = PendingChange(*place, sides=sides)
        for listener, side in self._of(sides):
            handler = as_run(listener, side)
            if handler is not None and not handler.shadow:
                change.outcomes.append(Outcome(handler))
                change.outcomes[-1].fail(failure)
        return [change]

    def retyped(
        self, record: Record, marked: bool, shard_id: str, as_run: AsRun
    ) -> list[PendingChange]:
        """Return the pending change of a record that gave its item another type; else none.

        It is one change at one position, with the handlers of both sides: a commit between the
        sides would lose the second one. A `marked` record may be of a migration's copy.
        """
        written = record.counting() if marked else record
        origin = read_origin(record.old_image, record.new_image) or APPLICATION
        sides = () if written is None else self._router.sides(written)
        each = []
        for entity, side in sides:
            running = [as_run(listener, side) for listener, _ in self._of([(entity, side)])]
            each.append(self._make(side, entity, filter(None, running), shard_id, origin))
        for change in each[-1:]:
            change.outcomes = [outcome for one in each for outcome in one.outcomes]
            change.record, change.sides = written, sides
        return each[-1:]

    def _of(self, sides: Iterable[Side]) -> list[tuple[Handler, Record]]:
        return [
            (handler, side)
            for entity, side in sides
            for handler in self.places.get((entity, side.kind), ())
        ]

"""Totals: changes in a row whose handlers only add up become one pending change, a block.

What an aggregate makes of a thousand changes is a few sums. Each for itself, the changes would have
outcomes, effects and actions that are folded into the same few actions at the commit.

In: records, with the handlers that listen to them. Out: a pending change at the position of the
last record, whose actions are those of all records together. On failure nothing is lost: a change
that does not simply add up is refused here, and goes its own way; a block that cannot be committed
is taken apart into its changes (`Dispatcher.apart`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.changes import Kind
from streamkit.core.failures import Failures
from streamkit.core.handler import Adder, Handler, Totals
from streamkit.core.outcome import Aim, Outcome, PendingChange, resolve
from streamkit.core.typed import Images, TypedChanges
from streamkit.entity import Entity
from streamkit.observe.meters import Meters
from streamkit.progress.actions import ITEMS_MAX
from streamkit.progress.pacing import GIVE_WAY_SECONDS
from streamkit.stream.decode import Record

_ITEMS_MAX = ITEMS_MAX // 3
"""Items of a block. A commit ends between two blocks, and should be nearly full all the same."""


@dataclass(slots=True)
class _Sums:
    """The totals of one handler in one block, with the time that its code took for them."""

    handler: Handler
    totals: Totals
    times: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Adders:
    """Knows which changes only add up: `handlers` are their handlers, by entity and kind.

    `images` decode what these handlers read of a change.
    """

    handlers: Mapping[tuple[type[Entity], Kind], Sequence[Handler]]
    images: Mapping[tuple[type[Entity], Kind], Callable[[Record], Images]]
    aim: Aim
    failures: Failures
    meters: Meters

    @classmethod
    def of(
        cls,
        listeners: Mapping[tuple[type[Entity], Kind], Sequence[Handler]],
        typed: TypedChanges,
        aim: Aim,
        failures: Failures,
        meters: Meters,
    ) -> "Adders":
        """Find them among the listeners of an app.

        A change of an entity that handlers write may carry an origin, which belongs to it alone.
        """
        fed = aim.cascades.fed()
        found = {
            place: handlers
            for place, handlers in listeners.items()
            if place[0] not in fed and all(_adds_up(handler, aim) for handler in handlers)
        }
        images = {
            place: typed.reader(place[0], _fields(handlers)) for place, handlers in found.items()
        }
        return cls(found, images, aim, failures, meters)


def _adds_up(handler: Handler, aim: Aim) -> bool:
    """Return whether a handler's changes may be summed up before they become effects.

    Where handlers listen to what it writes, each effect carries the origin of its own change.
    """
    leaves = any(aim.cascades.leaves_origin(entity) for entity in handler.writes or ())
    return isinstance(handler.run, Adder) and not (handler.shadow or handler.when or leaves)


def _fields(handlers: Sequence[Handler]) -> tuple[str, ...] | None:
    """Return the fields that handlers read together; None if one does not say."""
    fields: dict[str, None] = {}
    for handler in handlers:
        if handler.fields is None:
            return None
        fields |= dict.fromkeys(handler.fields)
    return tuple(fields)


@dataclass(slots=True)
class Block:
    """Makes blocks of the changes of a page, and puts them into the page's `pending` changes.

    With `marks`, each item of its changes takes an action of the commit, too: its high-water mark.
    `as_run` says what runs in a handler's place on this shard. `apart` makes pending changes of a
    block's changes, each for itself, where its sums cannot be stored.
    """

    adders: Adders
    pending: list[PendingChange]
    as_run: Callable[[Handler, Record], Handler | None]
    apart: Callable[[Sequence[PendingChange]], list[PendingChange]]
    marks: bool = False
    _records: list[tuple[Record, type[Entity]]] = field(default_factory=list)
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def takes(self, record: Record, entity: type[Entity]) -> bool:
        """Add a change to the block; False if it goes its own way, and meets its error there."""
        handlers = self.adders.handlers.get((entity, record.kind), ())
        if not handlers:
            return False
        for handler in handlers:
            if self.as_run(handler, record) is not handler:
                return False
        now = self.adders.failures.clock.monotonic
        found = []
        try:
            old, new = self.adders.images[entity, record.kind](record)
            began = now()
            for handler in handlers:
                sums = self._sums.get(handler.name) or self._begin(handler)
                deltas = sums.totals.deltas(old, new)
                ended = now()
                found.append((sums, deltas, ended - began))
                began = ended
        except Exception:  # noqa: BLE001 - whatever user code raises
            return False
        self._records.append((record, entity))
        for sums, deltas, seconds in found:
            sums.totals.add(deltas)
            sums.times += 1
            sums.seconds += seconds
            if seconds > GIVE_WAY_SECONDS:
                self.adders.failures.name_slow(sums.handler, seconds)
        marks = len(self._records) if self.marks else 0
        if marks + sum(len(sums.totals) for sums in self._sums.values()) >= _ITEMS_MAX:
            self.close()
        return True

    def close(self) -> None:
        """End the block, and begin a new one."""
        if not self._records:
            return
        records, sums = self._records, self._sums
        self._records, self._sums = [], {}
        (first, entity), (last, _) = records[0], records[-1]
        change = PendingChange(
            last.position, last.created_at, first, entity, last.item_key, block=records
        )
        aim, failures = self.adders.aim, self.adders.failures
        try:
            for one in sums.values():
                outcome = Outcome(one.handler, run=1, aim=aim, times=one.times)
                resolve(outcome, one.totals.effects(), (), change.position, aim.tables.own)
                change.outcomes.append(outcome)
        except Exception:  # noqa: BLE001 - the change at fault meets it again on its own way
            self.pending += self.apart([change])
            return
        now = failures.clock.monotonic()
        for one in sums.values():
            failures.worked(one.handler, now, one.times)
            seconds = self.adders.meters.handler(one.handler.name).seconds
            for _ in range(one.times):
                seconds.record(one.seconds / one.times)
        self.pending.append(change)

    def _begin(self, handler: Handler) -> _Sums:
        assert isinstance(handler.run, Adder)  # noqa: S101 - `Adders` has looked
        sums = self._sums[handler.name] = _Sums(handler, handler.run.totals())
        return sums

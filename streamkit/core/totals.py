"""Totals: changes in a row whose handlers add up, or write plainly, become one pending change.

What an aggregate makes of a thousand changes is a few sums. One by one, the changes would have
outcomes, effects and actions that are folded into the same few actions at the commit. A handler
that does not add up joins the same block, the pending change, with results that only write items.

In: records, with the handlers that listen to them. Out: a pending change at the position of the
last record, whose actions are those of all records together. On failure nothing is lost: a change
that is not so simple is refused here, and goes its own way; a block that cannot be committed is
taken apart into its changes (`Dispatcher.apart`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.changes import ChangeSource
from streamkit.core.draft import CLAUSES_MAX
from streamkit.core.failures import Failures
from streamkit.core.handler import Adder, Handler, Totals
from streamkit.core.listeners import Place
from streamkit.core.outcome import Aim, Outcome, PendingChange, resolve
from streamkit.core.typed import Images, TypedChanges, source_of
from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS
from streamkit.observe.meters import Meters
from streamkit.progress.actions import BYTES_MAX, ITEMS_MAX, ItemRef
from streamkit.progress.pacing import GIVE_WAY_SECONDS
from streamkit.stream.decode import Record

_ITEMS_MAX, _BYTES_MAX = ITEMS_MAX // 3, BYTES_MAX // 3
"""Size of a block. A commit ends between two blocks, and should be nearly full all the same."""
_FULL = ITEMS_MAX - 5
"""With marks, or with written items, a block fills a commit, except for what its last change adds:
each further block would sum up the same groups again."""


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

    `mixed` are all handlers of changes of which some handlers do not add up; `adding` are those
    that do, by name. `images` decode what these read of a change.
    """

    handlers: Mapping[Place, Sequence[Handler]]
    mixed: Mapping[Place, Sequence[Handler]]
    adding: Mapping[Place, Mapping[str, Handler]]
    images: Mapping[Place, Callable[[Record, ChangeSource | None], Images]]
    aim: Aim
    failures: Failures
    meters: Meters

    @classmethod
    def of(
        cls,
        listeners: Mapping[Place, Sequence[Handler]],
        typed: TypedChanges,
        aim: Aim,
        failures: Failures,
        meters: Meters,
    ) -> "Adders":
        """Return the adders among the listeners of an app.

        A change of an entity that handlers write may carry an origin, which belongs to it alone.
        """
        fed = aim.cascades.fed()
        found: dict[Place, Sequence[Handler]] = {}
        mixed: dict[Place, Sequence[Handler]] = {}
        adding: dict[Place, Mapping[str, Handler]] = {}
        images: dict[Place, Callable[[Record, ChangeSource | None], Images]] = {}
        for place, handlers in listeners.items():
            adds = [handler for handler in handlers if isinstance(handler.run, Adder)]
            joining = place[0] not in fed and all(_joins(handler, aim) for handler in handlers)
            if adds and joining:
                (found if len(adds) == len(handlers) else mixed)[place] = handlers
                adding[place] = {handler.name: handler for handler in adds}
                images[place] = typed.reader(place[0], _fields(adds))
        return cls(found, mixed, adding, images, aim, failures, meters)


def _joins(handler: Handler, aim: Aim) -> bool:
    """Return whether a handler's effects may be stored together with those of other changes.

    Where handlers listen to what it writes, each effect carries the origin of its own change.
    """
    told = handler.writes is not None or isinstance(handler.run, Adder)
    leaves = any(aim.cascades.leaves_origin(entity) for entity in handler.writes or ())
    apart = handler.is_async or handler.raw or handler.shadow or handler.when or handler.sends
    return told and not (leaves or apart)


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
    _written: dict[str, Outcome] = field(default_factory=dict)
    _refs: set[ItemRef] = field(default_factory=set)
    _items: int = 0
    _bytes: int = 0

    def takes(self, record: Record, entity: type[Entity]) -> bool:
        """Add a change to the block; False if it goes its own way, and meets its error there."""
        place = (entity, record.kind)
        handlers = self.adders.handlers.get(place, ())
        if not handlers:
            return False
        for handler in handlers:
            if self.as_run(handler, record) is not handler:
                return False
        return self._add(record, place, handlers)

    def beside(self, change: PendingChange) -> list[Outcome] | None:
        """Return the outcomes of a change that do not add up; None if it cannot join a block."""
        record, entity = source_of(change)
        place = (entity, record.kind)
        handlers = self.adders.mixed.get(place, ())
        if [id(outcome.handler) for outcome in change.outcomes] != [id(h) for h in handlers]:
            return None
        adding = self.adders.adding.get(place, ())
        return [outcome for outcome in change.outcomes if outcome.handler.name not in adding]

    def joins(self, change: PendingChange, beside: Sequence[Outcome]) -> bool:
        """Add a change, with what its handlers that do not add up have written (`beside`).

        False if a result is not plain, or two of them write one item: it goes its own way.
        """
        record, entity = source_of(change)
        refs = [ref for outcome in beside for ref in outcome.actions]
        if len(set(refs)) < len(refs) or not all(outcome.is_plain for outcome in beside):
            return False
        if not self._refs.isdisjoint(refs) or self._items + len(refs) > _FULL:
            self.close()  # blocks are in order, the writes within one are not
        place = (entity, record.kind)
        adding = self.adders.adding[place].values()
        return self._add(record, place, adding, beside, change.images)

    def _add(
        self,
        record: Record,
        place: Place,
        handlers: Iterable[Handler],
        beside: Sequence[Outcome] = (),
        shared: ChangeSource | None = None,
    ) -> bool:
        now = self.adders.failures.clock.monotonic
        found = []
        try:
            old, new = self.adders.images[place](record, shared)
            began = now()
            for handler in handlers:
                sums = self._sums.get(handler.name) or self._begin(handler)
                deltas = sums.totals.deltas(old, new)
                ended = now()
                found.append((sums, deltas, ended - began))
                began = ended
        except USER_ERRORS:  # the user code that runs here may raise anything
            return False
        self._records.append((record, place[0]))
        for sums, deltas, seconds in found:
            sums.totals.add(deltas)
            sums.times += 1
            sums.seconds += seconds
            if seconds > GIVE_WAY_SECONDS:
                self.adders.failures.name_slow(sums.handler, seconds)
        for outcome in beside:
            self._write(outcome)
        marks = len(self._records) if self.marks else 0
        groups, widest = 0, 0
        for sums in self._sums.values():
            groups += len(sums.totals)
            widest = max(widest, sums.totals.widest)
        self._items = marks + len(self._refs) + groups
        most = _FULL if self.marks or self._refs else _ITEMS_MAX
        # A `Distinct` adds to an attribute for each value: one group may be too much for an update.
        if widest >= CLAUSES_MAX or self._items >= most or self._bytes >= _BYTES_MAX:
            self.close()
        return True

    def _write(self, outcome: Outcome) -> None:
        """Add the actions of an outcome to those of the same handler in the block."""
        there = self._written.setdefault(outcome.handler.name, outcome)
        if there is not outcome:
            there.actions.update(outcome.actions)
            there.times += 1
        self._refs.update(outcome.actions)
        for action in outcome.actions.values():
            self._bytes += action.size()

    def close(self) -> None:
        """End the block, and begin a new one."""
        if not self._records:
            return
        records, sums, written, refs = self._records, self._sums, self._written, self._refs
        self._records, self._sums, self._written, self._refs = [], {}, {}, set()
        self._items = self._bytes = 0
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
            mixed = any(not refs.isdisjoint(outcome.actions) for outcome in change.outcomes)
        except USER_ERRORS:  # the change at fault meets it again on its own way
            mixed = True
        if mixed:  # sums are added at the end: an item must not be written in between
            self.pending += self.apart([change])
            return
        change.outcomes += written.values()
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

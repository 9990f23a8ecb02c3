"""Pending changes and outcomes: the changes of a page between dispatch and commit.

A `PendingChange` has the outcome of each handler that listens to it. Pending changes wait in the
order of their shard until they are committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamkit.changes import ChangeSource, ItemKey
from streamkit.core.cascades import Cascades
from streamkit.core.completion import completion
from streamkit.core.handler import Handler
from streamkit.core.parking import Failure
from streamkit.core.reads import Read
from streamkit.core.tables import Tables
from streamkit.core.writes import check_writes, entity_of
from streamkit.effects import Completed, Effect, Send
from streamkit.entity import Entity
from streamkit.model.origin import APPLICATION, WriteOrigin
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import BYTES_MAX, ITEMS_MAX, Action, GuardSource, ItemRef
from streamkit.progress.compile import compile_effect
from streamkit.progress.fold import merge_within
from streamkit.progress.own_effects import Noted
from streamkit.stream.decode import Record, Side


@dataclass(frozen=True, slots=True)
class Aim:
    """Where effects go: the tables, which items get an origin, and the hops of the change."""

    tables: Tables
    cascades: Cascades
    hops: int = 0


@dataclass(slots=True)
class Outcome:
    """What one handler made of one change.

    `waiting` means that the handler must run (again) before the change can be committed. `run`
    numbers the runs, so that a result that saw the pending effects of an earlier run is recognised
    as stale. `sent` says that its `sends` are delivered. `deferred` moves the change to its parked
    queue without a failure: it is parked, due at once, and continues there beside the shard.
    `trial` is what a shadow handler would have written. `trace` is the `traceparent` of the
    handler's last run, if its change was traced. `to` names the recipient, in a fan-out. `times` is
    how many changes it sums up.
    """

    handler: Handler
    effects: tuple[Effect, ...] = ()
    actions: dict[ItemRef, Action] = field(default_factory=dict)
    reads: tuple[Read, ...] = ()
    failure: Failure | None = None
    waiting: bool = False
    run: int = 0
    refusals: int = 0
    omitted: frozenset[int] = frozenset()
    sends: tuple[Send, ...] = ()
    sent: bool = False
    deferred: bool = False
    aim: Aim | None = None
    trial: tuple[Action, ...] = ()
    trace: str = ""
    to: str = ""
    times: int = 1

    @property
    def parks(self) -> bool:
        """Return whether the change goes into its parked queue."""
        return self.deferred or self.failure is not None

    @property
    def is_plain(self) -> bool:
        """Return whether it only writes items, without conditions: nothing can refuse it."""
        if self.waiting or self.parks or self.sends or self.reads:
            return False
        return not any(a.guards or a.plain or a.is_control for a in self.actions.values())

    @property
    def items(self) -> set[ItemRef]:
        """Return the items that the outcome writes or checks in a commit."""
        return {*self.actions, *(read.ref for read in self.reads if read.conditions)}

    def give_up(self, failure: Failure) -> None:
        """Apply the handler's policy for failures: park, drop, or run until it succeeds."""
        policy = self.handler.policy.on_failure
        if policy == "skip" and self.handler.broadcast is not None:
            self.defer()  # in the parked queue only the recipients that fail are skipped
        elif policy == "skip":
            self.drop()
        elif policy == "block":
            self.waiting, self.refusals = True, 0
        else:
            self.fail(failure)

    def fail(self, failure: Failure) -> None:
        """Mark the change to be parked for this handler."""
        self.drop()
        self.failure = failure

    def defer(self) -> None:
        """Move the change to its parked queue, because it would hold up the shard."""
        self.drop()
        self.deferred = True

    def drop(self) -> None:
        """Finish the change for this handler without any effect."""
        self.effects, self.actions, self.reads, self.sends = (), {}, (), ()
        self.failure, self.waiting, self.deferred = None, False, False


@dataclass(slots=True)
class PendingChange:
    """One pending change and its outcomes; without a record it only marks how far a page reaches.

    `dated` is when the change at its position was created, in epoch seconds. `images` are the old
    and the new one, which handlers share. `origin` is what wrote the change.
    `trace` is the `traceparent` of the writer. A `block` stands for several changes in a row, each
    with its entity, whose handlers add up or write plainly; `position` is that of the last one.
    If the change gave the item another type, `sides` are the record as each entity sees it.
    """

    position: str
    dated: float
    record: Record | None = None
    entity: type[Entity] | None = None
    key: ItemKey | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    page_bytes: int = 0
    images: ChangeSource | None = None
    origin: WriteOrigin = APPLICATION
    trace: str = ""
    block: Sequence[tuple[Record, type[Entity]]] = ()
    sides: Sequence[Side] = ()
    _steps: Sequence[tuple[ItemKey, str]] = ()

    @property
    def steps(self) -> Sequence[tuple[ItemKey, str]]:
        """Return the item of each change that it stands for, and the position of the change."""
        if self.block and not self._steps:
            self._steps = [(record.item_key, record.position) for record, _ in self.block]
        elif self.key is not None and not self._steps:
            self._steps = ((self.key, self.position),)
        return self._steps

    def seen_by(self, handler: Handler) -> tuple[Record | None, type[Entity] | None]:
        """Return the record as a handler sees it, and its entity there."""
        for entity, record in self.sides:
            if entity is handler.entity:
                return record, entity
        return self.record, self.entity


def resolve(
    outcome: Outcome,
    effects: tuple[Effect, ...],
    reads: Sequence[Read],
    position: str,
    schema: TableSchema,
) -> None:
    """Fill in the outcome of a successful run: its effects become at most one action per item.

    Raises:
        ValueError: an effect cannot be stored, two effects contradict each other, or the result is
            too large for one transaction.
        UndeclaredWrite: an effect writes an entity that the handler does not declare.
        UnknownTable: an effect goes to a table that is not described yet.
    """
    if not (effects or reads):
        outcome.drop()
        return
    check_writes(outcome.handler, effects, schema.name)
    actions: dict[ItemRef, Action] = {}
    for index, effect in enumerate(effects):
        if index in outcome.omitted or isinstance(effect, Send):
            continue
        source = GuardSource(position, outcome.handler.name, index)
        action = _compile(effect, outcome, source, schema)
        there = actions.get(action.ref)
        merged = action if there is None else merge_within(there, action)
        if merged is None:
            raise ValueError(
                f"two effects on one item cannot be merged ({type(effect).__name__} is the second)"
            )
        actions[action.ref] = merged
    outcome.reads = tuple(reads)
    checked = {read.ref for read in outcome.reads if read.conditions}
    refs = actions.keys() | checked if checked else actions.keys()
    if len(refs) > ITEMS_MAX:
        raise ValueError(
            f"a result of {len(refs)} items does not fit in one transaction ({ITEMS_MAX});"
            " spread it over several changes"
        )
    size = sum([100 + len(ref.pk[1]) + len(ref.sk[1] if ref.sk else "") for ref in checked])
    for action in actions.values():
        size += action.size()
    if size > BYTES_MAX:
        raise ValueError("a result of more than 4 MB does not fit in one transaction")
    outcome.effects, outcome.actions = effects, actions
    outcome.sends = tuple([effect for effect in effects if isinstance(effect, Send)])
    outcome.failure, outcome.waiting, outcome.deferred = None, False, False
    outcome.sent = not outcome.sends


def _compile(effect: Effect, outcome: Outcome, source: GuardSource, schema: TableSchema) -> Action:
    """Turn an effect into an action on its table; give it an origin if a handler listens to it."""
    aim = outcome.aim or Aim(Tables(schema), Cascades())
    if isinstance(effect, Completed):
        return completion(effect, aim.tables.control)
    if isinstance(effect, Noted):
        noted: Action = effect.action
        return noted
    table = aim.tables.known(effect.table)
    action = compile_effect(effect, table, source)
    entity = entity_of(effect)
    if entity is not None and table is schema and aim.cascades.leaves_origin(entity):
        trace = outcome.trace
        action.leave_origin(
            aim.cascades.origin_text(source.handler, source.position, aim.hops, trace)
        )
    return action

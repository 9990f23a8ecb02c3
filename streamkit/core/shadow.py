"""Shadow handlers run on every change; their effects are compared instead of applied.

In: the effects that a shadow handler returned. They are kept with their change until it is
committed, as if there were no such handler. Then they are compared with the table, beside the
shard: would applying them change the item as it is now? Conditions are not checked: the question is
whether the item is as the effect would leave it. So a new version of a handler that runs beside the
old one finds every item as it would write it; an `Add` never does.

Out: counts for each handler, and a bounded number of log lines with attribute names and hashed
keys. On failure: it is counted. Nothing here parks, blocks or sends. At most a thousand results
wait for their comparison; further ones are not compared, and are counted as missed.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamkit.core.handler import Handler
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.errors import USER_ERRORS
from streamkit.model.codec import decode, key_digest
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action, ItemRef, Verb, Wire, item_ref
from streamkit.progress.clock import Clock
from streamkit.progress.fetch import fetch_all
from streamkit.progress.updates import apply

log = get_logger("streamkit.shadow")

_WAITING_MAX = 1000
"""The most results that wait for comparison: a few seconds' worth, at some hundred changes a
second."""
_LINES = (20, 60.0)
"""The most log lines for a handler, and the seconds to which this limit applies."""
_NAMES_MAX = 20


@dataclass(slots=True)
class ShadowCounts:
    """Counts of a shadow handler's results: `same` and `different` count items, `runs` changes.

    `same` and `different` say whether an item was as the effect would have left it. `failed` counts
    runs and comparisons. `sent` counts the `Send`s that were left out; `missed` the results that
    were not compared.
    """

    runs: int = 0
    same: int = 0
    different: int = 0
    failed: int = 0
    sent: int = 0
    missed: int = 0


@dataclass
class Shadows:
    """The shadow handlers of one worker."""

    clock: Clock
    counts: dict[str, ShadowCounts]
    _waiting: deque[tuple[Handler, Sequence[Action]]] = field(default_factory=deque)
    _woken: anyio.Event = field(default_factory=anyio.Event)
    _lines: dict[str, deque[float]] = field(default_factory=dict)

    async def attempt(self, attempt: Callable[[], Awaitable[None]], outcome: Outcome) -> None:
        """Run a handler once; its policy for failures does not apply."""
        try:
            await attempt()
        except USER_ERRORS as error:  # what user code raises is its failure
            self.failed(outcome, error)
        else:
            self.ran(outcome)

    def ran(self, outcome: Outcome) -> None:
        """Take a result out of the commit, and keep it until its change is committed."""
        handler, actions = outcome.handler, tuple(outcome.actions.values())
        counts = self._of(handler)
        counts.runs += 1
        counts.sent += len(outcome.sends)
        outcome.drop()
        if handler.shadow != "log":
            outcome.trial = actions
            return
        for action in actions:
            self._say(handler, action, "effect", names_of(action))

    def failed(self, outcome: Outcome, error: BaseException) -> None:
        """Count a run that failed; its change goes on as if there were no such handler."""
        counts = self._of(outcome.handler)
        counts.runs += 1
        self._fail(outcome.handler, error)
        outcome.drop()

    def committed(self, change: PendingChange) -> None:
        """Queue the results of a change's shadow handlers for comparison."""
        for outcome in change.outcomes:
            if not outcome.trial:
                continue
            if len(self._waiting) >= _WAITING_MAX:
                self._of(outcome.handler).missed += 1
                continue
            self._waiting.append((outcome.handler, outcome.trial))
            self._woken.set()

    async def compare_for_ever(self, dynamodb: Any, schemas: Mapping[str, TableSchema]) -> None:
        """Compare results as they come, until cancelled."""
        while True:
            await self.compare(dynamodb, schemas)
            self._woken = anyio.Event()
            await self._woken.wait()

    async def compare(self, dynamodb: Any, schemas: Mapping[str, TableSchema]) -> None:
        """Compare the waiting results, one change after the other."""
        while self._waiting:
            handler, actions = self._waiting.popleft()
            try:
                await self._compare(dynamodb, schemas, handler, actions)
            except USER_ERRORS as error:  # a comparison must not end a worker
                self._fail(handler, error)

    async def _compare(
        self,
        dynamodb: Any,
        schemas: Mapping[str, TableSchema],
        handler: Handler,
        actions: Sequence[Action],
    ) -> None:
        writes = [a for a in actions if a.verb is not Verb.CHECK and not a.is_control]
        stored: dict[ItemRef, dict[str, Wire]] = {}
        for name in {action.ref.table for action in writes}:
            schema = schemas[name]
            keys = [action.ref.key(schema) for action in writes if action.ref.table == name]
            items = await fetch_all(dynamodb, name, keys)
            stored |= {item_ref(schema, item): item for item in items}
        counts = self._of(handler)
        for action in writes:
            names = differences(action, stored.get(action.ref), schemas[action.ref.table])
            if names is None:
                counts.same += 1
            else:
                counts.different += 1
                self._say(handler, action, "different", names)

    def _of(self, handler: Handler) -> ShadowCounts:
        return self.counts.setdefault(handler.name, ShadowCounts())

    def _fail(self, handler: Handler, error: BaseException) -> None:
        self._of(handler).failed += 1
        if self._may_speak(handler):
            log.info(
                "handler.shadow",
                handler=handler.name,
                result="failed",
                error=type(error).__name__,
            )

    def _say(self, handler: Handler, action: Action, result: str, names: Sequence[str]) -> None:
        if self._may_speak(handler):
            log.info(
                "handler.shadow",
                handler=handler.name,
                result=result,
                effect=action.verb.name.lower(),
                key=digest_of(action.ref),
                attributes=list(names[:_NAMES_MAX]),
            )

    def _may_speak(self, handler: Handler) -> bool:
        most, seconds = _LINES
        now, said = self.clock.monotonic(), self._lines.setdefault(handler.name, deque())
        while said and said[0] <= now - seconds:
            said.popleft()
        if len(said) >= most:
            return False
        said.append(now)
        return True


def names_of(action: Action) -> list[str]:
    """Return the names of the attributes that an action writes."""
    parts = (action.item, action.sets, action.removes, action.adds)
    names = {name for part in (*parts, action.unions, action.subtractions) for name in part}
    return sorted(names)


def digest_of(ref: ItemRef) -> str:
    """Hash an item's key, as `Key.digest` does."""
    return key_digest(ref.pk[1]) if ref.sk is None else key_digest(ref.pk[1], ref.sk[1])


def differences(
    action: Action, item: dict[str, Wire] | None, schema: TableSchema
) -> list[str] | None:
    """Return the attributes that an action would change in an item; None if it changes nothing.

    The list is empty if an item would be created or deleted that has only its key.

    Raises:
        ValueError: the action does not fit the item's attribute types.
    """
    after = apply(action, item)
    if item is None or after is None:
        if item is after:
            return None
        return sorted((after or item or {}).keys() - schema.key_attributes - {ORIGIN})
    ignored = {*schema.key_attributes, ORIGIN}
    names = [
        name
        for name in sorted((item.keys() | after.keys()) - ignored)
        if name not in item or name not in after or decode(item[name]) != decode(after[name])
    ]
    return names or None

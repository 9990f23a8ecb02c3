"""Keep the place of a fan-out, which says how far its audience is served, and fences its commits.

In: plans over recipients, each a pending change of its own. Out: transactions, each with effects
for some recipients and the place that they reach, IF the fan-out's queue item is still at the place
before, by token and by count. So a crash neither doubles nor skips a recipient, and two workers
that hold one queue do not disturb each other. A place that no effect has carried is kept in memory,
and rides with the next commit. On failure: a queue item at another place means that another worker
has served on.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamkit.core.loop import Overtaken
from streamkit.core.outcome import PendingChange
from streamkit.core.parked.queues import ParkedQueue
from streamkit.core.parking import Parked
from streamkit.effects import Guard
from streamkit.kinds.fan_out.audience import Recipient
from streamkit.model.conditions import Attr, ConditionBase
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import QUEUE, Action, GuardSource
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import Cursor, QueuedKey
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid, RefusedCommit

_START = Cursor("place")
"""The start of planning: recipients have no positions; those that are pending are not served."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a fan-out has come; `token` is None at the beginning.

    `apart` counts the served recipients for whom the change is parked instead.
    """

    token: str | None
    served: int
    apart: int


@dataclass
class FanOutPlace:
    """A fan-out's place as a fence: effects for recipients commit IF it is as it was read.

    `written` is what the queue item says, `reached` is what is done. `set_aside` is told of the
    queues of recipients that are parked, with the name of the fan-out's. `overtaken` says that
    another worker serves this audience.
    """

    store: CursorStore
    schemas: Mapping[str, TableSchema]
    queue: ParkedQueue
    head: Parked
    rng: random.Random
    set_aside: Callable[[str, Mapping[str, QueuedKey]], object]
    written: Reached = field(init=False)
    reached: Reached = field(init=False)
    overtaken: bool = False
    _tokens: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start at the place in the queue item."""
        queue = self.queue
        self.written = self.reached = Reached(queue.token, queue.served, queue.apart)

    def number(self, recipients: Iterable[Recipient]) -> list[tuple[str, Recipient]]:
        """Return recipients, each with a position that no other one of the audience has."""
        first = self.reached.served
        found = [(f"{self.head.position}:{n:09}", r) for n, r in enumerate(recipients, first)]
        self._tokens = {position: recipient.token for position, recipient in found}
        return found

    def pass_over(self, token: str) -> None:
        """Move on, because a page of the audience had no recipients."""
        self.reached = replace(self.reached, token=token)

    async def persist(self) -> None:
        """Write the place, if no commit has carried it; a place that was overtaken is dropped."""
        if self.reached != self.written and await self._write(self.reached, ()) is None:
            self.written = self.reached

    # -- the place as a fence ------------------------------------------------------------------

    @property
    def start(self) -> Cursor:
        """Return a cursor without a position: recipients that are served are not pending."""
        return _START

    async def commit(self, plan: Batch, pending: Sequence[PendingChange]) -> Verdict | Overtaken:
        """Commit effects for recipients with the place behind them."""
        reached = self._behind(plan, pending)
        verdict = await self._write(reached, plan.actions)
        if verdict is None:
            self.written = reached
            return Applied(plan)
        mine = GuardSource(self.head.position, self.queue.name, QUEUE)
        if isinstance(verdict, RefusedCommit) and mine in verdict.sources:
            self.overtaken = True
            return Overtaken(())
        return verdict

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> list[PendingChange]:
        """Drop the recipients that a plan serves; their change was counted when it was parked."""
        self.reached = self._behind(plan, pending)
        for _ in range(plan.changes):
            pending.popleft()
        return []

    def adopted(self, won: Batch) -> None:
        """Report the recipients for whom the change is parked."""
        if won.queued:
            self.set_aside(self.queue.name, won.queued)

    def _behind(self, plan: Batch, pending: Sequence[PendingChange]) -> Reached:
        """Return the place behind the recipients of a plan."""
        there = self.reached
        token = self._tokens[pending[plan.changes - 1].position] if plan.changes else there.token
        return Reached(token, there.served + plan.changes, there.apart + len(plan.queued))

    async def _write(
        self, reached: Reached, actions: Sequence[Action]
    ) -> RefusedCommit | Invalid | None:
        """Write effects and the place that they reach, IF the queue item is where it was."""
        write = self.store.space.update("lane", self.queue.name)
        write.sets |= {"token": {"S": reached.token or ""}, "served": {"N": str(reached.served)}}
        if reached.apart:
            write.sets["apart"] = {"N": str(reached.apart)}
        source = GuardSource(self.head.position, self.queue.name, QUEUE)
        # Its parked recipients are listed in the same chunk, so the chunk must not have changed.
        is_first = Attr("head").eq(self.head.position) & Attr("chunk").eq(self.queue.chunk)
        write.guards.append((Guard(is_first & _is_at(self.written)), source))
        return await transact(self.store.dynamodb, self.schemas, [write, *actions], self.rng)


def _is_at(place: Reached) -> ConditionBase:
    """Return the condition that a fan-out has come as far as this.

    The count is checked too, because a generator's tokens are the user's and may not move on.
    """
    if place.token is None:
        return Attr("token").not_exists()
    return Attr("token").eq(place.token) & Attr("served").eq(place.served)

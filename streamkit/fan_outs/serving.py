"""Serving: recipients of a fan-out, made ready for one transaction.

In: the next recipients of an audience. Out: their effects, folded into one draft as far as they
fit, delivered where they are to be sent; and what a refused transaction means for each of them.

On failure: a recipient that still fails after its handler's attempts is parked in a lane of its own
(one of a generator, which nobody can find again, stops the fan-out there until it succeeds). While
most of them fail, or too many are parked already, the fan-out itself has failed.
"""

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.actions import ITEMS_MAX, LANE, Action
from streamkit.changes import Change
from streamkit.clock import Clock
from streamkit.control import ControlSpace
from streamkit.handler import Broadcast, Handler, OnFailure
from streamkit.kinds.audience import Recipient
from streamkit.model.tables import Tables
from streamkit.pacing import Turn
from streamkit.parked.listing import HeldLane
from streamkit.processing.attempts import Attempts
from streamkit.processing.breaker import LEAST
from streamkit.processing.dispatch import Tools
from streamkit.processing.failures import Counts, Failures
from streamkit.processing.outcome import Outcome, Work, resolve, with_reads
from streamkit.processing.parking import (
    Failure,
    Hold,
    Parked,
    ParkedRecord,
    next_due,
    park,
    payload_of,
    stored,
)
from streamkit.processing.planning import Draft
from streamkit.processing.reading import ReadTracker
from streamkit.processing.refusal import contended, refuse
from streamkit.processing.sending import Sending
from streamkit.processing.verdicts import Invalid, Refused
from streamkit.sinks.outlets import Outlets

TOGETHER = ITEMS_MAX
"""Recipients of one transaction, if each has one effect."""
APART_MAX = 1000
"""Recipients of one fan-out that are parked at most: their lanes' names share an item of 400 KB."""


@dataclass(frozen=True, slots=True)
class FanOutChange:
    """A change that is being fanned out: typed, as a work, and as it is parked.

    `breaks`: it fails itself while most of its recipients do.
    """

    handler: Handler
    broadcast: Broadcast
    change: Change[Any]
    work: Work
    held: HeldLane
    head: Parked
    breaks: bool

    @classmethod
    def of(
        cls,
        handler: Handler,
        broadcast: Broadcast,
        change: Change[Any],
        work: Work,
        held: HeldLane,
        head: Parked,
        *,
        by_hand: bool,
    ) -> "FanOutChange":
        """Make one whose recipients fail each for itself: none blocks, and none fans out again.

        By hand, each recipient that fails is parked, however many others do.
        """
        policy = handler.policy
        breaks = policy.breaker and not by_hand
        on_failure: OnFailure = "skip" if policy.on_failure == "skip" else "park"
        policy = replace(policy, on_failure=on_failure, breaker=False)
        alone = replace(handler, policy=policy, broadcast=None)
        return cls(alone, broadcast, change, work, held, head, breaks)

    def lane_of(self, recipient: Recipient) -> str:
        """Name the lane in which the change is parked for one recipient alone."""
        text = f"{self.held.name}\0{self.head.position}\0{recipient.name}"
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(slots=True)
class Served:
    """A recipient, a place in the audience that no other has, and what was made of it."""

    place: str
    recipient: Recipient
    outcome: Outcome

    @property
    def failed(self) -> bool:
        """Whether it fails for now; one that never heals is no sign that others fail, too."""
        return self.outcome.failure is not None and self.outcome.failure.heals


@dataclass
class Serving:
    """Serves recipients for one worker."""

    space: ControlSpace
    tables: Tables
    tools: Tools
    outlets: Outlets
    rng: random.Random
    clock: Clock
    _attempts: Attempts = field(init=False)
    _sending: Sending = field(init=False)
    _turn: Turn = field(init=False)

    def __post_init__(self) -> None:
        """Count failures apart from those of shards."""
        self._attempts = Attempts(Failures(Counts(), self.clock), self.rng)
        self._sending = Sending(self.outlets, self._attempts, patience=math.inf)
        self._turn = Turn(self.clock)

    def begin(
        self, fanned: FanOutChange, number: int, recipients: Iterable[Recipient]
    ) -> list[Served]:
        """Return recipients that are to be run; the first one is the audience's `number`-th."""
        (first,) = fanned.work.outcomes
        trace = fanned.work.trace
        return [
            Served(
                f"{fanned.head.position}:{place}",
                recipient,
                Outcome(
                    fanned.handler, waiting=True, aim=first.aim, trace=trace, to=recipient.name
                ),
            )
            for place, recipient in enumerate(recipients, number)
        ]

    async def run(self, fanned: FanOutChange, batch: Sequence[Served]) -> Failure | None:
        """Make the effects for those that wait; return why not to go on, if most of them fail."""
        async with anyio.create_task_group() as group:
            for served in batch:
                if served.outcome.waiting:
                    group.start_soon(self._run, fanned, served)
        failing = [served.outcome.failure for served in batch if served.failed]
        if fanned.breaks and len(batch) >= LEAST and 2 * len(failing) > len(batch):
            return failing[0]
        return None

    async def _run(self, fanned: FanOutChange, served: Served) -> None:
        """Make the effects for one recipient, with the handler's attempts."""
        handler, outcome, recipient = fanned.handler, served.outcome, served.recipient

        async def attempt() -> None:
            await self._turn.give_way()
            outcome.run += 1
            if recipient.error is not None:
                raise recipient.error
            tracker = ReadTracker()
            tools = self.tools(handler, tracker)
            with anyio.fail_after(handler.policy.timeout_seconds):
                effects = await fanned.broadcast.serve(fanned.change, recipient.to, tools)
            resolve(outcome, effects, tracker.reads, served.place, self.tables.own)

        async def informed() -> None:
            await self.tables.learning(attempt)

        outcome.failure, outcome.waiting = None, False
        await self._attempts.persist(informed, fanned.work, outcome, fanned.head.shard, None)

    def pack(
        self, fanned: FanOutChange, batch: Sequence[Served], apart: int
    ) -> tuple[Draft, Sequence[Served]]:
        """Fold what fits into one transaction, in order, up to a recipient who has to wait.

        Args:
            fanned: the change.
            batch: recipients whose effects are made.
            apart: how many recipients of the change are parked already.
        """
        draft = Draft()
        for count, served in enumerate(batch):
            outcome = served.outcome
            writes, checks = with_reads(outcome, served.place)
            actions = list(writes.values())
            if outcome.failure is not None:
                if served.recipient.item is None or apart >= APART_MAX:
                    return draft, batch[:count]
                apart += 1
                actions = self._parked(fanned, served, outcome.failure)
            if not draft.offer(actions, checks):
                return draft, batch[:count]
        return draft, batch

    def _parked(self, fanned: FanOutChange, served: Served, failure: Failure) -> list[Action]:
        """Park the change for one recipient alone."""
        head, policy, now = fanned.head, fanned.handler.policy, self.clock.time()
        record, payload = head.record, head.payload
        if fanned.work.record is not None:
            payload = payload_of(fanned.work.record, policy.payload)
            record = stored(fanned.work.record, payload)
        parked = ParkedRecord(
            handler=head.handler,
            entity=head.entity,
            shard=head.shard,
            position=head.position,
            record=record,
            failure=failure,
            at=int(now),
            due=next_due(policy, failure, 0, now),
            payload=payload,
            to=served.recipient.name,
        )
        return park(self.space, fanned.lane_of(served.recipient), parked, fanned.held.chunk)

    async def send(self, fanned: FanOutChange, batch: Sequence[Served]) -> bool:
        """Deliver what is sent to recipients, before their commit; False: some have failed."""

        async def send(served: Served) -> None:
            await self._sending.send(fanned.work, served.outcome, fanned.head.shard)

        unsent = [each for each in batch if each.outcome.sends and not each.outcome.sent]
        async with anyio.create_task_group() as group:
            for served in unsent:
                group.start_soon(send, served)
        return all(served.outcome.sent for served in unsent)

    def refused(self, fanned: FanOutChange, batch: Sequence[Served], refused: Refused) -> None:
        """Do what the effects' `otherwise` say for the recipients whose conditions did not hold."""
        results: dict[str, set[int]] = {}
        lanes = {source.handler for source in refused.sources if source.effect == LANE}
        for source in refused.sources:
            results.setdefault(source.position, set()).add(source.effect)
        for served in batch:
            if lanes and fanned.lane_of(served.recipient) in lanes:
                served.outcome.drop()  # it is in the audience twice, and is parked already
            elif served.place in results:
                refuse(served.outcome, results[served.place], served.place, self.tables.own)
                contended(served.outcome)

    def lanes(self, fanned: FanOutChange, batch: Iterable[Served]) -> Mapping[str, Hold]:
        """Return the lanes of those recipients that are parked."""
        hold = Hold(fanned.held.chunk, fanned.head.position)
        parked = (served for served in batch if served.outcome.failure is not None)
        return {fanned.lane_of(served.recipient): hold for served in parked}


def give_up_alone(taken: Sequence[Served], verdict: Invalid) -> Failure | None:
    """Let a recipient fail whose effects, alone, cannot be stored.

    Returns:
        Why the fan-out cannot go on, if not even parking it can be stored.
    """
    failure = Failure(verdict.code, "DynamoDB finds an effect of this result invalid")
    if taken[0].outcome.failure is not None:
        return failure
    taken[0].outcome.fail(failure)
    return None

"""Attempts: repeat what a handler needs until it succeeds, or its policy settles the failure.

In: what to attempt, for one outcome. Out: the outcome, as the attempt or the policy left it. With
`block`, and with `park` while the handler's breaker is open, the attempt is repeated until it
succeeds.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from streamkit.core.failures import Failures
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import Failure
from streamkit.errors import USER_ERRORS, PoisonChange, Unavailable
from streamkit.sinks.outlets import SLOW_SECONDS

_BLOCK_PAUSE_MAX = 30.0
"""The longest pause between tries of a blocked change, in seconds, before a random factor of 0.5 to
1.5; it bounds how late a downstream's recovery is noticed."""


@dataclass(frozen=True)
class Patience:
    """How long a host waits for tables and sinks.

    `reads` says whether it waits for a table that cannot be read. A change that a sink has not
    taken after `sink_seconds` goes on in its parked queue, if its handler does not block.
    """

    reads: bool = True
    sink_seconds: float = SLOW_SECONDS


PATIENT = Patience()


@dataclass(frozen=True)
class Attempts:
    """Runs the attempts of one worker."""

    failures: Failures
    rng: random.Random
    patience: Patience

    async def persist(
        self,
        attempt: Callable[[], Awaitable[None]],
        change: PendingChange,
        outcome: Outcome,
        shard_id: str,
        until: anyio.Event | None,
        *,
        sends: bool = False,
    ) -> None:
        """Run an attempt until it succeeds or the policy settles its failure, with growing pauses.

        The outcome still waits afterwards if the attempt cannot succeed now and `until` was set.
        If it `sends`, an outage of the receiver does not count against the handler: its changes are
        parked, and other handlers go on.

        Raises:
            Unavailable: a table cannot be read just now, and the host does not wait for it.
        """
        handler = outcome.handler
        pause = handler.policy.backoff_seconds
        tries = _Tries(self, change, outcome, shard_id, until, pause, sends)
        try:
            while not tries.over:
                try:
                    await attempt()
                except USER_ERRORS as error:  # what user code raises is its failure
                    await tries.failed(error)
                else:
                    tries.over = True
                    self.failures.worked(handler, self.failures.clock.monotonic())
        finally:
            if tries.blocks:
                self.failures.wait(handler, shard_id, ends=True)


@dataclass(slots=True)
class _Tries:
    """The tries for one outcome; `blocks` says that a shard waits for them."""

    attempts: Attempts
    change: PendingChange
    outcome: Outcome
    shard_id: str
    until: anyio.Event | None
    pause: float
    sends: bool = False
    number: int = 0
    blocks: bool = False
    over: bool = False

    async def failed(self, error: Exception | SystemExit) -> None:
        """Let the policy settle a failed try, or wait until the next one is due.

        Raises:
            Unavailable: a table cannot be read just now, and the host does not wait for it.
        """
        failures, outcome, handler = self.attempts.failures, self.outcome, self.outcome.handler
        failures.raised(handler, error)
        unavailable = isinstance(error, Unavailable)
        if unavailable and not self.attempts.patience.reads:
            raise error
        self.number += not unavailable  # a table that fails is not the change's fault
        hopeless = isinstance(error, PoisonChange) or self.number >= handler.policy.attempts
        if hopeless and (not self.sends or isinstance(error, PoisonChange)):
            failures.failed(handler)
        if hopeless and not failures.blocks(handler):
            failures.settle(outcome, Failure.of(error, self.number), self.shard_id)
            self.over = True
            return
        if hopeless and not self.blocks:
            failures.wait(handler, self.shard_id)
            self.blocks = True
        key = self.change.key
        failures.note_attempt(handler, key, error, self.number, hopeless, self.shard_id)
        await _sleep(self.pause * (0.5 + self.attempts.rng.random()), self.until)
        self.pause = min(self.pause * 2, _BLOCK_PAUSE_MAX)
        if (hopeless or unavailable) and self.until is not None and self.until.is_set():
            outcome.waiting = self.over = True


async def _sleep(seconds: float, until: anyio.Event | None) -> None:
    with anyio.move_on_after(seconds):
        await (anyio.sleep_forever() if until is None else until.wait())

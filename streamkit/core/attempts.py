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
from streamkit.errors import PoisonChange, Unavailable
from streamkit.sinks.outlets import SLOW_SECONDS

_BLOCK_PAUSE_MAX = 30.0
"""The longest pause between tries of a blocked change, in seconds; it bounds how late a
downstream's recovery is noticed."""


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
    ) -> None:
        """Attempt it, with growing pauses.

        The outcome still waits afterwards if the attempt cannot succeed now and `until` was set.

        Raises:
            Unavailable: a table cannot be read just now, and the host does not wait for it.
        """
        handler, policy = outcome.handler, outcome.handler.policy
        number, pause, waits = 0, policy.backoff_seconds, False
        try:
            while True:
                number += 1
                try:
                    await attempt()
                except Exception as error:  # whatever user code raises is its failure
                    self.failures.raised(handler, error)
                    if isinstance(error, Unavailable):
                        if not self.patience.reads:
                            raise
                        number -= 1  # the table fails, not the change: the try is not counted
                    hopeless = isinstance(error, PoisonChange) or number >= policy.attempts
                    if hopeless:
                        self.failures.failed(handler)
                    if hopeless and not self.failures.blocks(handler):
                        self.failures.settle(outcome, Failure.of(error, number), shard_id)
                        return
                    if hopeless and not waits:
                        self.failures.wait(handler, shard_id)
                        waits = True
                    self.failures.note_attempt(
                        handler, change.key, error, number, hopeless, shard_id
                    )
                    await _sleep(pause * (0.5 + self.rng.random()), until)
                    endless = hopeless or isinstance(error, Unavailable)
                    if endless and until is not None and until.is_set():
                        outcome.waiting = True
                        return
                    pause = min(pause * 2, _BLOCK_PAUSE_MAX)
                else:
                    self.failures.worked(handler, self.failures.clock.monotonic())
                    return
        finally:
            if waits:
                self.failures.wait(handler, shard_id, ends=True)


async def _sleep(seconds: float, until: anyio.Event | None) -> None:
    with anyio.move_on_after(seconds):
        await (anyio.sleep_forever() if until is None else until.wait())

"""Failures: decide what happens to a change that a handler could not process.

In: what happened to the changes of a worker's handlers. Out: outcomes that are parked, dropped or
waiting, as the policies and breakers say; counts; and a bounded number of log lines.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from streamkit.changes import ItemKey
from streamkit.core.breaker import Breaker
from streamkit.core.handler import Handler
from streamkit.core.outcome import Outcome
from streamkit.core.parking import Failure
from streamkit.core.shadow import ShadowCounts
from streamkit.errors import TooManyHops
from streamkit.observe.frames import tell_raised
from streamkit.observe.logger import get_logger
from streamkit.observe.repeats import OUTAGE_SECONDS
from streamkit.progress.clock import Clock

log = get_logger("streamkit.dispatch")

_BLOCK_LOG_SECONDS = 15.0
"""The least time between two log lines about blocked changes of one handler. Once the pauses of a
single change have grown, each of its tries is logged."""


@dataclass(slots=True)
class DispatchCounts:
    """What dispatch has seen: the number of records by what happened to them.

    `failures` are changes that failed for a handler for good; those that its policy drops also
    count as `skipped`. `shadow` has the counts of each shadow handler.
    """

    control: int = 0
    unknown: int = 0
    changes: int = 0
    failures: int = 0
    skipped: int = 0
    shadow: dict[str, ShadowCounts] = field(default_factory=dict)


@dataclass
class Failures:
    """Decides on failures for one worker; a breaker counts over all its shards."""

    counts: DispatchCounts
    clock: Clock
    _breakers: dict[str, Breaker] = field(default_factory=dict)
    _waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    _slow: set[str] = field(default_factory=set)

    def worked(self, handler: Handler, now: float, times: int = 1) -> None:
        """Record that changes were processed; `now` is monotonic."""
        breaker = self._breaker(handler)
        if breaker is not None:
            breaker.worked(now, times)

    def name_slow(self, handler: Handler, seconds: float) -> None:
        """Log once which handler keeps the event loop busy, because nothing else runs meanwhile."""
        if handler.name not in self._slow:
            self._slow.add(handler.name)
            log.warning(
                "handler.slow",
                handler=handler.name,
                milliseconds=round(seconds * 1000),
                declared=str(handler.declared),
            )

    def raised(self, handler: Handler, error: BaseException) -> None:
        """Log where a handler raised, at the level debug alone: its message may hold data."""
        name = handler.name
        tell_raised(name, error)
        log.often("handler.raised", level="debug", by=name, handler=name, raised=error)

    def failed(self, handler: Handler) -> None:
        """Record that a change failed after its inline retries, and again for each later try."""
        breaker = self._breaker(handler)
        if breaker is not None:
            breaker.failed(self.clock.monotonic())

    def blocks(self, handler: Handler) -> bool:
        """Return whether a change that fails waits: by its policy, or while the breaker is open."""
        if handler.policy.on_failure == "block":
            return True
        breaker = self._breaker(handler)
        return breaker is not None and breaker.is_open

    def wait(self, handler: Handler, shard: str, *, ends: bool = False) -> None:
        """Record that a shard begins, or ends, to wait for a change that fails in a handler."""
        self._waiting[handler.name, shard] += -1 if ends else 1
        self._waiting += Counter()  # removes the entries that have reached 0

    @property
    def waiting(self) -> frozenset[tuple[str, str]]:
        """Return which handlers delay which shards, as pairs `(handler, shard)`."""
        return frozenset(self._waiting)

    def give_up(self, outcome: Outcome, failure: Failure, shard: str) -> None:
        """Record a change that failed, and apply its handler's policy.

        Where the shard blocks, the outcome waits afterwards: its handler must run again.
        """
        self.failed(outcome.handler)
        if self.blocks(outcome.handler):
            outcome.waiting, outcome.refusals = True, 0
        else:
            self.settle(outcome, failure, shard)

    def end_loop(self, outcome: Outcome, hops: int, names: Collection[str], shard: str) -> None:
        """Park a change that came through too many handlers, for good and under every policy.

        `names` are handlers that trigger each other, as far as that is known.
        """
        text = (
            f"handlers triggered each other {hops} times in a row, among them"
            f" {', '.join(dict.fromkeys(names))}; let one of them return nothing for what it need"
            " not change, then discard this change; or, if they come to an end by themselves, raise"
            " Policy(hops_max=...), then redrive it"
        )
        self._park(outcome, Failure.of(TooManyHops(text), 0), shard)

    def _park(self, outcome: Outcome, failure: Failure, shard: str) -> None:
        """Park a change whose handler has not failed."""
        self.counts.failures += 1
        _tell_failed(outcome.handler.name, failure, shard, "park")
        outcome.fail(failure)

    def too_large(self, outcome: Outcome, shard: str) -> None:
        """Park a change whose result is too large for this host's commits, under every policy.

        It is tried again from its parked queue, where a commit has room for it.
        """
        if outcome.handler.broadcast is not None:
            outcome.defer()  # in the queue each recipient's effects go by themselves
            return
        text = (
            f"its result of {len(outcome.items)} items does not fit in one transaction beside"
            " what a move of the consumer writes with it; it is tried again on its own"
        )
        self._park(outcome, Failure("TooLarge", text, 0), shard)

    def settle(self, outcome: Outcome, failure: Failure, shard: str) -> None:
        """Park or drop a change that failed and does not block."""
        handler, policy = outcome.handler, outcome.handler.policy
        self.counts.failures += 1
        self.counts.skipped += policy.on_failure == "skip" and handler.broadcast is None
        _tell_failed(handler.name, failure, shard, policy.on_failure)
        outcome.give_up(failure)

    def note_attempt(
        self,
        handler: Handler,
        key: ItemKey | None,
        error: BaseException,
        attempt: int,
        blocks: bool,
        shard: str,
    ) -> None:
        """Log that a run will be tried again: the first time at once, later ones as sums."""
        known: dict[str, Any] = {
            "handler": handler.name,
            "key": None if key is None else key.digest,
            "error": type(error).__name__,
            "attempt": attempt,
        }
        if not blocks:
            log.often("handler.retried", by=handler.name, quiet=OUTAGE_SECONDS, **known)
            return
        by, every = handler.name, _BLOCK_LOG_SECONDS
        log.often("handler.blocks", level="warning", by=by, every=every, shard=shard, **known)

    def _breaker(self, handler: Handler) -> Breaker | None:
        """Return the handler's breaker; None if it never parks failures, or declares no breaker."""
        if not handler.policy.breaker or handler.policy.on_failure != "park":
            return None
        found = self._breakers.get(handler.name)
        if found is None:
            found = self._breakers[handler.name] = Breaker(handler.name)
        return found


def _tell_failed(handler: str, failure: Failure, shard: str, policy: str) -> None:
    log.often(
        "handler.failed",
        level="warning",
        by=handler,
        quiet=OUTAGE_SECONDS,
        handler=handler,
        shard=shard,
        error=failure.kind,
        attempts=failure.attempts,
        policy=policy,
    )

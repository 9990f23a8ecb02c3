"""Batching: the deliveries of many changes are grouped into the calls of a sink.

In: one delivery at a time, from a task that waits for it. Out: calls of the sink within its limits;
deliveries that arrive while calls are under way wait and make up the next calls. Two deliveries of
one group are never under way at once. On failure: each waiter gets the error of its own delivery.

A call goes on when no task waits for it any more. A task that asks for the same delivery again
gets the result of that call, so that a slow receiver gets it once.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from streamkit.errors import ConfigurationError, PoisonChange, RetryableError
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.sinks.body import to_text
from streamkit.sinks.sink import Delivery, Limits, Sender

log = get_logger("streamkit.sink")

_TURN = 12
"""A delivery may wait for its turn this many times as long as its call may take."""
_LOG_SECONDS = 15.0
"""Failures of one sink are logged at most once in this time."""
UNCLAIMED_MAX = 1000
"""At most this many results of calls for which no task waited are kept, of some 100 bytes each."""


@dataclass(slots=True)
class _Waiting:
    """A delivery that a task waits for; `effect` is the same only for the same delivery."""

    delivery: Delivery
    size: int
    since: float
    effect: tuple[str, int]
    waiters: int = 0
    begun: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None


class Batcher:
    """Deliver through one open sink, whose calls run in the task group `group`."""

    def __init__(
        self, name: str, limits: Limits, sender: Sender, group: anyio.abc.TaskGroup, clock: Clock
    ) -> None:
        self._name, self._limits, self._sender = name, limits, sender
        self._group, self._clock = group, clock
        self._queue: deque[_Waiting] = deque()
        self._under_way: dict[str, _Waiting] = {}
        self._unclaimed: dict[tuple[str, int], None] = {}
        self._calls = 0

    @property
    def waited(self) -> float:
        """Return how many seconds the oldest unfinished delivery has been waiting."""
        oldest = min(
            (waiting.since for waiting in (*self._queue, *self._under_way.values())),
            default=self._clock.monotonic(),
        )
        return self._clock.monotonic() - oldest

    async def deliver(self, delivery: Delivery, seconds: float = math.inf) -> None:
        """Wait until it is delivered. When cancelled before its call begins, it is not sent.

        When its call goes on from an earlier try, wait for that one.

        Args:
            delivery: what to deliver.
            seconds: how long to wait for its call. The call itself goes on after that, up to the
                sink's own limit.

        Raises:
            TimeoutError: its call takes longer, or its turn does not come.
            PoisonChange: the body cannot be sent.
            Exception: the error that the sink reports for this delivery.
        """
        try:
            body = to_text(delivery.body).encode()
        except (TypeError, ValueError) as error:
            raise PoisonChange(f"what is sent to {self._name}: {error}") from error
        effect = (delivery.key, hash((delivery.id, body, repr(dict(delivery.attributes)))))
        if effect in self._unclaimed:
            del self._unclaimed[effect]
            return
        waiting = self._under_way.get(delivery.group)
        if waiting is None or waiting.effect != effect:
            waiting = _Waiting(delivery, len(body), self._clock.monotonic(), effect)
            self._queue.append(waiting)
            self._begin()
        await self._wait(waiting, seconds)

    async def _wait(self, waiting: _Waiting, seconds: float) -> None:
        waiting.waiters += 1
        try:
            with anyio.fail_after(seconds * _TURN):
                await waiting.begun.wait()
            with anyio.fail_after(seconds):
                await waiting.done.wait()
        finally:
            waiting.waiters -= 1
            if not waiting.done.is_set() and waiting in self._queue:
                self._queue.remove(waiting)
        if waiting.error is not None:
            raise waiting.error

    def _begin(self) -> None:
        if self._queue and self._calls < self._limits.calls:
            self._calls += 1
            self._group.start_soon(self._call)

    async def _call(self) -> None:
        """Make calls while there is something to deliver."""
        try:
            while batch := self._batch():
                errors = await self._deliver(batch)
                for waiting, error in zip(batch, errors, strict=True):
                    del self._under_way[waiting.delivery.group]
                    waiting.error = error
                    waiting.done.set()
                    if error is None and not waiting.waiters:
                        self._keep(waiting.effect)
        finally:
            self._calls -= 1

    def _keep(self, effect: tuple[str, int]) -> None:
        self._unclaimed[effect] = None
        if len(self._unclaimed) > UNCLAIMED_MAX:
            del self._unclaimed[next(iter(self._unclaimed))]

    def _batch(self) -> list[_Waiting]:
        """Take the deliveries that fit into one call, in order; skip groups that are under way."""
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        size = 0
        while self._queue and len(batch) < self._limits.items:
            waiting = self._queue.popleft()
            if waiting.delivery.group in self._under_way:
                left.append(waiting)
                continue
            if batch and size + waiting.size > self._limits.size:
                left.append(waiting)
                break
            size += waiting.size
            self._under_way[waiting.delivery.group] = waiting
            waiting.begun.set()
            batch.append(waiting)
        self._queue.extendleft(reversed(left))
        return batch

    async def _deliver(self, batch: Sequence[_Waiting]) -> Sequence[Exception | None]:
        deliveries = [waiting.delivery for waiting in batch]
        errors: Sequence[Exception | None]
        try:
            with anyio.fail_after(self._limits.seconds):
                errors = await self._sender.deliver(deliveries)
        except Exception as error:  # noqa: BLE001 - any error of the call means that nothing was delivered
            errors = [error] * len(batch)
        if len(errors) != len(batch):
            answers = f"{self._name} answers {len(errors)} of {len(batch)} deliveries"
            errors = [TypeError(answers)] * len(batch)
        failed = [error for error in errors if error is not None]
        if failed:
            kind, count = type(failed[0]).__name__, len(failed)
            known: dict[str, Any] = {"sink": self._name, "failed": count, "error": kind}
            if status := getattr(failed[0], "status", 0):
                known["status"] = status
            if why := _why(failed[0]):
                known["why"] = why
            by, every = self._name, _LOG_SECONDS
            log.often("sink.failed", level="warning", by=by, every=every, count=count, **known)
        return errors


def _why(error: Exception) -> str:
    """Return what may be logged of an error: nothing, unless it surely shows no item's data."""
    if isinstance(error, ConfigurationError):
        return str(error)
    return error.why if isinstance(error, RetryableError) else ""

"""Meters: the instruments of one consumer, made once, so that counting is one call.

In: a hook. Out: instruments by handler or operation. `current` holds the meters that count calls of
AWS: a worker sets it for all of its tasks, because the workers of a process share the clients.
"""

from contextvars import ContextVar

import msgspec

from streamkit.observe.metrics import Counter, Histogram, Metrics, NoMetrics
from streamkit.observe.registry import Number
from streamkit.observe.usage import Usage


class HandlerMeters(msgspec.Struct, frozen=True):
    """The instruments of one handler; `effects` counts its writes, for its share of the cost."""

    changes: Counter
    seconds: Histogram
    effects: Number = msgspec.field(default_factory=Number)


class Meters:
    """The instruments of one consumer."""

    def __init__(self, metrics: Metrics, consumer: str) -> None:
        self.consumer = consumer
        self.used = Usage()
        self._metrics = metrics
        own = {"consumer": consumer}
        self.commits = metrics.counter("streamkit_commits_total", own)
        self.conflicts = metrics.counter("streamkit_commit_conflicts_total", own)
        self.fenced = metrics.counter("streamkit_fenced_total", own)
        self.lost = metrics.counter("streamkit_lost_total", own)
        self.unreadable = metrics.counter("streamkit_unreadable_total", own)
        self.lag = metrics.gauge("streamkit_lag_seconds", own)
        self.time_to_loss = metrics.gauge("streamkit_time_to_loss_seconds", own)
        self.parked = metrics.gauge("streamkit_parked", own)
        self.stuck = metrics.gauge("streamkit_stuck", own)
        self.shards = metrics.gauge("streamkit_shards", own)
        self.unread = metrics.gauge("streamkit_unread_shards", own)
        self.memory = metrics.gauge("streamkit_memory_bytes", own)
        self._handlers: dict[str, HandlerMeters] = {}
        self._throttles: dict[str, Counter] = {}
        self._units: dict[str, Counter] = {}

    def handler(self, name: str) -> HandlerMeters:
        """Return the instruments of a handler."""
        found = self._handlers.get(name)
        if found is None:
            labels = {"consumer": self.consumer, "handler": name}
            found = self._handlers[name] = HandlerMeters(
                self._metrics.counter("streamkit_changes_total", labels),
                self._metrics.histogram("streamkit_handler_seconds", labels),
            )
        return found

    def done(self, name: str, changes: int, effects: int) -> None:
        """Count changes that are committed for a handler, and what it wrote for them."""
        meters = self.handler(name)
        meters.changes.add(changes)
        meters.effects.add(effects)

    def throttles(self, operation: str) -> Counter:
        """Return the counter of throttled calls of an operation."""
        return self._of_operation("streamkit_throttles_total", operation, self._throttles)

    def units(self, operation: str) -> Counter:
        """Return the counter of units that an operation used."""
        return self._of_operation("streamkit_units_total", operation, self._units)

    def use(self, operation: str, units: float) -> None:
        """Count the units that a call used."""
        self.units(operation).add(units)
        self.used.add(operation, units)

    def throttle(self, operation: str) -> None:
        """Count a call that AWS throttled."""
        self.throttles(operation).add()
        self.used.throttle()

    def _of_operation(self, name: str, operation: str, known: dict[str, Counter]) -> Counter:
        found = known.get(operation)
        if found is None:
            labels = {"consumer": self.consumer, "operation": operation}
            found = known[operation] = self._metrics.counter(name, labels)
        return found


UNMETERED = Meters(NoMetrics(), "")
"""Meters that count nothing."""

current: ContextVar[Meters | None] = ContextVar("streamkit_meters", default=None)
"""The meters that count the AWS calls of the current task."""

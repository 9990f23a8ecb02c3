"""Metrics: what streamkit counts and measures, and the hook that receives it.

`METRICS` is the one list of names, units and labels; they are never changed, only added to. A hook
is any object that fits `Metrics`. It hands out instruments, once for each combination of labels,
and the instruments receive numbers while changes flow, so counting costs one call of a bound
method. Labels are consumers, handlers and AWS operations; never keys, nor other data of an item.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

MetricKind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of a histogram's buckets, from a pure function to a usual handler time-out."""


class Metric(msgspec.Struct, frozen=True):
    """One metric. `unit` is `seconds`, `bytes` or what is counted; `text` explains its meaning."""

    name: str
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    text: str


_ALL = (
    Metric(
        "streamkit_lag_seconds",
        "gauge",
        "seconds",
        ("consumer",),
        "age of the oldest change that this worker has not committed yet; the leader also counts"
        " shards that no worker reads",
    ),
    Metric(
        "streamkit_time_to_loss_seconds",
        "gauge",
        "seconds",
        ("consumer",),
        "time until the stream trims the oldest unread change of this worker's shards; the leader"
        " also counts shards that no worker reads",
    ),
    Metric(
        "streamkit_changes_total",
        "counter",
        "changes",
        ("consumer", "handler"),
        "changes committed for a handler, including parked ones",
    ),
    Metric(
        "streamkit_commits_total", "counter", "commits", ("consumer",), "commits that were applied"
    ),
    Metric(
        "streamkit_commit_conflicts_total",
        "counter",
        "commits",
        ("consumer",),
        "commits cancelled because another transaction wrote the same item; they are sent again",
    ),
    Metric(
        "streamkit_fenced_total",
        "counter",
        "commits",
        ("consumer",),
        "commits refused because another worker owns the shard",
    ),
    Metric(
        "streamkit_throttles_total",
        "counter",
        "calls",
        ("consumer", "operation"),
        "calls that AWS throttled; each try of the SDK counts",
    ),
    Metric(
        "streamkit_parked",
        "gauge",
        "items",
        ("consumer",),
        "items with parked changes on this worker's shards",
    ),
    Metric(
        "streamkit_stuck",
        "gauge",
        "items",
        ("consumer",),
        "items whose parked changes wait for a person",
    ),
    Metric(
        "streamkit_shards", "gauge", "shards", ("consumer",), "shards that this worker reads now"
    ),
    Metric(
        "streamkit_unread_shards",
        "gauge",
        "shards",
        ("consumer",),
        "open shards that no worker reads, as the leader last saw; 0 on other workers",
    ),
    Metric(
        "streamkit_lost_total",
        "counter",
        "losses",
        ("consumer",),
        "times that records were trimmed unread, or may have been",
    ),
    Metric(
        "streamkit_unreadable_total",
        "counter",
        "records",
        ("consumer",),
        "records that cannot be read, and were parked",
    ),
    Metric(
        "streamkit_handler_seconds",
        "histogram",
        "seconds",
        ("consumer", "handler"),
        "duration of one run of a handler",
    ),
    Metric(
        "streamkit_units_total",
        "counter",
        "units",
        ("consumer", "operation"),
        "capacity units that AWS reported; for `GetRecords`, calls",
    ),
    Metric(
        "streamkit_memory_bytes",
        "gauge",
        "bytes",
        ("consumer",),
        "memory that this worker's process uses; on Linux",
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by its name."""


class Counter(Protocol):
    """A number that only grows."""

    def add(self, amount: float = 1.0, /) -> None:
        """Add an amount to the counter."""


class Gauge(Protocol):
    """A number that goes up and down."""

    def set(self, value: float, /) -> None:
        """Set the present value; NaN if it is not known."""


class Histogram(Protocol):
    """Record how values are distributed."""

    def record(self, value: float, /) -> None:
        """Add one value."""


class Metrics(Protocol):
    """A hook for metrics. Names and labels are those of `METRICS`; calls come from the event loop.

    It must not raise: an error would fail the code that counts.
    """

    def counter(self, name: str, labels: Mapping[str, str], /) -> Counter:
        """Return the counter with these labels; the same one each time."""

    def gauge(self, name: str, labels: Mapping[str, str], /) -> Gauge:
        """Return the gauge with these labels; the same one each time."""

    def histogram(self, name: str, labels: Mapping[str, str], /) -> Histogram:
        """Return the histogram with these labels; the same one each time."""


class _Nothing:
    """An instrument of any kind, without effect."""

    def add(self, amount: float = 1.0, /) -> None:
        """Drop the number."""

    def set(self, value: float, /) -> None:
        """Drop the number."""

    def record(self, value: float, /) -> None:
        """Drop the number."""


_NOTHING = _Nothing()


class NoMetrics:
    """A hook that drops every metric."""

    def counter(self, _name: str, _labels: Mapping[str, str], /) -> Counter:
        """Return an instrument without effect."""
        return _NOTHING

    def gauge(self, _name: str, _labels: Mapping[str, str], /) -> Gauge:
        """Return an instrument without effect."""
        return _NOTHING

    def histogram(self, _name: str, _labels: Mapping[str, str], /) -> Histogram:
        """Return an instrument without effect."""
        return _NOTHING


class _Counters(msgspec.Struct, frozen=True):
    all: Sequence[Counter]

    def add(self, amount: float = 1.0, /) -> None:
        for one in self.all:
            one.add(amount)


class _Gauges(msgspec.Struct, frozen=True):
    all: Sequence[Gauge]

    def set(self, value: float, /) -> None:
        for one in self.all:
            one.set(value)


class _Histograms(msgspec.Struct, frozen=True):
    all: Sequence[Histogram]

    def record(self, value: float, /) -> None:
        for one in self.all:
            one.record(value)


class SeveralMetrics(msgspec.Struct, frozen=True):
    """Pass every metric to several hooks."""

    hooks: tuple[Metrics, ...]

    def counter(self, name: str, labels: Mapping[str, str], /) -> Counter:
        """Return a counter that passes numbers to all hooks."""
        return _Counters([hook.counter(name, labels) for hook in self.hooks])

    def gauge(self, name: str, labels: Mapping[str, str], /) -> Gauge:
        """Return a gauge that passes numbers to all hooks."""
        return _Gauges([hook.gauge(name, labels) for hook in self.hooks])

    def histogram(self, name: str, labels: Mapping[str, str], /) -> Histogram:
        """Return a histogram that passes numbers to all hooks."""
        return _Histograms([hook.histogram(name, labels) for hook in self.hooks])


def join(*hooks: Metrics | None) -> Metrics:
    """Return one hook for several; a single hook is returned as it is."""
    several = tuple(hook for hook in hooks if hook is not None)
    if len(several) == 1:
        return several[0]
    return SeveralMetrics(several) if several else NoMetrics()


def is_known(value: float) -> bool:
    """Return True if a gauge's value is known."""
    return not math.isnan(value)

"""EMF: metrics as a line of the log that CloudWatch reads (its embedded metric format). Pure.

On Lambda no scraper reads metrics, and an invocation may be the last of its environment. So each
invocation prints one line with what it counted. A line has only one value for each label, so
handlers and operations are added up here: the only dimension is the consumer.

Source: CloudWatch's specification of the embedded metric format; a metric has at most 100 values.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.observe.metrics import METRICS, Counter, Gauge, Histogram, is_known

NAMESPACE = "streamkit"
_VALUES_MAX = 100
_UNITS = {"seconds": "Seconds"}


@dataclass(slots=True)
class _Sum:
    value: float | None = None

    def add(self, amount: float = 1.0, /) -> None:
        self.value = amount + (self.value or 0.0)


@dataclass(slots=True)
class _Last:
    value: float | None = None

    def set(self, value: float, /) -> None:
        if is_known(value):
            self.value = value


@dataclass(slots=True)
class _Values:
    """Keep at most a hundred values; beyond that, one kept value stands for several."""

    values: list[float] = field(default_factory=list)
    _step: int = 1
    _seen: int = 0

    def record(self, value: float, /) -> None:
        if self._seen % self._step == 0:
            self.values.append(value)
        self._seen += 1
        if len(self.values) > _VALUES_MAX:
            self.values = self.values[::2]
            self._step *= 2


class EmfMetrics:
    """Collect the metrics of one consumer until `line` returns and clears them."""

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._found: dict[str, _Sum | _Last | _Values] = {}

    def counter(self, name: str, _labels: Mapping[str, str], /) -> Counter:
        """Return the counter, which is the same for all labels."""
        return _Through(self, name)

    def gauge(self, name: str, _labels: Mapping[str, str], /) -> Gauge:
        """Return the gauge, which is the same for all labels."""
        return _Through(self, name)

    def histogram(self, name: str, _labels: Mapping[str, str], /) -> Histogram:
        """Return the histogram, which is the same for all labels."""
        return _Through(self, name)

    def line(self, now: float) -> str | None:
        """Return what was counted since the last line, as JSON; None if nothing was counted.

        Args:
            now: epoch seconds.
        """
        found, self._found = self._found, {}
        values = {name: _value(one) for name, one in sorted(found.items())}
        values = {name: value for name, value in values.items() if value is not None}
        if not values:
            return None
        known = [{"Name": name, "Unit": _unit(name)} for name in values]
        directive = {"Namespace": NAMESPACE, "Dimensions": [["consumer"]], "Metrics": known}
        aws = {"Timestamp": int(now * 1000), "CloudWatchMetrics": [directive]}
        return json.dumps({"_aws": aws, "consumer": self._consumer, **values})

    def sum(self, name: str) -> _Sum:
        """Return a counter of the next line."""
        one = self._found.get(name) or self._found.setdefault(name, _Sum())
        assert isinstance(one, _Sum)  # noqa: S101 - a name is of one kind
        return one

    def last(self, name: str) -> _Last:
        """Return a gauge of the next line."""
        one = self._found.get(name) or self._found.setdefault(name, _Last())
        assert isinstance(one, _Last)  # noqa: S101
        return one

    def values(self, name: str) -> _Values:
        """Return a histogram of the next line."""
        one = self._found.get(name) or self._found.setdefault(name, _Values())
        assert isinstance(one, _Values)  # noqa: S101
        return one


@dataclass(frozen=True, slots=True)
class _Through:
    """An instrument that looks up its value in the next line at each call."""

    metrics: EmfMetrics
    name: str

    def add(self, amount: float = 1.0, /) -> None:
        self.metrics.sum(self.name).add(amount)

    def set(self, value: float, /) -> None:
        self.metrics.last(self.name).set(value)

    def record(self, value: float, /) -> None:
        self.metrics.values(self.name).record(value)


def _value(one: _Sum | _Last | _Values) -> Any:
    if isinstance(one, _Values):
        return one.values or None
    return one.value


def _unit(name: str) -> str:
    return _UNITS.get(METRICS[name].unit, "Count")

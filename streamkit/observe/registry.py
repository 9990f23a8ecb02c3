"""The registry: metrics kept in memory, available in every process without any setup.

In: numbers, through the instruments. Out: `series`, at any time. It grows with the number of
consumers, handlers and operations, and with nothing else.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streamkit.errors import InvariantError
from streamkit.observe.metrics import METRICS, SECONDS, Metric

Labels = tuple[str, ...]
"""The values of a metric's labels, in the metric's order of labels."""


@dataclass(slots=True)
class Number:
    """A counter or a gauge; a gauge is NaN until it is known."""

    value: float = 0.0

    def add(self, amount: float = 1.0, /) -> None:
        """Add an amount to the value."""
        self.value += amount

    def set(self, value: float, /) -> None:
        """Set the present value."""
        self.value = value


@dataclass(slots=True)
class Spread:
    """A histogram: `counts` by bucket; the last bucket is for all larger values."""

    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))

    def record(self, value: float, /) -> None:
        """Count one value in the bucket that it belongs to."""
        self.total += value
        self.counts[bisect_left(SECONDS, value)] += 1

    @property
    def count(self) -> int:
        """Return how many values were added."""
        return sum(self.counts)


Series = tuple[Metric, Mapping[Labels, Number | Spread]]


class Registry:
    """Metrics in memory."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[Labels, Number]] = {}
        self._spreads: dict[str, dict[Labels, Spread]] = {}

    def counter(self, name: str, labels: Mapping[str, str], /) -> Number:
        """Return the counter with these labels."""
        return self._number(name, labels, 0.0)

    def gauge(self, name: str, labels: Mapping[str, str], /) -> Number:
        """Return the gauge with these labels."""
        return self._number(name, labels, math.nan)

    def histogram(self, name: str, labels: Mapping[str, str], /) -> Spread:
        """Return the histogram with these labels."""
        return self._spreads.setdefault(name, {}).setdefault(_values(name, labels), Spread())

    def _number(self, name: str, labels: Mapping[str, str], first: float) -> Number:
        return self._numbers.setdefault(name, {}).setdefault(_values(name, labels), Number(first))

    def series(self) -> Iterator[Series]:
        """Yield every series, in the order of `METRICS`, labels in alphabetical order."""
        for name, metric in METRICS.items():
            found: dict[Labels, Number | Spread] = {
                **self._numbers.get(name, {}),
                **self._spreads.get(name, {}),
            }
            known = {
                labels: one
                for labels, one in sorted(found.items())
                if isinstance(one, Spread) or not math.isnan(one.value)
            }
            if known:
                yield metric, known

    def values(self, name: str, **labels: str) -> dict[Labels, float]:
        """Return the values of a counter or gauge, for the series that have these labels."""
        metric = METRICS[name]
        places = [(metric.labels.index(label), value) for label, value in labels.items()]
        return {
            found: number.value
            for found, number in self._numbers.get(name, {}).items()
            if all(found[place] == value for place, value in places)
        }

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a counter over the series that have these labels."""
        return sum(self.values(name, **labels).values())

    def spread(self, name: str, **labels: str) -> Spread:
        """Return one histogram."""
        return self.histogram(name, labels)


def _values(name: str, labels: Mapping[str, str]) -> Labels:
    metric = METRICS.get(name)
    if metric is None or labels.keys() != set(metric.labels):
        raise InvariantError(f"no metric {name} with the labels {sorted(labels)}")
    return tuple(labels[label] for label in metric.labels)

"""History: how the numbers of a process went lately, in its memory, for the charts of the page.

In: numbers by name, every few seconds. Out: for each name its values with their times, the oldest
first. It keeps 75 minutes, at 1.2 KB a name; names that have no value any more are forgotten.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STEP_SECONDS = 15.0
POINTS = 300

Point = tuple[float, float]
"""A time in epoch seconds, and a value."""


def _nothing(kind: str) -> "array[float]":
    return array(kind, [math.nan]) * POINTS


@dataclass(slots=True)
class History:
    """The last values of some numbers; all are noted together."""

    _times: "array[float]" = field(default_factory=lambda: _nothing("d"))
    _values: "dict[str, array[float]]" = field(default_factory=dict)
    _totals: dict[str, float] = field(default_factory=dict)
    _last: float = math.nan
    _place: int = 0

    def note(self, now: float, values: Mapping[str, float], totals: Mapping[str, float]) -> None:
        """Keep the values of now, and how fast totals have grown since the time before.

        Args:
            now: epoch seconds.
            values: by name; NaN stands for unknown.
            totals: sums that only grow, by name; their growth is kept, as an amount per second.
        """
        seconds, known = now - self._last, dict(values)
        if seconds > 0:
            known |= {
                name: (total - self._totals[name]) / seconds
                for name, total in totals.items()
                if name in self._totals
            }
        self._totals, self._last = dict(totals), now
        self._times[self._place] = now
        for name in known.keys() - self._values.keys():
            self._values[name] = _nothing("f")
        for name, row in self._values.items():
            row[self._place] = known.get(name, math.nan)
        self._place = (self._place + 1) % POINTS
        if not self._place:
            self._forget()

    def points(self, name: str) -> Sequence[Point]:
        """Return the known values of a name with their times, the oldest first."""
        row = self._values.get(name)
        if row is None:
            return ()
        places = [*range(self._place, POINTS), *range(self._place)]
        return [(self._times[at], row[at]) for at in places if not math.isnan(row[at])]

    def _forget(self) -> None:
        """Forget names that had no value for the whole time."""
        gone = [name for name, row in self._values.items() if all(map(math.isnan, row))]
        for name in gone:
            del self._values[name]

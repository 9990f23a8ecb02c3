"""Usage: the capacity units that one worker's calls have used, by the kinds that are billed. Pure.

In: an operation and the units that AWS reports for it. Out: sums since the worker began, and what
they were a while ago, as texts that its heartbeat carries along, so that they need no write of
their own.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Self

import msgspec

STREAM_READ = "GetRecords"
"""This operation is billed by the call."""
AGES = (300, 3_600, 86_400)
"""A heartbeat also says what the sums were this many seconds ago, or a little more."""
_MARKS = AGES[-1] // AGES[0] + 1
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


class UsageMark(msgspec.Struct, frozen=True):
    """The sums of a worker at a moment (epoch seconds)."""

    at: int
    read: float = 0.0
    write: float = 0.0
    stream: float = 0.0


@dataclass(slots=True)
class Usage:
    """Units of each kind since `since` (epoch seconds), and calls that AWS `throttled`."""

    since: int = 0
    read: float = 0.0
    write: float = 0.0
    stream: float = 0.0
    throttled: int = 0
    _marks: deque[UsageMark] = field(default_factory=lambda: deque(maxlen=_MARKS))

    def begin(self, since: int) -> None:
        """Note when counting begins, in epoch seconds."""
        self.since = since

    def add(self, operation: str, units: float) -> None:
        """Count the units that a call used."""
        if operation == STREAM_READ:
            self.stream += units
        elif operation in _READS:
            self.read += units
        else:
            self.write += units

    def throttle(self) -> None:
        """Count a call that AWS throttled."""
        self.throttled += 1

    def lately(self, now: int) -> str:
        """Return the sums of a while ago as a heartbeat carries them, and remember those of now."""
        if now - (self._marks[-1].at if self._marks else self.since) >= AGES[0]:
            self._marks.append(UsageMark(now, self.read, self.write, self.stream))
        said = []
        for age in AGES:
            old = [mark for mark in self._marks if now - mark.at >= age]
            if old and old[-1] not in said:
                said.append(old[-1])
        return ";".join(f"{m.at} {m.read:.0f} {m.write:.0f} {m.stream:.0f}" for m in said)

    def marks(self, lately: str, until: int) -> list[UsageMark]:
        """Return the sums at every known moment, the oldest first, as read from a heartbeat.

        A later release may add numbers to a mark.

        Args:
            lately: what the heartbeat says of a while ago.
            until: the time of the heartbeat.
        """
        found = [UsageMark(self.since), UsageMark(until, self.read, self.write, self.stream)]
        for text in filter(None, lately.split(";")):
            at, *units = text.split()
            found.append(UsageMark(int(at), *map(float, units[:3])))
        return sorted(found, key=lambda mark: mark.at)

    @property
    def text(self) -> str:
        """Return the sums as a heartbeat carries them; empty text if nothing was counted."""
        if not (self.read or self.write or self.stream or self.throttled):
            return ""
        return f"{self.since} {self.read:.1f} {self.write:.1f} {self.stream:.0f} {self.throttled}"

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the usage of a text; None if another version wrote it in another form."""
        try:
            since, read, write, stream, throttled = text.split()
            return cls(int(since), float(read), float(write), float(stream), int(throttled))
        except ValueError:
            return None

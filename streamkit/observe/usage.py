"""Usage: the capacity units that one worker's calls have used, by the kinds that are billed. Pure.

In: an operation and the units that AWS reports for it. Out: sums since the worker began, as a text
that its heartbeat carries along, so that they need no write of their own.
"""

from dataclasses import dataclass
from typing import Self

STREAM_READ = "GetRecords"
"""This operation is billed by the call."""
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


@dataclass(slots=True)
class Usage:
    """Units of each kind since `since` (epoch seconds), and calls that AWS `throttled`."""

    since: int = 0
    read: float = 0.0
    write: float = 0.0
    stream: float = 0.0
    throttled: int = 0

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

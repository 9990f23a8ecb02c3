"""Time, injected.

Code that needs the time asks a `Clock`; code that waits uses anyio, whose time is the event loop's.
A simulation replaces both together: a virtual loop and a clock that follows it. Durations are
measured with `monotonic`; `time` dates what is stored and shown. No lease depends on it, because
the clocks of two machines may differ.
"""

import time
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

import msgspec


class Clock(Protocol):
    """A source of time."""

    def time(self) -> float:
        """Return the wall clock, in seconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences have a meaning."""
        ...


class SystemClock:
    """The machine's wall clock, and the monotonic time that event loops measure with."""

    def time(self) -> float:
        """Return the wall clock, in seconds since 1970 UTC."""
        return time.time()

    monotonic = staticmethod(monotonic)
    """Returns the seconds since some moment; called for each change, and so without detours."""


class CorrectedClock(msgspec.Struct, frozen=True):
    """A clock that corrects another one, whose time of day is wrong by some seconds.

    Attributes:
        clock: the clock that is wrong.
        by: the seconds that are added to its time of day.
    """

    clock: Clock
    by: float

    def time(self) -> float:
        """Return epoch seconds, corrected."""
        return self.clock.time() + self.by

    def monotonic(self) -> float:
        """Return the seconds of the other clock."""
        return self.clock.monotonic()


def utc(seconds: float) -> datetime:
    """Turn epoch seconds into an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, UTC)

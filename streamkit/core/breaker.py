"""Breaker: detect that most changes of a handler fail, so that parking them would be wrong.

In: the result of each change of one handler on one worker, and its time. Out: `is_open`. The
breaker opens when at least `LEAST` changes of the last `SECONDS` are known and more than half of
them failed; it closes at a success. While it is open, changes wait instead of being parked:
otherwise a bad release would park everything.
"""

from collections import deque
from dataclasses import dataclass, field

from streamkit.observe.logger import get_logger

LEAST = 20
"""The fewest changes that say anything about a release."""
SECONDS = 60.0
"""The length of the window."""

log = get_logger("streamkit.dispatch")


@dataclass(slots=True)
class _Second:
    """The results of the changes of one second."""

    at: int
    worked: int = 0
    failed: int = 0


@dataclass(slots=True)
class Breaker:
    """Watches one handler. Times are seconds on any clock that never goes back."""

    handler: str
    is_open: bool = False
    _window: deque[_Second] = field(default_factory=deque)

    def worked(self, now: float, times: int = 1) -> None:
        """Count changes that were processed; this closes an open breaker and clears its window."""
        if self.is_open:
            self.is_open = False
            self._window.clear()
            log.warning("breaker.closed", handler=self.handler)
        self._second(now).worked += times

    def failed(self, now: float) -> None:
        """Count a change that failed after its inline retries; an open breaker counts none.

        After it closes, waiting changes that still fail are counted again: a success may be a
        fluke.
        """
        if self.is_open:
            return
        self._second(now).failed += 1
        while self._window[0].at <= now - SECONDS:
            self._window.popleft()
        failed = sum(second.failed for second in self._window)
        known = failed + sum(second.worked for second in self._window)
        if known >= LEAST and failed * 2 > known:
            self.is_open = True
            log.error("breaker.opened", handler=self.handler, failed=failed, changes=known)

    def _second(self, now: float) -> _Second:
        """Return the count of this second; the window holds no more seconds than its length."""
        at = int(now)
        if not self._window or self._window[-1].at != at:
            self._window.append(_Second(at))
            if len(self._window) > SECONDS + 1:
                self._window.popleft()
        return self._window[-1]

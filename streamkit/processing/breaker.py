"""Breaker: whether most changes of a handler fail lately, so that parking them would be wrong.

In: what became of each change of one handler on one worker, and when. Out: `is_open`. It opens when
at least `LEAST` changes of the last `SECONDS` are known and more than half of them failed; it
closes at a success. While it is open, changes wait instead of being parked: a bad release would
park everything.
"""

from collections import deque
from dataclasses import dataclass, field

from streamkit.observe.logger import get_logger

LEAST = 20
"""Fewer changes say nothing about a release."""
SECONDS = 60.0
"""How far the window reaches back."""

log = get_logger("streamkit.dispatch")


@dataclass(slots=True)
class _Second:
    """What became of the changes of one second."""

    at: int
    worked: int = 0
    failed: int = 0


@dataclass(slots=True)
class Breaker:
    """Watches one handler. Times are seconds on any clock that never goes back."""

    handler: str
    is_open: bool = False
    _window: deque[_Second] = field(default_factory=deque)

    def worked(self, now: float) -> None:
        """A change was processed: if the breaker was open, it is closed and begins anew."""
        if self.is_open:
            self.is_open = False
            self._window.clear()
            log.warning("breaker.closed", handler=self.handler)
        self._second(now).worked += 1

    def failed(self, now: float) -> None:
        """A change failed after its inline retries; while the breaker is open it counts no more.

        Once it is closed, changes that waited and still fail count anew: a success may be a fluke.
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
        """Return the count of this second; the window holds no more of them than it is long."""
        at = int(now)
        if not self._window or self._window[-1].at != at:
            self._window.append(_Second(at))
            if len(self._window) > SECONDS + 1:
                self._window.popleft()
        return self._window[-1]

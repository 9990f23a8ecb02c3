"""Asking for lineage: how often this worker may call `DescribeStream`.

The service takes ten calls a second for all readers of a stream together. The leader makes most of
these calls; in a small fleet another worker may ask for the children of a shard that ended there.

    alone                     9
    leader of two or three    6     each other worker 1
    leader of more            8     the other workers 0

A new leader waits for a second before it begins, so that the fleet stays within ten calls when it
grows, shrinks or changes its leader. In: the number for this moment. Out: turns.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

SMALL = 3
"""The largest fleet in which each worker may ask for children itself."""
_WINDOW_SECONDS = 1.05
"""The service's second, plus a margin for the duration of a call."""


def asks_a_second(workers: int, *, leads: bool, consumers: int = 1) -> int:
    """Return how many calls a worker may make in a second.

    Consumers that read the same stream in the same processes divide them.
    """
    asks = _asks_a_second(workers, leads=leads) // consumers
    return max(1, asks) if leads else asks


def _asks_a_second(workers: int, *, leads: bool) -> int:
    if workers <= 1:
        return 9
    if leads:
        return 6 if workers <= SMALL else 8
    return 1 if workers <= SMALL else 0


@dataclass
class AskRate:
    """Hands out turns; `limit` is called each time, because the fleet changes."""

    limit: Callable[[], int]
    _asked: deque[float] = field(default_factory=deque)
    _not_before: float = 0.0

    def may_ask(self) -> bool:
        """Take a turn now, if there is one; return whether there was."""
        now = anyio.current_time()
        while self._asked and now - self._asked[0] >= _WINDOW_SECONDS:
            self._asked.popleft()
        if now < self._not_before or len(self._asked) >= self.limit():
            return False
        self._asked.append(now)
        return True

    async def turn(self) -> None:
        """Wait for a turn, and take it."""
        while True:
            if self.may_ask():
                return
            await anyio.sleep(_WINDOW_SECONDS / 20)

    def hold(self) -> None:
        """Take no turn for a second, because another worker may just have asked."""
        self._not_before = anyio.current_time() + _WINDOW_SECONDS

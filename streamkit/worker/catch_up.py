"""Catching up: the commits of a consumer that began in the past, at a rate.

In: what AWS says that the worker has used, and a rate in write units a second. Out: pauses before
commits, until what is committed is hardly older than now. On failure: nothing waits any more while
the worker ends, so that it gives its shards back within its grace period.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamkit.progress.clock import Clock
from streamkit.progress.commit import Batch, Committer, Verdict

_RECENT_SECONDS = 60.0
"""Changes as young as this are committed at once."""
_LOOK_SECONDS = 1.0
"""A commit that waits looks so often whether the worker ends."""


@dataclass
class CommitRate:
    """Lets one worker use so many write `units` a second on average, and a second of them at once.

    `used` returns the write units that it has used so far. `ending` says that it is about to end.
    """

    units: float
    used: Callable[[], float]
    ending: Callable[[], bool]
    clock: Clock
    _allowed: float = math.inf
    _at: float = 0.0
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    async def ready(self, dated: float) -> None:
        """Wait until a change that was created at some time (epoch seconds) may be committed."""
        if self.clock.time() - dated < _RECENT_SECONDS:
            return
        async with self._turn:  # the commits of all shards, one after the other
            while True:
                owed = self._owed()
                if owed <= 0 or self.ending():
                    return
                await anyio.sleep(min(owed / self.units, _LOOK_SECONDS))

    def _owed(self) -> float:
        used, now = self.used(), self.clock.monotonic()
        earned = (now - self._at) * self.units
        self._allowed, self._at = min(self._allowed + earned, used + self.units), now
        return used - self._allowed


class PacedCommitter(Committer):
    """Commits at a rate."""

    def __init__(self, rate: CommitRate, *parts: Any) -> None:
        super().__init__(*parts)
        self._rate = rate

    async def commit(self, batch: Batch) -> Verdict:
        """Wait for a turn, then send a batch until its fate is known.

        Raises:
            LeaseLost: the cursor is not this worker's any more, or holds an unknown commit.
            ConfigurationError: the credentials may not write.
        """
        await self._rate.ready(batch.cursor.dated)
        return await super().commit(batch)

"""Pacing: how often to poll, when to write a position alone, how long to wait after a conflict.

A poll costs money whether it finds records or not, so the pause grows while a shard is quiet and
becomes short again at the first record of the application. streamkit's own records do not count:
otherwise every heartbeat would keep a shard awake.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from streamkit.progress.clock import Clock

_BUSY_RECORDS = 100
_CONFLICT_SECONDS = (0.02, 2.0)
_THROTTLE_SECONDS = (0.5, 20.0)
_CONFLICTS_MAX = 16
"""After this many conflicts in a row, pauses do not grow any more: powers of two soon exceed what a
float can hold.
"""
GIVE_WAY_SECONDS = 0.05
"""How long a loop over an app's code may delay heartbeats and commits."""
_LOOK_SECONDS = 1.0
"""A write that waits for its turn looks so often whether it may stop waiting."""
_PAUSE_MIN = 0.05
"""The first pause where the floor is 0; pauses grow from it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The settings behind pacing, all in seconds.

    `floor` is the pause after a page with the application's records; `ceiling` is the longest pause
    on a quiet shard. At one second a quiet shard costs 2.6 million reads a month, about $0.53
    (us-east-1, after the free tier). `checkpoint` is how long a position with records behind it may
    stay unwritten when no handler had an effect; `quiet` is the same when there were no such
    records.
    """

    floor: float = 0.2
    ceiling: float = 1.0
    checkpoint: float = 60.0
    quiet: float = 3600.0


@dataclass(slots=True)
class Pacing:
    """The pace of one shard."""

    pace: Pace
    rng: random.Random
    _pause: float = 0.0
    _conflicts: int = 0

    @property
    def checkpoint_seconds(self) -> float:
        """Return how long a position may stay unwritten when the application wrote."""
        return self.pace.checkpoint

    @property
    def quiet_seconds(self) -> float:
        """Return how long a position may stay unwritten when only streamkit wrote."""
        return self.pace.quiet

    def pause(self, traffic: int, records: int) -> float:
        """Return the seconds to wait before the next page.

        Args:
            traffic: how many of the last page's records were the application's.
            records: how many records it had in all; after a full page there is likely another.
        """
        if traffic:
            self._pause = self.pace.floor
        if records >= _BUSY_RECORDS:
            return 0.0
        if traffic:
            return self.pace.floor
        self._pause = min(max(self._pause, self.pace.floor, _PAUSE_MIN) * 1.5, self.pace.ceiling)
        return self._pause

    def contended(self, *, throttled: bool) -> float:
        """Return the seconds to wait before planning again, longer each time in a row."""
        first, longest = _THROTTLE_SECONDS if throttled else _CONFLICT_SECONDS
        self._conflicts = min(self._conflicts + 1, _CONFLICTS_MAX)
        return float(self.rng.uniform(0, min(first * 2**self._conflicts, longest)))

    def committed(self) -> None:
        """Reset the pauses, because a commit succeeded."""
        self._conflicts = 0


@dataclass
class CheckpointTimer:
    """Says when the position of a shard must be written, even if nothing else is."""

    pacing: Pacing
    clock: Clock

    def __post_init__(self) -> None:
        self._written_at = self.clock.monotonic()
        self._traffic = False

    def note_traffic(self) -> None:
        """Record that the application wrote: now the position matters sooner."""
        self._traffic = True

    def note_written(self, *, traffic: bool) -> None:
        """Record that the position was written; `traffic` says that changes behind it are left."""
        self._written_at, self._traffic = self.clock.monotonic(), traffic

    def soon(self) -> None:
        """Make the position due at once."""
        self._written_at = -math.inf

    def due(self, *, moved: bool) -> float:
        """Return the seconds until the position must be written; `moved`: the table lacks it."""
        quiet = self.pacing.quiet_seconds
        if not moved:
            return quiet
        seconds = self.pacing.checkpoint_seconds if self._traffic else quiet
        return self._written_at + seconds - self.clock.monotonic()


@dataclass
class UnitRate:
    """Lets writes use so many `units` a second on average, and a second of them at once.

    `used` returns the write units that were used so far. Nothing waits while `ending` says so.
    """

    units: float
    used: Callable[[], float]
    ending: Callable[[], bool]
    clock: Clock
    _allowed: float = math.inf
    _at: float = 0.0

    async def turn(self) -> None:
        """Wait until the next write may be sent."""
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


@dataclass(slots=True)
class ByteBudget:
    """Bounds the bytes of pages in memory over all shards; each shard may always hold one page."""

    limit: int = 64_000_000
    _held: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def has_room(self, shard: str) -> bool:
        """Return whether a shard may read another page."""
        return not self._held.get(shard) or self._total < self.limit

    def take(self, shard: str, size: int) -> None:
        """Count a page's bytes."""
        self._held[shard] = self._held.get(shard, 0) + size
        self._total += size

    def release(self, shard: str, size: int) -> None:
        """Give back a page's bytes."""
        if shard in self._held:  # the shard may have been given up meanwhile
            self._held[shard] -= size
            self._total -= size

    def forget(self, shard: str) -> None:
        """Give back all bytes of a shard that this worker does not read any more."""
        self._total -= self._held.pop(shard, 0)


class Turn:
    """Lets a loop that calls an app's code give other tasks of the event loop their turn.

    A page of a thousand changes may take a handler a minute. Without a pause the worker sends no
    heartbeat meanwhile, and other workers take its shards.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def give_way(self) -> None:
        """Let other tasks run, if none has run for `GIVE_WAY_SECONDS`."""
        while self._clock.monotonic() - self._began >= GIVE_WAY_SECONDS:
            # All tasks that wait here continue together: the first one restarts the time for all.
            began = self._began
            await anyio.lowlevel.checkpoint()
            if self._began == began:
                self._began = self._clock.monotonic()
                return

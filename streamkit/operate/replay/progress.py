"""How far a replay is: up to which moment all changes have run, and about how long the rest takes.

In: up to when each shard that is being read has come. Out: a `ReplayProgress` for people, every ten
seconds, and at the end. Shards are read side by side, so the replay is as far as the last of
them. What it is behind may grow meanwhile: the time left counts with that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from streamkit.operate.remaining import catches_up_in
from streamkit.progress.clock import Clock

_EVERY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is: `done` shards are read, `running` ones are being read.

    All changes up to `upto` (epoch seconds; 0 if none is known) have run. `share` is how much of
    the time to replay that is, 0 to 1, and `left` about how many seconds the rest takes; None where
    that is not known.
    """

    done: int
    running: int
    upto: float
    share: float | None
    left: float | None


Tell = Callable[[ReplayProgress], None]


def share_of(since: float, upto: float, end: float) -> float:
    """Return how much of the time from `since` to `end` has run, 0 to 1; in epoch seconds."""
    return min(1.0, max(0.0, upto - since) / (end - since)) if end > since else 1.0


@dataclass
class ProgressTeller:
    """Tells how far a replay of the changes from `since` to `until` is; both in epoch seconds.

    An `until` in the future is now, as it moves on.
    """

    since: float
    until: float
    clock: Clock
    tell: Tell
    _at: dict[str, float] = field(default_factory=dict)
    _done: int = 0
    _began: tuple[float, float] | None = None
    _told: float = 0.0
    _latest: float = 0.0

    def note(self, shard: str, upto: float) -> None:
        """Record up to when the changes of a shard have run; tell it if it is time."""
        self._at[shard] = max(upto, self._at.get(shard, 0.0))
        now, known = self.clock.time(), [at for at in self._at.values() if at]
        if self._began is None and known:
            self._began = now, self._behind(min(known), now)
        self._say(now)

    def note_done(self, shard: str) -> None:
        """Record that a shard is done; if it is time, log how far the other shards are."""
        self._latest = max(self._latest, self._at.pop(shard, 0.0))
        self._done += 1
        self._say(self.clock.time())

    def note_end(self) -> None:
        """Tell how far it is at its end."""
        self._told = 0.0
        self._say(self.clock.time())

    def _behind(self, upto: float, now: float) -> float:
        return max(0.0, min(self.until, now) - upto)

    def _say(self, now: float) -> None:
        if now - self._told < _EVERY_SECONDS:
            return
        self._told, running = now, len(self._at)
        known = [at for at in self._at.values() if at] or [self._latest]
        if self._began is None or not known[0]:
            self.tell(ReplayProgress(self._done, running, 0.0, None, None))
            return
        upto = min(known)
        left = catches_up_in([self._began, (now, self._behind(upto, now))])
        share = share_of(self.since, upto, min(self.until, now))
        self.tell(ReplayProgress(self._done, running, upto, share, left))

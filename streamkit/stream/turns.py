"""Turns: the readers of a shard that fell behind read one at a time.

In: the reader that wants to read. Out: nothing, if it may. On failure: `TurnAwaited`. If other
readers wait, a turn lasts some seconds, and they follow in the order in which they came. A reader
that does not use its turn for a moment loses it, so a slow or blocked reader delays no other. Time
is the event loop's.
"""

from dataclasses import dataclass, field
from typing import Protocol

import anyio

from streamkit.errors import RetryableError

_TURN_SECONDS = 5.0
_REST_SECONDS = 1.1
"""The pause between two readers' turns: the service counts the readers within a second."""
_ASKING_SECONDS = 3.0
"""A reader that has not asked for this long does not wait for a turn any more."""


class TurnAwaited(RetryableError):
    """Another reader that fell behind reads this shard now; ask again soon."""


class TurnReader(Protocol):
    """A reader that takes turns; `calling` says that one of its calls is under way."""

    calling: bool


@dataclass(eq=False)
class Turns:
    """Which reader may read a shard apart: one at a time, for some seconds."""

    _holder: TurnReader | None = None
    _began: float = 0.0
    _used: float = 0.0
    _waiting: dict[TurnReader, float] = field(default_factory=dict)

    def take(self, reader: TurnReader) -> None:
        """Use a turn.

        Raises:
            TurnAwaited: it is another reader's turn.
        """
        now = anyio.current_time()
        asking = {one: at for one, at in self._waiting.items() if now - at < _ASKING_SECONDS}
        mine = self._holder is reader
        if not mine or (asking and now - self._began >= _TURN_SECONDS):
            asking[reader] = now
            self._waiting = asking
            if next(iter(asking)) is not reader or not (mine or self._is_free(now)):
                raise TurnAwaited("another reader of this shard has its turn")
            del asking[reader]
            self._holder, self._began = reader, now
        self._used = now

    def _is_free(self, now: float) -> bool:
        holder = self._holder
        return holder is None or (not holder.calling and now - self._used >= _REST_SECONDS)

    def leave(self, reader: TurnReader) -> None:
        """Stop waiting for a turn; a turn in use ends once it is not used for a moment."""
        self._waiting.pop(reader, None)

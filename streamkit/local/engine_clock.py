"""The engine's clock, which a person can put ahead: a day passes for all tables at once."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class EngineClock:
    """Another clock, in epoch seconds, and by how many seconds the engine is ahead of it."""

    clock: Callable[[], float]
    ahead: float = 0.0

    @classmethod
    def of(cls, clock: Callable[[], float]) -> "EngineClock":
        """Return a clock that is an engine's already, or make one of it."""
        return clock if isinstance(clock, cls) else cls(clock)

    def __call__(self) -> float:
        """Return the time, in epoch seconds."""
        return self.clock() + self.ahead

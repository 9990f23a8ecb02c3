"""The workers of a run: their processes, what they log, and how they end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from streamkit.testing.world import Process


@dataclass
class Life:
    """One worker of the fleet and its process."""

    process: Process
    version: int
    worker: Any = None
    stopping: bool = False
    ended: bool = False

    @property
    def alive(self) -> bool:
        return not self.ended and not self.process.dead.is_set()

    def stop(self) -> None:
        self.stopping = True
        if self.worker is not None:
            self.worker.stop()

    async def started(self, worker: Any) -> None:
        self.worker = worker
        if self.stopping:
            worker.stop()


@contextmanager
def events_seen(see: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Hand on the workers' log lines instead of printing them."""

    def hand_on(_logger: Any, _method: str, line: dict[str, Any]) -> Any:
        see(line)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hand_on])
    try:
        yield
    finally:
        structlog.configure(**before)


def describe(error: BaseException) -> str:
    """Name an error, and those in it if it is a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"

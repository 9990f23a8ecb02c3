"""Signals: the first SIGTERM or SIGINT asks for a graceful end, the second ends the process.

They are handled as plain signals, not through the event loop, so that the second one works even
while a user's handler blocks the loop.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from streamkit.cli.exits import ExitCode

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM end the process at once with its own exit code, as SIGINT does anyway.

    Unhandled, SIGTERM would kill the process: an orchestrator would see a crash, and the first
    process of a container would ignore it. During imports and commands the process holds nothing
    that it would have to release.
    """

    def received(_number: int, _frame: FrameType | None) -> None:
        _end()

    before = signal.signal(signal.SIGTERM, received)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def graceful(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in the running loop at the first signal; exit at once at the second."""
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def received(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 1:
            loop.call_soon_threadsafe(stop)
            return
        _end()

    before = {number: signal.signal(number, received) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end() -> None:
    """End the process here; the next worker reads uncommitted changes again.

    Nothing is flushed: the signal may have come while a line is written to stderr, and Python
    refuses to enter that write a second time. Lines that are complete are written already.
    """
    os._exit(int(ExitCode.INTERRUPTED))

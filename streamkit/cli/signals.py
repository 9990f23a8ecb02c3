"""Signals: the first SIGTERM or SIGINT asks for a graceful end, the second ends the process.

They are taken as plain signals, not through the event loop, so that the second one works even
while a handler of the user's blocks the loop.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from streamkit.cli.exits import ExitCode

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
        # Nothing needs to be tidied up: what is not committed is read again by the next worker.
        sys.stderr.flush()
        os._exit(int(ExitCode.INTERRUPTED))

    before = {number: signal.signal(number, received) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

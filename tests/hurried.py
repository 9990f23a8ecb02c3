"""Commands whose waits take less time than they say, although what they call is another process.

A command mostly sleeps: until the next poll, the next heartbeat, the end of a lease. While it waits
for no answer of a service and for no thread, nothing can happen before its next timer, unless a
third process takes part. So the clock of its loop jumps there; while it waits for an answer, time
is real. If other processes take part, the clocks of all of them run faster, by the same rate: for
that they are started as `python -m tests.hurried RATE COMMAND…`. The time of day, which the service
has too, stays real.
"""

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import anyio
import anyio.to_thread
from aiobotocore.httpsession import AIOHTTPSession

from streamkit.cli import main

try:
    from streamkit.progress.clock import SystemClock
except ModuleNotFoundError:  # in the version that was released before
    from streamkit.clock import SystemClock  # type: ignore[import-not-found,no-redef]


class _Hurry:
    """A clock that runs ahead of the real one, for all loops of a command."""

    def __init__(self, rate: float, *, alone: bool) -> None:
        self.rate, self.alone = rate, alone
        self.awaited = 0
        """Calls of services and of threads that have not answered yet."""
        self.jumped = 0.0
        self._began = time.monotonic()

    def monotonic(self) -> float:
        passed = time.monotonic() - self._began
        return self._began + passed * self.rate + self.jumped


class _Selector(selectors.DefaultSelector):
    """A selector that waits less than it is asked to."""

    def __init__(self, hurry: _Hurry) -> None:
        super().__init__()
        self._hurry = hurry

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self._hurry.awaited or not self._hurry.alone:
            return super().select(timeout / self._hurry.rate)
        ready = super().select(0)
        if not ready:
            self._hurry.jumped += timeout
        return ready


class _HurriedLoop(asyncio.SelectorEventLoop):
    def __init__(self, hurry: _Hurry) -> None:
        self._hurry = hurry
        super().__init__(_Selector(hurry))

    def time(self) -> float:
        return self._hurry.monotonic()


@contextmanager
def hurried(rate: float = 1, *, alone: bool) -> Iterator[None]:
    """Let the command that runs in this process meanwhile hurry.

    Args:
        rate: how much faster its clock runs than the real one.
        alone: no other process takes part but the service, so that the clock may jump.
    """
    hurry = _Hurry(rate, alone=alone)

    def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            hurry.awaited += 1
            try:
                return await call(*arguments, **options)
            finally:
                hurry.awaited -= 1

        return counted

    run = partial(anyio.run, backend_options={"loop_factory": lambda: _HurriedLoop(hurry)})
    threads = anyio.to_thread
    with (
        mock.patch.object(anyio, "run", run),
        mock.patch.object(AIOHTTPSession, "send", awaited(AIOHTTPSession.send)),
        mock.patch.object(threads, "run_sync", awaited(threads.run_sync)),
        mock.patch.object(SystemClock, "monotonic", staticmethod(hurry.monotonic)),
    ):
        yield


if __name__ == "__main__":
    own_rate = float(sys.argv.pop(1))
    sys.argv[0] = "streamkit"
    with hurried(own_rate, alone=False):
        main()

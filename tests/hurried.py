"""Commands whose waits take less time than they say, although what they call is another process.

A command mostly sleeps: until the next poll, the next heartbeat, the end of a lease. While it waits
for no answer of a service and for no thread, nothing can happen before its next timer, unless a
third process takes part. So the clock of its loop jumps there; while it waits for an answer, time
is real, and so it is for a second after a call was throttled, because the service counts seconds of
its own. If other processes take part, the clocks of all of them run faster, by the same rate: for
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

from streamkit import aws
from streamkit.cli import main

try:
    from streamkit.progress.clock import SystemClock
except ModuleNotFoundError:  # in the version that was released before
    from streamkit.clock import SystemClock  # type: ignore[import-not-found,no-redef]


_SECOND = 1.0


class _Hurry:
    """A clock that runs ahead of the real one, for all loops of a command."""

    def __init__(self, rate: float, *, alone: bool) -> None:
        self.rate, self.alone = rate, alone
        self.awaited = 0
        """Calls of services and of threads that have not answered yet."""
        self.jumped = 0.0
        self.throttled = -_SECOND
        self._began = time.monotonic()

    def monotonic(self) -> float:
        passed = time.monotonic() - self._began
        return self._began + passed * self.rate + self.jumped

    @property
    def jumps(self) -> bool:
        """Whether nothing can happen before the next timer."""
        calm = time.monotonic() > self.throttled + _SECOND
        return self.alone and calm and not self.awaited


class _Selector(selectors.DefaultSelector):
    """A selector that waits less than it is asked to."""

    def __init__(self, hurry: _Hurry) -> None:
        super().__init__()
        self._hurry = hurry

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if not self._hurry.jumps:
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

    def told(error: Exception) -> None:
        hurry.throttled = time.monotonic()
        if tell_repeated is not None:
            tell_repeated(error)

    tell_repeated = getattr(aws, "tell_repeated", None)  # the released version has none
    session = aws.sessions.HttpSession if hasattr(aws, "sessions") else AIOHTTPSession
    run = partial(anyio.run, backend_options={"loop_factory": lambda: _HurriedLoop(hurry)})
    threads = anyio.to_thread
    with (
        mock.patch.object(anyio, "run", run),
        mock.patch.object(session, "send", awaited(session.send)),
        mock.patch.object(threads, "run_sync", awaited(threads.run_sync)),
        mock.patch.object(aws, "tell_repeated", told, create=True),
        mock.patch.object(SystemClock, "monotonic", staticmethod(hurry.monotonic)),
    ):
        yield


if __name__ == "__main__":
    own_rate = float(sys.argv.pop(1))
    sys.argv[0] = "streamkit"
    with hurried(own_rate, alone=False):
        main()

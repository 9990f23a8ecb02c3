"""Commands in this process whose waits take no time, although what they call is another process.

A command mostly sleeps: until the next poll, the next heartbeat, the end of a lease. While it waits
for no answer of a service and for no thread, nothing can happen before its next timer, unless a
third process takes part. So its loop's clock jumps there. While it waits for an answer, time is
real. The time of day, which the service has too, stays real.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import anyio
import anyio.to_thread
from aiobotocore.httpsession import AIOHTTPSession

from streamkit.progress.clock import SystemClock


class _Jumps(selectors.DefaultSelector):
    """A selector that jumps to the next timer when nothing is awaited from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.awaited = 0
        """Calls of services and of threads that have not answered yet."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if self.awaited or timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.jumped += timeout
        return ready


class _HurriedLoop(asyncio.SelectorEventLoop):
    def __init__(self, jumps: _Jumps) -> None:
        super().__init__(jumps)
        self._jumps = jumps

    def time(self) -> float:
        return time.monotonic() + self._jumps.jumped


@contextmanager
def hurried() -> Iterator[None]:
    """Let commands that run in this process meanwhile jump over what they would sleep."""
    jumps: list[_Jumps] = []

    def loop() -> _HurriedLoop:
        jumps.append(_Jumps())
        return _HurriedLoop(jumps[-1])

    def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            jumps[-1].awaited += 1
            try:
                return await call(*arguments, **options)
            finally:
                jumps[-1].awaited -= 1

        return counted

    def monotonic() -> float:
        return time.monotonic() + (jumps[-1].jumped if jumps else 0.0)

    run = partial(anyio.run, backend_options={"loop_factory": loop})
    threads = anyio.to_thread
    with (
        mock.patch.object(anyio, "run", run),
        mock.patch.object(AIOHTTPSession, "send", awaited(AIOHTTPSession.send)),
        mock.patch.object(threads, "run_sync", awaited(threads.run_sync)),
        mock.patch.object(SystemClock, "monotonic", staticmethod(monotonic)),
    ):
        yield

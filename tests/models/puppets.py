"""Puppets: real processes that make the calls that count one by one, when a trace says so.

A replay drives real code through the steps of a model. Each process of the model is a puppet here:
it runs until its next call that is a step, waits there, and goes on when that step comes. In
between no other process does anything, so that what it does from one such call to the next is one
step, as it is in the model.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from streamkit.testing.world import Process


class Puppet(Process):
    """A process that stops at each call that `counts`, and goes on when it is told to.

    `at` is what `counts` said of the call that it stands at, "" while it stands at none. `result`
    is what it has returned, `error` what it has raised.
    """

    def __init__(self, name: str, counts: Callable[[Any], str]) -> None:
        super().__init__(name)
        self._counts = counts
        self.at = ""
        self.result: Any = None
        self.error: BaseException | None = None
        self._stands, self._goes = anyio.Event(), anyio.Event()
        self._ended, self._scope = anyio.Event(), anyio.CancelScope()
        self._dies = False

    async def intercept(self, call: Any, apply: Callable[[], Any]) -> Any:
        """Stop at a call that counts; a call of a dead process never returns."""
        await self._runs()
        name = self._counts(call)
        if not name:
            return apply()
        self.at = name
        self._stands.set()
        await self._goes.wait()
        await self._runs()
        reply = apply()
        if self._dies:
            self.kill()
            self._scope.cancel()
        await self._runs()
        return reply

    async def begin(self, group: Any, work: Callable[[], Awaitable[Any]]) -> None:
        """Begin to work, up to the first call that counts."""
        self.start(group, work)
        await self.stands()

    def start(self, group: Any, work: Callable[[], Awaitable[Any]]) -> None:
        """Begin to work."""

        async def run() -> None:
            with self._scope:
                try:
                    self.result = await work()
                except Exception as error:
                    self.error = error
            self.at = ""
            self._ended.set()
            self._stands.set()

        group.start_soon(run)

    async def stands(self) -> None:
        """Wait until it stands at a call that counts, or has ended."""
        await self._stands.wait()

    @property
    def ended(self) -> bool:
        """Return whether it has returned, raised, or died."""
        return self._ended.is_set()

    async def step(self) -> None:
        """Let it make the call that it stands at, and go on to the next, or to its end."""
        self.let_go()
        await self.stands()

    def let_go(self) -> None:
        """Let it make the call that it stands at."""
        goes, self._goes, self._stands = self._goes, anyio.Event(), anyio.Event()
        self.at = ""
        goes.set()

    async def die(self, *, after: bool = False) -> None:
        """Kill it: before the call that it stands at, or after that has reached the table."""
        self._dies = True
        if after:
            await self.step()
        else:
            self.kill()
            self._scope.cancel()
            await self._ended.wait()

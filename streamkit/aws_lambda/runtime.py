"""Keep one event loop and one environment for all invocations of an execution environment.

In: an app, and the work of each invocation. Out: what that returns. Both last as long as the
process; between invocations Lambda freezes them. On failure: the next call opens what could not be
opened; if the stream or the consumer was replaced, the environment is opened again.
"""

import asyncio
import gc
import math
import os
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from streamkit.app import App
from streamkit.aws_lambda.environment import Environment, Outdated, open_environment
from streamkit.aws_lambda.invocation import check_time
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.model.declaration import named
from streamkit.observe.logger import Logger
from streamkit.observe.repeats import counted_as
from streamkit.progress.garbage import collect_seldom

T = TypeVar("T")

_RESERVE_SECONDS = 0.5
"""The time in seconds that is reserved for the response."""
_RESERVE_SHARE = 0.15
"""The largest share of the time for that, for functions with a short time-out."""


class Context(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may still take."""


def require_app(app: object) -> None:
    """Refuse to make a function of something else than an app.

    Raises:
        DeclarationError: it is no app.
    """
    if not isinstance(app, App):
        raise DeclarationError(
            f"a function is made of an App, or of a listener that `app.listener(...)` returns; this"
            f" is {named(app)}"
        )


class Runtime:
    """Runs invocations of one app's function, one after the other, as Lambda does."""

    def __init__(self, app: App) -> None:
        """Take the app of a function.

        Raises:
            DeclarationError: it is no app.
        """
        require_app(app)
        self._app = app
        self._runner: asyncio.Runner | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._environment: Environment | None = None
        Logger.prepare_with(_set_up_logs)

    def run(self, work: Callable[[Environment], Awaitable[T]], seconds: float = math.inf) -> T:
        """Run `work` in the environment, which has to be open within `seconds`.

        Raises:
            ConfigurationError: the environment cannot be opened; the next call tries again.
            TimeoutError: it is not open in time; the next call tries again.
        """
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._within(work, seconds))

    async def _within(self, work: Callable[[Environment], Awaitable[T]], seconds: float) -> T:
        ends = asyncio.get_running_loop().time() + seconds
        fresh = self._environment is None
        try:
            return await _counted(work, await self._open(ends, seconds))
        except Outdated:
            await self._close()
            if fresh:
                raise
        return await _counted(work, await self._open(ends, seconds))

    async def _open(self, ends: float, seconds: float) -> Environment:
        """Return the environment, which is opened if need be until a time of the loop."""
        if self._environment is None:
            opened = asyncio.Event()
            self._keeper = asyncio.create_task(self._keep(opened))
            waiting = asyncio.create_task(opened.wait())
            left = None if ends == math.inf else ends - asyncio.get_running_loop().time()
            first = asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait((self._keeper, waiting), timeout=left, return_when=first)
            if self._environment is None:
                waiting.cancel()
                if not done:
                    await self._close()
                    raise TimeoutError(
                        f"the table did not answer within the {max(seconds, 0):.1f} s that the"
                        " function had: look at its route to DynamoDB (VPC, security groups,"
                        " endpoints), or give it a longer time-out"
                    )
                await self._keeper  # it has failed, and raises the reason
            assert self._environment is not None  # noqa: S101 - the keeper has set it
            if seconds < math.inf:
                check_time(self._environment, seconds)
        return self._environment

    async def _keep(self, opened: asyncio.Event) -> None:
        """Hold the environment open, in a task that does not end with an invocation."""
        async with open_environment(self._app) as self._environment:
            # Objects that exist now stay: no invocation's garbage collection has to look through
            # them.
            collect_seldom(first=False)
            opened.set()
            try:
                await asyncio.Event().wait()
            finally:
                gc.unfreeze()

    async def _close(self) -> None:
        keeper, self._keeper, self._environment = self._keeper, None, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait((keeper,))


def _set_up_logs() -> None:
    """Write streamkit's log lines as JSON without item data; leave other packages' to Lambda."""
    from streamkit.observe.logs import LEVELS, configure

    level = os.environ.get("STREAMKIT_LOG_LEVEL", "info")
    configure("json", level if level in LEVELS else "info", others=False)


async def _counted(work: Callable[[Environment], Awaitable[T]], environment: Environment) -> T:
    """Run `work`, and print its counts at once: the environment may never be invoked again."""
    try:
        with counted_as(environment.meters):
            return await work(environment)
    finally:
        environment.tell()


def seconds_of(context: Context) -> float:
    """Return the seconds within which an invocation has to be done, from now on.

    Raises:
        ConfigurationError: it is not Lambda's context.
    """
    if not hasattr(context, "get_remaining_time_in_millis"):
        raise ConfigurationError(
            "the function was called without Lambda's context, which says how much time is left:"
            " in a test, pass an object with get_remaining_time_in_millis()"
        )
    left = context.get_remaining_time_in_millis() / 1000
    return left - min(_RESERVE_SECONDS, left * _RESERVE_SHARE)

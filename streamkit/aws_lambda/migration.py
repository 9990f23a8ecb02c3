"""Run a migration on Lambda: each invocation runs a slice of it, until its time is nearly over.

    migration = streamkit.aws_lambda.migration_handler(app)

In: `{"migration": "0003"}`, a migration that `streamkit migrate begin` has begun. Out: the fields
of `Slice`, with `done` and `segments_left`: the caller invokes it again until it is done, and at
once unless it is `paused` or `waits`. Any number of invocations may run at once. Like `streamkit
migrate join`, a slice does what the table says: it begins nothing and ends no pause, however often
it is started.

On failure: as `streamkit migrate join`; the next invocation continues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from streamkit.app import App
from streamkit.aws import Aws, connect
from streamkit.aws_lambda.runtime import Context, require_app, seconds_of
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.discovery import discover
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.operate.slices import Slice, run_slice
from streamkit.progress.clock import Clock
from streamkit.progress.metering import meter

T = TypeVar("T")


async def process_slice(
    app: App,
    aws: Aws,
    event: Mapping[str, Any],
    seconds: float = 60.0,
    *,
    clock: Clock | None = None,
) -> Slice:
    """Run a slice of the migration that an event names; return within `seconds`.

    Raises:
        NotBegun: the migration was never begun.
        ConfigurationError: there is no such migration, or the table, the permissions or the
            definition are wrong.
    """
    number = event.get("migration")
    if not isinstance(number, str):
        raise ConfigurationError('the event names no migration, as in {"migration": "0003"}')
    return await run_slice(app, aws, migration_of(app, number), seconds, clock=clock)


def migration_handler(app: App) -> Callable[[Mapping[str, Any], Context], dict[str, Any]]:
    """Return the function that runs slices of an app's migrations.

    The files of the migrations are executed at once, so that a wrong one fails at deployment.

    Raises:
        DiscoveryError: a file of a migration is wrong.
    """
    require_app(app)
    discover(app)
    clients = _Clients()

    def handle(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        return clients.run(
            lambda aws: process_slice(app, aws, event, seconds_of(context))
        ).to_dict()

    return handle


class _Clients:
    """One event loop and one set of clients for all invocations of an execution environment."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._stack = AsyncExitStack()
        self._aws: Aws | None = None

    def run(self, work: Callable[[Aws], Awaitable[T]]) -> T:
        """Run `work` with the clients, which stay open."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._with_clients(work))

    async def _with_clients(self, work: Callable[[Aws], Awaitable[T]]) -> T:
        if self._aws is None:
            self._aws = await self._stack.enter_async_context(connect())
            meter(self._aws)
        return await work(self._aws)

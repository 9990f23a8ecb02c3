"""Clients of a simulated process: botocore's own are made only where one is needed.

Making three of them takes longer than most simulated processes live. Calls that succeed, and
refusals, need none: `streamkit.local.shortcut` names those calls.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from streamkit.aws import Aws, connect
from streamkit.local.shortcut import Deferred

_known: dict[str, Aws] = {}
"""Clients by Region, which are closed: new clients make their calls in the same way."""


class _Opening:
    """The clients of one process, opened together when the first of them is needed."""

    def __init__(self, session: type, region: str) -> None:
        self._context = connect(http_session=session, region=region)
        self._aws: Aws | None = None

    def aws(self) -> Aws:
        """Return the clients.

        They are asked for in the middle of a call, or outside of calls, so nothing can be awaited
        here. Without credentials and network botocore waits for nothing while it makes them.
        """
        if self._aws is None:
            try:
                self._context.__aenter__().send(None)
            except StopIteration as opened:
                self._aws = opened.value
        if self._aws is None:
            raise RuntimeError("botocore waits for something while it makes a client")
        return self._aws

    async def close(self) -> None:
        """Close the clients that have been opened."""
        if self._aws is not None:
            await self._context.__aexit__(None, None, None)


@asynccontextmanager
async def deferred(session: type, region: str) -> AsyncIterator[Aws]:
    """Open clients whose calls are made by a class of `streamkit.local.transport`."""
    if region not in _known:
        async with connect(http_session=session, region=region) as known:
            _known[region] = known
    like, opening, calls = _known[region], _Opening(session, region), session()

    def client(name: str) -> Any:
        return Deferred(getattr(like, name), calls, lambda: getattr(opening.aws(), name))

    try:
        yield Aws(client("dynamodb"), client("streams"), client("beats"))
    finally:
        await opening.close()

"""A process that acts once: a command of streamkit, or the same by the client's raw calls.

Each is a coroutine function that takes open clients. `timed` returns its CPU seconds; a function
that returns a float has measured the part that counts by itself.
"""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig

from streamkit.aws import Aws, connect
from streamkit.observe.logs import configure
from tests.benchmarks.processes import use_server

AT_ONCE = 16
"""Raw calls under way at the same moment."""


@dataclass
class Acting:
    """What another process may ask of it; see `processes`.

    `raw` is a client as cheap as it comes: streamkit's own may become cheaper than that.
    """

    aws: Aws
    raw: Any

    async def timed(self, act: Callable[..., Awaitable[object]], *arguments: object) -> float:
        """Return the CPU seconds of a command of streamkit."""
        return await _timed(act, self.aws, *arguments)

    async def raw_timed(self, act: Callable[..., Awaitable[object]], *arguments: object) -> float:
        """Return the CPU seconds of calls of the raw client."""
        return await _timed(act, self.raw, *arguments)

    async def most_memory(self) -> int:
        """Return the most bytes of memory that the process has had."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def _timed(act: Callable[..., Awaitable[object]], *arguments: object) -> float:
    began = time.process_time()
    spent = await act(*arguments)
    return spent if isinstance(spent, float) else time.process_time() - began


@asynccontextmanager
async def acting(url: str) -> AsyncIterator[Acting]:
    """Open the clients."""
    configure("json", "error")
    use_server(url)
    config = AioConfig(
        retries={"total_max_attempts": 1}, parameter_validation=False, user_agent="raw"
    )
    session = aioboto3.Session()
    async with connect() as aws, session.client("dynamodb", config=config) as raw:
        await raw.describe_endpoints()
        yield Acting(aws, raw)


async def at_once(call: Callable[[Any], Awaitable[object]], of: list[Any]) -> None:
    """Make a call for each of many, some of them at the same moment."""
    left = iter(of)

    async def some() -> None:
        for one in left:
            await call(one)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def pages_of(client: Any, **request: Any) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the items of each page of a scan."""
    start: dict[str, Any] = {}
    while True:
        reply = await client.scan(**request, **start)
        yield reply["Items"]
        if "LastEvaluatedKey" not in reply:
            return
        start = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}

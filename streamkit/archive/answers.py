"""Wait some seconds for S3 in a command, and not for ever as a process does that works on.

In: a call that repeats itself while a service does not answer. Out: what it returns. On failure:
`ConfigurationError` says which place does not answer.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from streamkit.archive.contents import open_contents
from streamkit.errors import ConfigurationError

T = TypeVar("T")

ANSWER_SECONDS = 20.0


async def answered(place: str, call: Callable[[], Awaitable[T]]) -> T:
    """Return what a call returns.

    Raises:
        ConfigurationError: the place does not answer within 20 seconds.
    """
    with anyio.move_on_after(ANSWER_SECONDS):
        return await call()
    raise ConfigurationError(
        f"{place} does not answer within {ANSWER_SECONDS:.0f} s: check its name, the Region, the"
        " endpoint and the network"
    )


async def require_answer(source: str) -> None:
    """Check that an object in S3 can be opened; of a file nothing is asked.

    Raises:
        ConfigurationError: it cannot be opened, or S3 does not answer.
    """

    async def opens() -> None:
        async with open_contents(source):
            pass

    if source.startswith("s3://"):
        await answered(source, opens)

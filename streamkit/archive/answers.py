"""How long to wait for the place of an archive: a command some seconds, a worker for ever.

In: a call that repeats itself while a service does not answer; objects, for a worker. Out: what the
call returns. On failure: a command gets a `ConfigurationError` that says which place does not
answer. A worker's handlers go on while its archive refuses calls: the writer waits, and readers are
told that nothing is decided, because a reader that waits would keep its place in the polling pool.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import anyio

from streamkit.archive.contents import open_contents
from streamkit.archive.long_pages import NotDecided
from streamkit.archive.objects import ArchiveRefused, Objects, Stored
from streamkit.errors import ConfigurationError
from streamkit.observe.logger import get_logger

T = TypeVar("T")

log = get_logger("streamkit.archive")

ANSWER_SECONDS = 20.0
_REFUSED_SECONDS = 10.0
"""The pause before a writer tries again what was refused."""
_TOLD_SECONDS = 120.0
"""A refusal that does not come again is reported for this long; readers ask every half minute."""


@dataclass(frozen=True)
class WorkerObjects:
    """The objects of an archive for a worker, which works on while calls are refused.

    If it `waits`, a refused call is repeated until it succeeds; otherwise it raises `NotDecided`.
    """

    objects: Objects
    waits: bool
    _refused: dict[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def refused(self) -> str:
        """Return what was refused lately and has not succeeded since, for people."""
        since = anyio.current_time() - _TOLD_SECONDS
        return "; ".join(sorted({text for at, text in self._refused.values() if at >= since}))

    async def create(self, name: str, body: bytes) -> bool:
        """Store an object, as `Objects`."""
        return await self._allowed("create", partial(self.objects.create, name, body))

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        """Replace an object, as `Objects`."""
        return await self._allowed("replace", partial(self.objects.replace, name, body, tag))

    async def read(self, name: str) -> Stored | None:
        """Read an object, as `Objects`."""
        return await self._allowed("read", partial(self.objects.read, name))

    async def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the next names, as `Objects`."""
        return await self._allowed("names", partial(self.objects.names, prefix, after))

    async def try_writing(self, name: str) -> None:
        """Raise at once what creating an object would meet."""
        await self.objects.try_writing(name)

    async def _allowed(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                found = await call()
            except ArchiveRefused as error:
                self._tell(verb, error)
                if not self.waits:
                    raise NotDecided(str(error)) from error
            else:
                self._refused.pop(verb, None)
                return found
            await anyio.sleep(_REFUSED_SECONDS)

    def _tell(self, verb: str, error: ArchiveRefused) -> None:
        text = str(error)
        self._refused[verb] = anyio.current_time(), text
        if error.full:
            log.often("archive.full", level="error", by=text, reason=text)
        else:
            log.often("archive.refused", level="error", by=text, reason=text)


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

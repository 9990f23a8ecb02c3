"""An archive in memory, for tests: its calls meet the crashes and faults of the process that calls.

    archive = harness.archive()
    archive.damage(archive.links[3])          # or `remove`, or `cut`

What a call means is that of a bucket: a name is created once, and a call that fails for a moment is
made again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from streamkit.archive.objects import FLUSH, ArchiveRefused, Flush, Objects, Stored
from streamkit.local.transport import Call, Response
from streamkit.testing.faults import Interceptor

T = TypeVar("T")

Passing = Callable[[Call, Callable[[], Response]], Awaitable[Response]]

PASSING: ContextVar[Passing | None] = ContextVar("PASSING", default=None)
"""What stands between the process that runs now and what it calls."""

_DONE = Response(200, b"")
_PAUSE_SECONDS = 0.2


@dataclass
class MemoryArchive:
    """Keep an archive in memory.

    Attributes:
        objects: the bytes of each object, by name.
        flush: when what was read is stored.
        faults: what calls meet: a bucket is slow, answers 503, or 409, or its reply is lost.
        refuses: the operations that it refuses, such as `PutObject`.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    flush: Flush = FLUSH
    faults: Interceptor | None = None
    refuses: frozenset[str] = frozenset()

    @property
    def place(self) -> str:
        """Return a name for the archive, for people."""
        return "memory"

    @property
    def links(self) -> list[str]:
        """Return the names of the links of all chains, in order."""
        return sorted(name for name in self.objects if "/shards/" in name)

    def damage(self, name: str) -> None:
        """Alter a byte in the middle of an object."""
        body = bytearray(self.objects[name])
        body[len(body) // 2] ^= 0xFF
        self.objects[name] = bytes(body)

    def cut(self, name: str) -> None:
        """Cut an object short."""
        self.objects[name] = self.objects[name][:-20]

    def remove(self, name: str) -> None:
        """Remove an object."""
        del self.objects[name]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Objects]:
        """Yield the objects, which are this one's own."""
        yield self

    async def create(self, name: str, body: bytes) -> bool:
        """Store an object; return False if there is one of this name, which stays."""

        def create() -> bool:
            if name in self.objects:
                return False
            self.objects[name] = body
            return True

        return await self._call("PutObject", create)

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        """Replace an object that was read with this tag; return False if it has changed."""

        def replace() -> bool:
            there = self.objects.get(name)
            if there is None or _tag(there) != tag:
                return False
            self.objects[name] = body
            return True

        return await self._call("PutObject", replace)

    async def read(self, name: str) -> Stored | None:
        """Read an object; None if there is none."""
        body = await self._call("GetObject", lambda: self.objects.get(name))
        return None if body is None else Stored(body, _tag(body))

    async def try_writing(self, name: str) -> None:
        """Raise what creating an object would meet; nothing stays of it."""
        await self._call("PutObject", lambda: name in self.objects)

    async def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the next names with this prefix after a name, sorted; none at the end."""
        listed = await self._call("ListObjectsV2", lambda: sorted(self.objects))
        return [name for name in listed if name.startswith(prefix) and name > after][:100]

    async def _call(self, operation: str, work: Callable[[], T]) -> T:
        """Make a call until it is answered."""
        if operation in self.refuses:
            raise ArchiveRefused(f"the archive in memory answers {operation} with AccessDenied")
        while True:
            results: list[T] = []

            def apply(results: list[T] = results) -> Response:
                results.append(work())
                return _DONE

            try:
                reply = await self._sent(Call("", "s3", operation, b""), apply)
                if reply.status < 300:
                    return results[-1]
            except OSError:  # the reply was lost: it may have been applied
                await anyio.sleep(_PAUSE_SECONDS)
            await anyio.sleep(_PAUSE_SECONDS)

    async def _sent(self, call: Call, apply: Callable[[], Response]) -> Response:
        passing = PASSING.get()
        if passing is None:
            return apply()
        if self.faults is None:
            return await passing(call, apply)
        await passing(call, lambda: _DONE)  # its process may end here
        return await self.faults.intercept(call, apply)


def _tag(body: bytes) -> str:
    return str(hash(body))

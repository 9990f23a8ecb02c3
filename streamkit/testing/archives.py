"""An archive in memory, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from streamkit.archive.objects import FLUSH, Flush, Objects, Stored


@dataclass
class MemoryArchive:
    """Keep an archive in memory.

    Attributes:
        objects: the bytes of each object, by name.
        calls: how often each method was called.
        flush: when what was read is stored.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    flush: Flush = FLUSH

    @property
    def place(self) -> str:
        """Return where it is."""
        return "memory"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Objects]:
        """Open it."""
        yield self

    async def create(self, name: str, body: bytes) -> bool:
        """Store an object; return False if there is one of this name, which stays."""
        self._count("create")
        return self.objects.setdefault(name, body) is body

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        """Replace an object that was read with this tag; return False if it has changed."""
        self._count("replace")
        there = self.objects.get(name)
        if there is None or _tag(there) != tag:
            return False
        self.objects[name] = body
        return True

    async def read(self, name: str) -> Stored | None:
        """Read an object; None if there is none."""
        self._count("read")
        body = self.objects.get(name)
        return None if body is None else Stored(body, _tag(body))

    async def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the next names with this prefix after a name, sorted; none at the end."""
        self._count("names")
        found = sorted(n for n in self.objects if n.startswith(prefix) and n > after)
        return found[:100]

    def _count(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1


def _tag(body: bytes) -> str:
    return str(hash(body))

"""Objects: where an archive is kept. The protocol of a bucket, a directory, or a test's memory.

A name is given once: `create` stores an object only if there is none of its name, and the object is
stored whole or not at all. Everything else in the archive relies on this.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from streamkit.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read; its `tag` changes whenever the object changes."""

    body: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Flush:
    """When a writer stores what it has read: after so many seconds, or so many compressed bytes.

    A smaller `seconds` lets the archive follow the stream more closely, and costs more requests:
    each is one `PutObject` for each shard that is written to.
    """

    seconds: float = 300.0
    size: int = 5_000_000


FLUSH = Flush()
"""When a writer stores what it has read, unless the archive says otherwise."""


class ArchiveRefused(ConfigurationError):
    """The place of an archive refuses a call: the same call succeeds once people have mended that.

    The text says what to do; `full` says that a disk is full.
    """

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


class Objects(Protocol):
    """The objects of one archive, by name; folders are separated by slashes.

    Each call may raise `ArchiveRefused`.
    """

    async def create(self, name: str, body: bytes) -> bool:
        """Store an object; return False if there is one of this name, which stays."""

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        """Replace an object that was read with this tag; return False if it has changed."""

    async def read(self, name: str) -> Stored | None:
        """Read an object; None if there is none."""

    async def try_writing(self, name: str) -> None:
        """Raise what creating an object of this name would meet; no reader asks for the name.

        A store that cannot take back what it has stored keeps an empty object.
        """

    async def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the next names with this prefix after a name, sorted; none at the end."""


class Archive(Protocol):
    """What an app is given: the place of its archive, which is not opened yet."""

    @property
    def place(self) -> str:
        """Return where the archive is, for people."""

    @property
    def flush(self) -> Flush:
        """Return when its writer stores what it has read."""

    def opened(self) -> AbstractAsyncContextManager[Objects]:
        """Open it; the objects may be used until the context ends."""


async def all_names(objects: Objects, prefix: str, after: str = "") -> list[str]:
    """Return every name with this prefix after a name, sorted."""
    found: list[str] = []
    while some := await objects.names(prefix, after):
        found += some
        after = some[-1]
    return found

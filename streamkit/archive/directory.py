"""A directory as an archive: one file for each object.

A file is written under another name, made durable, and then linked to its own name. A link fails if
the name is taken; renaming would overwrite the file that has the name.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from streamkit.archive.objects import FLUSH, ArchiveRefused, Flush, Objects, Stored
from streamkit.errors import ConfigurationError

T = TypeVar("T")

_UNFINISHED = ".unfinished-"
_LISTED = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class DirectoryArchive:
    """Keep an archive in a directory, which all workers must share.

    The file system must have hard links. Local disks and NFS have them; object stores that are
    mounted as file systems often have not, and are refused.

    Attributes:
        path: the directory; it is made if there is none.
        flush: when what was read is stored.
    """

    path: str | Path
    flush: Flush = FLUSH

    @property
    def place(self) -> str:
        """Return the directory."""
        return str(self.path)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Objects]:
        """Yield the objects below the folder."""
        yield _Files(Path(self.path))


@dataclass(frozen=True)
class _Files:
    root: Path
    _lasting: set[Path] = field(default_factory=set)

    async def create(self, name: str, body: bytes) -> bool:
        return await self._call(self._create, name, body)

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        return await self._call(self._replace, name, body, tag)

    async def read(self, name: str) -> Stored | None:
        return await self._call(self._read, name)

    async def names(self, prefix: str, after: str = "") -> list[str]:
        return await self._call(self._names, prefix, after)

    async def try_writing(self, name: str) -> None:
        await self._call(self._try, name)

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a call in a thread.

        Raises:
            ArchiveRefused: the directory cannot be read or written.
            ConfigurationError: its file system cannot hold an archive.
        """
        try:
            return await to_thread.run_sync(work, *arguments)
        except OSError as error:
            where = Path(error.filename or self.root)
            where = where.parent if where.name.startswith(_UNFINISHED) else where
            raise ArchiveRefused(
                f"the archive in {self.root} cannot be used: {error.strerror}: {where}; archive="
                " takes a folder that this process may make, read and write",
                full=error.errno in _FULL,
            ) from error

    def _create(self, name: str, body: bytes) -> bool:
        path = self.root / name
        self._make(path.parent)
        return self._store(path, body)

    def _try(self, name: str) -> None:
        """Store a file in the folder above a name, or in the nearest one that exists; remove it.

        Folders are not made: they would belong to the user of this process, and not the worker's.
        """
        folder = next(one for one in (self.root / name).parents if one.exists())
        there = folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
        self._store(there, b"")
        there.unlink()

    def _store(self, path: Path, body: bytes) -> bool:
        unfinished = _written(path.parent, body)
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise ConfigurationError(
                    f"{self.root}: its file system has no hard links, which an archive needs"
                ) from error
            raise
        finally:
            unfinished.unlink()
        _sync(path.parent)
        return True

    def _make(self, folder: Path) -> None:
        """Make a folder and those around it durable, also if another process has made them.

        Another process may have made one, and may end before it is durable.
        """
        if folder in self._lasting and folder.is_dir():
            return
        made = {one.parent for one in (folder, *folder.parents) if not one.is_dir()}
        folder.mkdir(parents=True, exist_ok=True)
        within = {one for one in folder.parents if one.is_relative_to(self.root)}
        for one in sorted(made | within):
            _sync(one)
        self._lasting.add(folder)

    def _replace(self, name: str, body: bytes, tag: str) -> bool:
        there = self._read(name)
        if there is None or there.tag != tag:
            return False
        path = self.root / name
        _written(path.parent, body).replace(path)
        _sync(path.parent)
        return True

    def _read(self, name: str) -> Stored | None:
        try:
            body = (self.root / name).read_bytes()
        except FileNotFoundError:
            return None
        return Stored(body, hashlib.sha256(body).hexdigest())

    def _names(self, prefix: str, after: str) -> list[str]:
        found: list[str] = []
        top = self.root / prefix.rpartition("/")[0]
        for folder, _, files in os.walk(top, onerror=_unless_missing):
            within = Path(folder).relative_to(self.root).as_posix()
            names = (f"{within}/{file}".removeprefix("./") for file in files)
            found += [
                n for n in names if n.startswith(prefix) and n > after and _UNFINISHED not in n
            ]
        return sorted(found)[:_LISTED]


def _unless_missing(error: OSError) -> None:
    """Raise why a folder cannot be listed; if it is missing, nothing was stored in it yet."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _written(folder: Path, body: bytes) -> Path:
    """Write a file that no reader sees, and make it durable; the umask says who may read it."""
    path = folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
    try:
        with path.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # it would take what is left of a disk that is full, at each try
        path.unlink(missing_ok=True)
        raise
    return path


def _sync(folder: Path) -> None:
    """Make a directory's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The engine on disk: `streamkit local --data DIR` has the same tables and streams when it starts.

A snapshot holds everything: items, streams with their positions, and chance. It is written beside
the one before and renamed, so that there is a whole one at any moment. It is written a second after
a change; a process that is killed loses that second, and all tables lose the same.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from streamkit.local.engine import Engine

_NAME = "engine"
_EVERY_SECONDS = 1.0
_SHARE = 0.05
"""Snapshots take at most this share of the time: the engine stands still meanwhile."""


@functools.cache
def header() -> bytes:
    """Return what a snapshot begins with: a digest of the code whose objects it holds."""
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return f"streamkit's local engine, {digest.hexdigest()}\n".encode()


class WrongData(Exception):
    """A folder has no data that this version can read, or may not be written."""


@dataclass(frozen=True)
class Kept:
    """An engine that is kept in a folder, which only one process may use at a time."""

    engine: Engine
    file: Path

    @classmethod
    def open(cls, folder: Path, make: Callable[[], Engine]) -> "Kept":
        """Read a folder's engine, or make one for a new folder.

        Raises:
            WrongData: another version wrote it, or it cannot be read.
        """
        file = folder / _NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stored = file.read_bytes() if file.exists() else b""
        except FileExistsError:
            raise WrongData(f"{folder} is a file; name a folder") from None
        except OSError as error:
            raise WrongData(f"{folder}: {error.strerror}") from None
        if not stored:
            return cls(make(), file)
        if not stored.startswith(header()):
            raise WrongData(f"{file} is of another version of the engine: delete it to begin anew")
        try:
            engine = pickle.loads(stored[len(header()) :])  # noqa: S301 - a file of our own
        except Exception as error:  # noqa: BLE001 - whatever a damaged file leads to
            raise WrongData(f"{file} cannot be read ({error!r}): delete it") from None
        return cls(engine, file)

    def store(self) -> None:
        """Write a snapshot, and return when it is on disk.

        Raises:
            OSError: it cannot be written; the one before is as it was.
        """
        fresh = self.file.with_suffix(".new")
        try:
            with fresh.open("wb") as out:
                out.write(header())
                pickle.dump(self.engine, out, protocol=pickle.HIGHEST_PROTOCOL)
                out.flush()
                os.fsync(out.fileno())
        except OSError:
            fresh.unlink(missing_ok=True)  # on a full disk half of it would stay in the way
            raise
        os.replace(fresh, self.file)  # noqa: PTH105 - beside the other calls of os
        with contextlib.suppress(OSError):  # some systems cannot sync a folder
            folder = os.open(self.file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    async def keep(self, changes: Callable[[], int], tell: Callable[[str], object]) -> None:
        """Write a snapshot after changes, for ever; at the end, the last one.

        Args:
            changes: returns how many changes there have been.
            tell: is given a text when snapshots can no longer be written, and when they can again.
        """
        stored, pause, trouble = changes(), _EVERY_SECONDS, ""
        try:
            while True:
                await anyio.sleep(pause)
                if changes() == stored:
                    continue
                now, began, before = changes(), time.monotonic(), trouble
                trouble = self._trouble()
                stored = stored if trouble else now
                if trouble != before:
                    tell(trouble or f"{self.file} is written again")
                pause = max(_EVERY_SECONDS, (time.monotonic() - began) / _SHARE)
        finally:
            if trouble := self._trouble():
                tell(trouble)

    def _trouble(self) -> str:
        """Write a snapshot; return why that failed, if it did."""
        try:
            self.store()
        except OSError as error:
            return (
                f"{self.file} cannot be written ({error.strerror}): changes since the last snapshot"
                " are in memory alone, and lost at the end; make room, and it is tried again"
            )
        return ""

"""Frames: the part of a traceback that is the user's code.

In: an exception. Out: where the user's code was when it happened, and a traceback without frames of
streamkit, of Python's library and of the libraries that streamkit calls.
"""

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from streamkit.observe.redaction import chain_of, name_of

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_STANDARD = f"{Path(os.__file__).parent}{os.sep}"
"""Python's own library; the folder of installed packages may be inside of it."""

_LIBRARIES = ("streamkit", "anyio", "aiobotocore", "botocore", "pydantic", "httpx", "sqlalchemy")
"""What stands in a traceback between streamkit and the user's code, or below it. They are told by
where they were imported from: a package for Lambda holds them beside the user's modules, and a
user's folder may have the name of one."""


Note = Callable[[str, BaseException], None]
"""A function that is told the name of a handler, and what it raised."""

_watcher: ContextVar[Note | None] = ContextVar("_watcher", default=None)


@contextmanager
def watching(note: Note) -> Iterator[None]:
    """Tell `note` what handlers raise meanwhile, and in tasks that begin meanwhile."""
    before = _watcher.set(note)
    try:
        yield
    finally:
        _watcher.reset(before)


def tell_raised(handler: str, error: BaseException) -> None:
    """Tell the code that watches this task that a handler raised."""
    note = _watcher.get()
    if note is not None:
        note(handler, error)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the user's frames of an exception, or of what led to it; the innermost is the last.

    What waits when time is up is only in the cancellation that led to the `TimeoutError`. An app
    that is installed as a package is the user's code, too.
    """
    homes = _homes()
    for link in reversed(chain_of(_first(error))):
        frames = [one for one in traceback.extract_tb(link.__traceback__) if _is_users(one, homes)]
        own = [one for one in frames if not _INSTALLED.search(one.filename)]
        if own or frames:
            return own or frames
    return []


def user_place(error: BaseException) -> str:
    """Return the user's innermost line: its file, number and function; empty if there is none."""
    frames = user_frames(error)
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


def running_place(thread: int) -> str:
    """Return the user's innermost line that a thread runs now; empty if it runs none.

    The outermost frame is that of the command itself, and an app that is installed as a package is
    not told from libraries.
    """
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the way to another thread's stack
    homes = _homes()
    stack = traceback.extract_stack(frame)[1:] if frame is not None else []
    own = [one for one in stack if _is_users(one, homes) and not _INSTALLED.search(one.filename)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""


def user_traceback(error: BaseException) -> str:
    """Return the traceback of the user's frames, and what was raised."""
    frames = "".join(traceback.format_list(user_frames(error)))
    return f"Traceback of your code (most recent call last):\n{frames}{name_of(_first(error))}"


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group, as a task group raises it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is_users(frame: traceback.FrameSummary, homes: tuple[str, ...]) -> bool:
    file = frame.filename
    if file.startswith(("<", *homes)):
        return False
    return bool(_INSTALLED.search(file)) or not file.startswith(_STANDARD)


def _homes() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return tuple(f"{Path(file).parent}{os.sep}" for file in files if file)

"""The watchdog of a process ends it when its event loop is blocked, so that it is replaced.

A `def` handler that never returns, or a blocking call in an `async def` handler, stops the loop and
with it everything else, the heartbeat too. Other workers have taken its shards long before. The
process left behind looks alive, and must be ended.

In: the running loop. Out: nothing, as long as the loop runs. On failure: the stacks of all threads
on stderr (lines of code, never values), the event `process.blocked`, exit code 70. Code that never
releases the interpreter lock, as a regular expression may, stops this thread too; then the process
only loses its shards.
"""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streamkit.cli.exits import ExitCode
from streamkit.observe.frames import running_place
from streamkit.observe.logger import get_logger
from streamkit.settings import Settings

log = get_logger("streamkit.process")

_QUESTIONS = 20
"""The loop counts as blocked after this many unanswered questions in a row."""
_STALLED = 2
"""After this many unanswered questions, the pause is logged."""
_LAST_WORDS_SECONDS = 5.0
"""The time for the last output: stderr may be a full pipe, and the thread that hangs may hold the
logger's lock."""


def blocked_seconds(settings: Settings) -> float:
    """Return for how many seconds a loop may be blocked; by then other workers have its shards."""
    return max(30.0, 4 * settings.lease)


@contextmanager
def watch_loop(limit_seconds: float) -> Iterator[None]:
    """End the process if the loop stands still for `limit_seconds` while the `with` block runs."""
    over = threading.Event()
    arguments = (asyncio.get_running_loop(), over, limit_seconds, threading.get_ident())
    thread = threading.Thread(target=_watch, args=arguments, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    loop: asyncio.AbstractEventLoop, over: threading.Event, limit_seconds: float, thread: int = 0
) -> None:
    """Ask the loop of a thread repeatedly for an answer.

    Questions are counted, not seconds, because a process that was frozen as a whole is not blocked.
    """
    answered, unanswered, at = threading.Event(), 0, ""
    answered.set()
    pause = limit_seconds / _QUESTIONS
    while not over.wait(pause):
        if answered.is_set():
            if unanswered >= _STALLED:  # logged afterwards: before, the loop may hold the logger
                more = {"at": at} if at else {}
                log.warning("process.stalled", seconds=round(unanswered * pause), **more)
            answered.clear()
            unanswered, at = 0, ""
            loop.call_soon_threadsafe(answered.set)
            continue
        unanswered += 1
        at = running_place(thread) or at
        if unanswered >= _QUESTIONS:
            _end(limit_seconds)


def _end(limit_seconds: float) -> None:
    code = int(ExitCode.BLOCKED)
    threading.Timer(_LAST_WORDS_SECONDS, os._exit, (code,)).start()
    faulthandler.dump_traceback(sys.stderr, all_threads=True)
    log.error("process.blocked", seconds=limit_seconds)
    sys.stderr.flush()
    os._exit(code)

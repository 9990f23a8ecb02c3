"""Processes: an object that lives in a process of its own, and is called through a pipe.

What one process does is not in the CPU time of another one. So the server of a benchmark, its
consumer and its yardstick are three processes.
"""

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

ANSWER_SECONDS = 300


class Remote:
    """An object in another process; `call` runs one of its coroutines there.

    Args:
        opened: returns the object as an asynchronous context manager; importable by its name.
        arguments: its arguments.
    """

    def __init__(
        self, opened: Callable[..., AbstractAsyncContextManager[Any]], *arguments: Any
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_live, args=(theirs, opened, arguments))
        self._process.start()
        theirs.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """Run the coroutine function `name` of the object there, and return what it returns.

        Raises:
            RuntimeError: it raised, or did not answer; the process says more on stderr.
        """
        try:
            self._pipe.send((name, arguments))
            if not self._pipe.poll(ANSWER_SECONDS):
                raise RuntimeError(f"{name}: no answer within {ANSWER_SECONDS} s")
            answer, error = self._pipe.recv()
        except (EOFError, OSError) as lost:
            raise RuntimeError(f"{name}: the process has ended") from lost
        if error is not None:
            raise RuntimeError(f"{name}: {error}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pipe.close()  # the process sees the end of the pipe, and ends
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def use_server(url: str) -> None:
    """Let the AWS SDK of this process talk to a server, with keys, so that it signs its calls."""
    keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    urls = {f"AWS_ENDPOINT_URL_DYNAMODB{ending}": url for ending in ("", "_STREAMS")}
    os.environ |= {**keys, **urls, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}


def _live(
    pipe: Any, opened: Callable[..., AbstractAsyncContextManager[Any]], arguments: tuple[Any, ...]
) -> None:
    asyncio.run(_answer(pipe, opened, arguments))


async def _answer(
    pipe: Any, opened: Callable[..., AbstractAsyncContextManager[Any]], arguments: tuple[Any, ...]
) -> None:
    async with opened(*arguments) as target:
        while True:
            try:
                name, given = await asyncio.to_thread(pipe.recv)
            except (EOFError, KeyboardInterrupt):
                return
            try:
                answer = await getattr(target, name)(*given), None
            except Exception as error:
                answer = None, f"{type(error).__name__}: {error}"
            pipe.send(answer)

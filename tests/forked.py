"""Commands that start at once: their processes are forked from one that has imported all they need.

Python takes most of a second to import what a worker needs, which is longer than most workers work
here. A test whose subject is the start of a command starts Python.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

_ROOT = Path(__file__).parents[1]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["tests.forked", "tests.hurried", "streamkit.cli.program", "streamkit.worker.process"]
)


class Forked:
    """A command in a process of its own, with the attributes of `subprocess.Popen` that tests use.

    Args:
        rate: how many times as fast as the real one its clock runs.
        log: the file that gets what it writes to stderr, while its stdout is ignored; without one,
            `stdout` of this object has both.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        cwd: Path,
        env: dict[str, str],
        rate: float = 1.0,
        log: Path | None = None,
    ) -> None:
        if log is not None:
            log.touch()
        read, write = (None, None) if log else _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_run, args=(arguments, cwd, env, rate, write or log), daemon=True
        )
        # The first start makes the process that imports, which finds this streamkit from here. A
        # process would import the program of its parent, too: pytest.
        bare = mock.patch.dict(sys.modules, {"__main__": ModuleType("__main__")})
        with contextlib.chdir(_ROOT), bare:
            self._process.start()
        if read is not None and write is not None:
            write.close()
            self.stdout = os.fdopen(os.dup(read.fileno()), encoding="utf-8")
            read.close()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: list[str], cwd: Path, env: dict[str, str], rate: float, output: Connection | Path
) -> None:
    """Be `python -m streamkit` in a folder."""
    if isinstance(output, Path):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(output, os.O_WRONLY | os.O_TRUNC), 2)
    else:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        output.close()
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    text: Any = {"buffering": 1, "errors": "backslashreplace", "closefd": False}
    sys.stderr = open(2, "w", encoding="utf-8", **text)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["streamkit", *arguments]
    sys.path.insert(0, str(cwd))
    importlib.invalidate_caches()
    from streamkit.cli import main
    from tests.hurried import hurried

    with nullcontext() if rate == 1 else hurried(rate, alone=False):
        main()

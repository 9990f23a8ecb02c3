"""`streamkit dev`: engine, worker and status page in one terminal.

The engine is in this process. The worker is a process of its own, which is replaced when a Python
file changes that the app has imported from the current folder, or a migration: then nothing of the
old code is left. Scripts and tests beside the app do not count. If the app cannot be imported, the
reason is shown, and the next change of any file tries again. Ctrl-C ends both.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process

from streamkit.cli.engine import engine_served, environment, say_exports
from streamkit.cli.printing import say
from streamkit.cli.signals import graceful

_LOOK_SECONDS = 0.3
_GRACE_SECONDS = 15.0
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class Development:
    """What `streamkit dev` runs.

    Args:
        app: its name, as MODULE:APP.
        page: the address of the status page, as `host:port`.
        home: the folder whose Python files are watched.
        data: the folder of the tables; the worker lists there what it has imported.
    """

    app: str
    page: str
    home: Path
    data: Path
    stop: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, port: int) -> None:
        """Serve the engine and run the worker until a signal."""
        async with engine_served("127.0.0.1", port, data=self.data) as server:
            say(f"tables  {server.url}, kept in {self.data}")
            say(f"status  http://{self.page}/")
            say_exports(server.url)
            with graceful(self.stop.set):
                await self._work_again_and_again(server.url)

    async def _work_again_and_again(self, url: str) -> None:
        while not self.stop.is_set():
            seen = files_of(self.home)
            process = await self._start(url)
            changed = await self._changed(seen, process)
            await _end(process)
            if changed:
                say(f"changed {', '.join(changed)}: the worker starts again")

    @property
    def _imported(self) -> Path:
        return self.data / "imported"

    async def _start(self, url: str) -> Process:
        self._imported.unlink(missing_ok=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        command = [sys.executable, "-m", "streamkit.cli.dev_worker", self.app, self.page]
        command.append(str(self._imported))
        return await anyio.open_process(
            command,
            env={"STREAMKIT_PRESET": "latency", **own, **environment(url)},
            stdin=subprocess.PIPE,  # it ends when this process has ended in any way
            stdout=None,
            stderr=None,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other one
        )

    async def _changed(self, seen: dict[str, int], process: Process) -> list[str]:
        """Wait until files have changed, and return their names; none if all is to end."""
        ended = False
        while not self.stop.is_set():
            if process.returncode is not None and not ended:
                ended = True
                say("the worker has ended; it starts again when a Python file changes")
            with anyio.move_on_after(_LOOK_SECONDS):
                await self.stop.wait()
            now = files_of(self.home)
            changed = self._of_the_app({name for name, _ in now.items() ^ seen.items()})
            if changed:
                return [name.removeprefix(f"{self.home}/") for name in sorted(changed)]
        return []

    def _of_the_app(self, changed: set[str]) -> set[str]:
        """Return those files that the worker has imported, and migrations, which are found by name.

        Until it has imported the app, any file may be what keeps it from that.
        """
        if not changed or not self._imported.exists():
            return changed
        imported = {*self._imported.read_text().splitlines()}
        return {name for name in changed if name in imported or "/migrations/" in name}


def files_of(home: Path) -> dict[str, int]:
    """Return when each Python file below a folder was written; hidden folders are left out."""
    found = {}
    for file in _python_files(home):
        with suppress(OSError):
            found[file] = os.stat(file).st_mtime_ns  # noqa: PTH116 - half the time of Path
    return found


def _python_files(home: Path) -> Iterator[str]:
    for folder, below, files in os.walk(home):
        below[:] = [one for one in below if not (one.startswith(".") or one in _LEFT_OUT)]
        yield from (f"{folder}/{file}" for file in files if file.endswith(".py"))


async def _end(process: Process) -> None:
    """Let a worker drain and release its shards; kill it if that takes too long."""
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(_GRACE_SECONDS, shield=True):
            await process.wait()
    if process.returncode is None:
        process.kill()
    with anyio.CancelScope(shield=True):
        await process.aclose()

"""The worker of `streamkit dev`, in a process of its own.

It makes the app's tables as the app declares them, shows the traceback of your code whenever a
handler raises, and ends when the process that started it has ended.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from streamkit.aws import connect
from streamkit.cli.dev_tables import bring_up
from streamkit.cli.exits import ExitCode
from streamkit.cli.failures import report
from streamkit.cli.loading import load_app
from streamkit.cli.running import run, set_up_logs, settings
from streamkit.cli.workers import run_workers
from streamkit.observe.frames import user_traceback, watching
from streamkit.settings import Settings


def main() -> ExitCode:
    """Run the worker.

    The arguments are the app's name, the address of the status page, and the file into which it
    writes the names of the files that it has imported.
    """
    name, page, imported = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        chosen = settings(health=page)
        set_up_logs(chosen, chosen.log_level)
        return run(lambda: _work(name, chosen, Path(imported)))
    except Exception as error:  # noqa: BLE001 - the last place to report an error
        return report(error)


async def _work(name: str, chosen: Settings, imported: Path) -> ExitCode:
    app = load_app(name)
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    written = imported.with_suffix(".new")
    written.write_text("\n".join(file for file in files if file))
    written.replace(imported)  # the other process never reads a part of it
    async with connect() as aws:
        for done in await bring_up(app, aws.dynamodb):
            sys.stderr.write(f"{done}\n")
    with watching(_tell):
        return await run_workers([app], chosen, until_idle=False)


def _tell(handler: str, error: BaseException) -> None:
    sys.stderr.write(f"{handler} raised. {user_traceback(error)}\n")
    sys.stderr.flush()


def _end_with_parent() -> None:
    """Wait until the other end of stdin is closed, as it is when the parent has ended."""
    os.read(0, 1)  # not through a buffer, which would be locked when the process ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(int(main()))

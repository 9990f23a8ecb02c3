"""A PostgreSQL of the machine's own packages, started for a test run as an ordinary user."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from pwd import getpwnam

import pytest

SECONDS = 120.0
"""What its start may take on a busy machine; it takes two or three."""


def binaries():
    """The folder of the newest PostgreSQL that is installed; None if there is none."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def ordinary_user():
    """Run a subprocess as a user other than root, because PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses root, and there is no user postgres or nobody")
    return {}


@contextmanager
def postgres():
    """Start one, on a socket in a folder of its own, and yield its URL."""
    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    as_user = ordinary_user()
    home = Path(tempfile.mkdtemp(prefix="streamkit-pg-"))
    if as_user:
        os.chown(home, as_user["user"], as_user["group"])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": home, **as_user}
    options = ["-U", "streamkit", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    try:
        subprocess.run([folder / "initdb", "-D", home / "data", *options], check=True, **quiet)
        settings = ["-k", home, "-c", "listen_addresses=", "-c", "fsync=off"]
        server = subprocess.Popen([folder / "postgres", "-D", home / "data", *settings], **quiet)
        try:
            deadline = time.monotonic() + SECONDS
            ready = [folder / "pg_isready", "-q", "-h", home, "-U", "streamkit"]
            while subprocess.run(ready, check=False, **quiet).returncode:
                assert server.poll() is None, "PostgreSQL ended at its start"
                assert time.monotonic() < deadline, "PostgreSQL does not start"
                time.sleep(0.05)
            yield f"postgresql+asyncpg://streamkit@/postgres?host={home}"
        finally:
            server.send_signal(signal.SIGINT)  # its fast shutdown
            server.wait(SECONDS)
    finally:
        shutil.rmtree(home)

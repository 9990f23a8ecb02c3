"""The certificates that clients of the local engine load."""

import atexit
import os
import tempfile
from functools import cache
from pathlib import Path

from botocore.httpsession import get_cert_path


@cache
def one_authority():
    """Return a file with one certificate: each client takes 13 ms to load all that there are.

    No test needs them, because the engine speaks plain HTTP.
    """
    every = Path(get_cert_path(True)).read_text()
    end = "-----END CERTIFICATE-----\n"
    file = Path(tempfile.gettempdir()) / f"one-authority-{os.getpid()}.pem"
    file.write_text(every[every.index("-----BEGIN") : every.index(end)] + end)
    atexit.register(file.unlink, missing_ok=True)
    return str(file)

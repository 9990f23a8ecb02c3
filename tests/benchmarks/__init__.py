"""Benchmarks: their processes are as a plain installation makes them.

httpx belongs to extras of streamkit, and is always there in development. Where it is, the SDK loads
it, and it loads rich and pygments: 6 MB that a worker without these extras does not have.
"""

import multiprocessing
import sys

if multiprocessing.current_process().name != "MainProcess":
    sys.modules["httpx"] = None  # type: ignore[assignment]

"""Memory: how much this process uses, where the system says it."""

import math
import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def used_bytes() -> float:
    """Return the resident memory of this process in bytes; NaN where there is no /proc."""
    try:
        return float(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return math.nan

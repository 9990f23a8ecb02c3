"""Compute how fast a pass of a migration is, and when it will end: pure.

In: the tallies of the pass, as a process saw them lately. Out: speeds and times with their errors,
from how much the speed has changed lately; below one percent there is no estimate.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import stdev

from streamkit.migrate.run.reports import Look

_LEAST_SHARE = 0.01
_LOOKS_LEAST = 3


def speed_of(looks: Sequence[Look]) -> tuple[float, float] | None:
    """Return items a second lately, and how far that may be off; None if too little is known."""
    if len(looks) < _LOOKS_LEAST or looks[-1].at <= looks[0].at:
        return None
    mean = (looks[-1].scanned - looks[0].scanned) / (looks[-1].at - looks[0].at)
    speeds = [
        (later.scanned - earlier.scanned) / max(0.001, later.at - earlier.at)
        for earlier, later in pairwise(looks)
    ]
    return mean, 1.96 * stdev(speeds) / math.sqrt(len(speeds))


def eta_of(
    share: float, error: float, scanned: int, speed: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the seconds that a pass has left, and how far that may be off.

    `share` is done, give or take `error`; `speed` is items a second, and how far that may be off.
    """
    if share < _LEAST_SHARE or share >= 1 or speed[0] <= 0:
        return None
    seconds = scanned * (1 - share) / share / speed[0]
    of_share = error / (share * (1 - share))
    of_speed = speed[1] / speed[0]
    return seconds, seconds * math.hypot(of_share, of_speed)

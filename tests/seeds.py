"""How many seeds tests play whose runs are long: one; `make conformance SEEDS=50` plays more."""

import os

_PLAYED = int(os.environ.get("CONFORMANCE_SEEDS", "1"))


def seeds(most: int | None = None, *, least: int = 1) -> range:
    """Return the seeds to play.

    Args:
        least: a mistake is met by some of so many seeds, and not by each.
        most: a trial tells something with so many seeds, and its next ones may meet less; None
            for trials of any seed.
    """
    played = max(least, _PLAYED)
    return range(played if most is None else min(most, played))

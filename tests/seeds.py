"""How many seeds tests play whose runs are long: one; `make conformance SEEDS=50` plays more."""

import os

_PLAYED = int(os.environ.get("CONFORMANCE_SEEDS", "1"))


def seeds(most: int | None = None) -> range:
    """Return the seeds to play.

    Args:
        most: a trial tells something with so many seeds, and its next ones may meet less; None
            for trials of any seed.
    """
    return range(_PLAYED if most is None else min(most, _PLAYED))

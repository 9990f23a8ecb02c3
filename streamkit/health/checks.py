"""Checks: whether a process is alive, and whether it is ready. Pure.

*Alive* means that a restart would not help; *ready* that its consumers are served: each has looked
at its fleet, reads its shards or stands by for a newer roll-out, can read the stream, is not too
far behind, knows of no shard that nobody reads, and has not halted for records that may have been
lost. A paused consumer is ready: it does what it was told, and how long it may do so is what the
metrics say.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamkit.errors import RetentionLost
from streamkit.running.standing import Standing


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check: `reasons` are why not."""

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain of."""
        return not self.reasons


def alive(standings: Sequence[Standing]) -> Verdict:
    """Say whether the process does anything at all: that it answers says that its loop runs."""
    if standings and all(standing.state == "ended" for standing in standings):
        return Verdict(("every worker has ended",))
    return Verdict()


def ready(
    standings: Sequence[Standing], errors: Iterable[Exception], lag_max: float, *, draining: bool
) -> Verdict:
    """Say whether every consumer of the process is served.

    Args:
        standings: of its workers; empty while it starts.
        errors: what has ended workers.
        lag_max: how many seconds a consumer may be behind; 0 for any number.
        draining: whether it was asked to end.
    """
    reasons = ["records may have been lost" for e in errors if isinstance(e, RetentionLost)]
    reasons += [f"ended by {type(e).__name__}" for e in errors if not isinstance(e, RetentionLost)]
    if draining:
        reasons.append("it drains")
    elif not standings:
        reasons.append("it starts")
    for standing in standings:
        reasons += [f"{standing.consumer}: {reason}" for reason in _complaints(standing, lag_max)]
    return Verdict(tuple(reasons))


_STATES = {
    "starting": "it starts",
    "joining": "it joins the fleet",
    "unfit": "the stream does not answer",
    "leaving": "it drains",
    "ended": "its worker has ended",
}


def _complaints(standing: Standing, lag_max: float) -> Iterable[str]:
    if standing.state in _STATES:
        yield _STATES[standing.state]
    if standing.unread and not standing.paused:
        yield f"{standing.unread} shards are read by nobody"
    if lag_max and not standing.paused and not math.isnan(standing.lag) and standing.lag > lag_max:
        yield f"{standing.lag:.0f} s behind, and {lag_max:g} s are allowed"

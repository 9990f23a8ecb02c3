"""Checks: whether a process is alive, and whether it is ready. Pure.

*Alive* means that a restart would not help. *Ready* means that the consumers are served: each has
looked at its fleet, reads its shards or stands by for a newer roll-out, can read the stream, is not
too far behind, knows of no shard that no worker reads, and has not halted for records that may have
been lost. A paused consumer is ready, because it was told to pause; the metrics show for how long
it may stay paused. A handler with a start of its own is ready while it catches up, for the same
reason: a roll-out must not wait for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamkit.errors import RetentionLost
from streamkit.worker.report import WorkerReport


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check: `reasons` say why it failed."""

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if there are no reasons against it."""
        return not self.reasons


def alive(reports: Sequence[WorkerReport]) -> Verdict:
    """Judge whether the process works at all. That it answers proves that its event loop runs."""
    if reports and all(report.state == "ended" for report in reports):
        return Verdict(("every worker has ended",))
    return Verdict()


def reads(reports: Sequence[WorkerReport]) -> Verdict:
    """Judge whether the process can do its work: no worker has ended, or is cut off."""
    cut_off = [f"{r.consumer}: {_STATES[r.state]}" for r in reports if r.state in _CUT_OFF]
    return Verdict(tuple(cut_off))


def ready(
    reports: Sequence[WorkerReport],
    errors: Iterable[Exception],
    lag_max: float,
    *,
    draining: bool,
) -> Verdict:
    """Judge whether every consumer of the process is served.

    Args:
        reports: the state of its workers; empty while the process starts.
        errors: the errors that ended workers.
        lag_max: how many seconds a consumer may be behind; 0 for any number.
        draining: whether the process was asked to end.
    """
    reasons = ["records may have been lost" for e in errors if isinstance(e, RetentionLost)]
    reasons += [f"ended by {type(e).__name__}" for e in errors if not isinstance(e, RetentionLost)]
    if draining:
        reasons.append("it drains")
    elif not reports:
        reasons.append("it starts")
    for report in reports:
        reasons += [f"{report.consumer}: {reason}" for reason in _complaints(report, lag_max)]
    return Verdict(tuple(reasons))


_STATES = {
    "starting": "it starts",
    "joining": "it joins the fleet",
    "unfit": "the stream does not answer",
    "leaving": "it drains",
    "ended": "its worker has ended",
}


_CUT_OFF = frozenset({"unfit", "ended"})


def _complaints(report: WorkerReport, lag_max: float) -> Iterable[str]:
    if report.state in _STATES:
        yield _STATES[report.state]
    if report.unread and not report.paused:
        yield f"{report.unread} shards have no reader"
    waits = bool(report.paused) or report.catches_up
    if lag_max and not waits and report.lag > lag_max:  # which NaN never is
        yield f"{report.lag:.0f} s behind, and {lag_max:g} s are allowed"

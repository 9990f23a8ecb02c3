"""Where a consumer starts: at the oldest record of the stream, at now, or at a moment. Pure.

In: the app's declaration. Out: `since`, in epoch seconds: changes created before it are not the
consumer's. It is resolved once, when the consumer is created, and kept in the table; a later
declaration has no effect. Records older than `since` are read too and then dropped, so that nothing
is lost between "now" and the first read. DynamoDB stamps records to the second: a start includes
all of its second.
"""

import math
from datetime import UTC, date, datetime, time
from typing import Literal

from streamkit.errors import ConfigurationError, DeclarationError

Start = Literal["trim_horizon", "latest"] | datetime
"""`trim_horizon`: the oldest record there is; `latest`: now; or an aware datetime."""

STAMP_SECONDS = 1.0
"""A record's moment is rounded down to the second: one of this second may be older than now."""
RETENTION_SECONDS = 24 * 3600
"""How long a stream keeps its records."""
REACH_SECONDS = RETENTION_SECONDS - 3600
"""How far back a stream is read for certain: the trimming is not exact."""


def read_start(start: Start | str) -> Start:
    """Return a start as it was declared; the text of a date is the beginning of that day in UTC.

    Raises:
        DeclarationError: it is neither a known word nor a moment with a time zone.
    """
    if start in ("trim_horizon", "latest"):
        return start
    moment = _moment_of(start) if isinstance(start, str) else start
    if not isinstance(moment, datetime):
        raise DeclarationError(
            f"start={start!r}: 'trim_horizon', 'latest', a date, or a datetime with a time zone"
        )
    if moment.tzinfo is None:
        raise DeclarationError(f"start={start!r}: give the datetime a time zone")
    return moment


def _moment_of(text: str) -> datetime | None:
    """Return the moment that a text stands for, if it does."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def start_text(start: Start) -> str:
    """Return a start as the consumer's item stores it, to detect later whether it was changed."""
    if isinstance(start, datetime):
        return start.astimezone(UTC).isoformat(timespec="seconds")
    return start


def since_of(start: Start, now: float) -> int:
    """Return the epoch second from which on changes count; 0 for all existing ones.

    A moment older than the retention means all existing ones: nothing older can be read.

    Raises:
        ConfigurationError: the moment is in the future.
    """
    if start == "trim_horizon":
        return 0
    if isinstance(start, datetime):
        moment = int(start.timestamp())
        if moment > now:
            raise ConfigurationError(
                f"start={start_text(start)}: a consumer cannot start in the future"
            )
        return moment if now - moment < RETENTION_SECONDS else 0
    return int(now)


def created_of(label: str) -> float:
    """Return when a stream was created, by its label; minus infinity if that says no time."""
    try:
        return datetime.fromisoformat(label).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return -math.inf

"""Where a consumer starts: at the oldest record of the stream, at now, or at a moment. Pure.

In: the app's declaration. Out: `since`, in epoch seconds: changes created before it are not the
consumer's. It is resolved once, when the consumer is created, and kept in the table; a later
declaration has no effect. Records older than `since` are read too and then dropped, so that nothing
is lost between "now" and the first read. DynamoDB stamps records to the second: a start includes
all of its second.
"""

from datetime import UTC, datetime
from typing import Literal

from streamkit.errors import ConfigurationError, DeclarationError

Start = Literal["trim_horizon", "latest"] | datetime
"""`trim_horizon`: the oldest record there is; `latest`: now; or an aware datetime."""

RETENTION_SECONDS = 24 * 3600
"""How long a stream keeps its records."""


def check_start(start: object) -> None:
    """Refuse a value that is not a start.

    Raises:
        DeclarationError: it is neither a known word nor a datetime with a time zone.
    """
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise DeclarationError(f"start={start!r}: give the datetime a time zone")
    elif start not in ("trim_horizon", "latest"):
        raise DeclarationError(
            f"start={start!r}: 'trim_horizon', 'latest' or a datetime with a time zone"
        )


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

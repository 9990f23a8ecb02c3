"""Signing again: calls whose signature or token AWS refuses are sent again for a while.

A clock that is being corrected, a gateway that mends requests wrongly, and a token that has run out
before its successor is there, pass by themselves. Each attempt is signed anew, with the time and
the credentials of that moment. In: what botocore asks after a failed attempt. Out: the pause before
the next one. A refused call was not carried out, so that nothing is applied twice or lost. A client
that was opened just now has never been accepted: its keys are wrong, and its call fails at once.
"""

from typing import Any

import anyio

from streamkit.observe.logger import get_logger

log = get_logger("streamkit.aws")

SENDER_REFUSED = frozenset({"InvalidSignatureException", "ExpiredTokenException"})
"""What AWS answers when it refuses a signature or a token; permissions are checked later."""
_SECONDS = 60.0
"""How long a call is tried: clocks step within seconds, and credentials come within a minute."""
_YOUNG_SECONDS = 5.0
"""A client that is older has been accepted: its first calls come at once, and fail if refused."""
_PAUSE_SECONDS, _PAUSE_MAX = 0.2, 5.0
_SINCE = "streamkit_refused_since"


class SignAgain:
    """Decides for one client, from when it is opened, whether a refused call is sent again."""

    def __init__(self) -> None:
        self._opened = anyio.current_time()

    def pause(
        self, *, attempts: int, operation: Any, response: Any, request_dict: Any, **_: Any
    ) -> float | None:
        """Return the seconds until the next attempt; None if it is another error, or lasts."""
        code = response[1].get("Error", {}).get("Code") if response else None
        if code not in SENDER_REFUSED:
            return None
        now = anyio.current_time()
        since = request_dict["context"].setdefault(_SINCE, now)
        if since - self._opened < _YOUNG_SECONDS or now - since >= _SECONDS:
            return None
        by = f"{code} {operation.name}"
        log.often("aws.repeated", level="warning", by=by, code=code, called=operation.name)
        return min(_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 9), _PAUSE_MAX)

"""The service's limits on how often a stream and a shard may be read.

In: who calls, and when by the engine's clock. Out: nothing, or the refusal. What counts is what was
granted within the last second: a refused call delays nobody. `StreamSettings` says how much is
allowed. Of the numbers, AWS documents ten `DescribeStream` a second per stream and two readers per
shard; five `GetRecords` a second per shard is what its users measured.
"""

from streamkit.local.errors import ApiError

_SECOND = 1.0 - 1e-6
"""Clocks that add up tenths must not make five calls in a second into six."""


class CallRate:
    """The calls that were granted within the last second."""

    __slots__ = ("_granted",)

    def __init__(self) -> None:
        self._granted: list[float] = []

    def grants(self, now: float, most: int | None) -> bool:
        """Grant a call if fewer than `most` were granted; None for no limit."""
        if most is None:
            return True
        since = now - _SECOND
        granted = [at for at in self._granted if at > since]
        allowed = len(granted) < most
        if allowed:
            granted.append(now)
        self._granted = granted
        return allowed


class Readers:
    """Who read a shard within the last second."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}

    def admits(self, reader: int, now: float, most: int | None) -> bool:
        """Let a reader in if it is one of at most `most`; None for no limit."""
        if most is None:
            return True
        since = now - _SECOND
        seen = {one: at for one, at in self._seen.items() if at > since}
        allowed = reader in seen or len(seen) < most
        if allowed:
            seen[reader] = now
        self._seen = seen
        return allowed


def described_too_often(stream_arn: str) -> ApiError:
    """The refusal of a `DescribeStream`."""
    return ApiError(
        "LimitExceededException", f"DescribeStream is called too often for stream {stream_arn}"
    )


def read_too_often(shard_id: str) -> ApiError:
    """The refusal of a `GetRecords` because of how many there were; the model does not know it."""
    return ApiError("ThrottlingException", f"Rate exceeded for shard {shard_id}")


def too_many_readers(shard_id: str) -> ApiError:
    """The refusal of a `GetRecords` because of who else reads."""
    return ApiError(
        "LimitExceededException",
        f"Too many operations for a given subscriber: shard {shard_id} has other readers",
    )

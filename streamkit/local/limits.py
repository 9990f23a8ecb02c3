"""The service's limits on how often a stream and a shard may be read.

In: the caller, and the time by the engine's clock. Out: nothing, or the refusal. Only calls granted
within the last second count; a refused call delays no other call. `StreamSettings` sets the limits.
AWS documents ten `DescribeStream` a second per stream and two readers per shard; five `GetRecords`
a second per shard is what users of AWS measured.
"""

from streamkit.local.errors import ApiError

_SECOND = 1.0 - 1e-6
"""A little less than a second, because rounding errors of a clock must not refuse a call."""


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


class ShardReaders:
    """The readers that read a shard within the last second."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}

    def admits(self, reader: int, now: float, most: int | None) -> bool:
        """Admit a reader if it is one of at most `most`; None for no limit."""
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
    """Return the refusal of a `DescribeStream`, which has no `LimitExceededException` on AWS."""
    return ApiError("ThrottlingException", f"Rate exceeded for stream {stream_arn}")


def read_too_often(shard_id: str) -> ApiError:
    """Return the refusal of too frequent `GetRecords`; botocore's model does not list it."""
    return ApiError("ThrottlingException", f"Rate exceeded for shard {shard_id}")


def too_many_readers(shard_id: str) -> ApiError:
    """Return the refusal of a `GetRecords` because other readers read the shard."""
    return ApiError(
        "LimitExceededException",
        f"Too many operations for a given subscriber: shard {shard_id} has other readers",
    )

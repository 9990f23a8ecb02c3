"""Request tokens: a transaction that is sent twice takes effect once.

A token is remembered for ten minutes after its transaction. A digest of the request is kept with
it, because the same token for another request is an error. The cost of reading the items is kept
too, because a repetition is charged that cost.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from streamkit.local.errors import ApiError

_LIFETIME = 600.0
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Remembered:
    """A transaction that was carried out.

    Attributes:
        digest: the digest of its request.
        reads: the read units of a repetition, by table.
        until: the time when it is forgotten.
    """

    digest: bytes
    reads: tuple[tuple[str, float], ...]
    until: float


class RequestTokens:
    """The tokens of the last ten minutes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_token: dict[str, Remembered] = {}
        self._order: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._by_token)

    def find(self, token: str, digest: bytes) -> Remembered | None:
        """Return the transaction that was carried out with this token, if any.

        Raises:
            ApiError: IdempotentParameterMismatchException: the token was used for another request.
        """
        self._forget()
        found = self._by_token.get(token)
        if found is not None and found.digest != digest:
            raise ApiError(
                "IdempotentParameterMismatchException",
                "Request parameters do not match those of the request that used this client "
                "token before",
            )
        return found

    def remember(self, token: str, digest: bytes, reads: dict[str, float]) -> None:
        """Remember a token whose transaction has just been carried out."""
        until = self._clock() + _LIFETIME
        self._by_token[token] = Remembered(digest, tuple(reads.items()), until)
        self._order.append((until, token))

    def _forget(self) -> None:
        now = self._clock()
        order = self._order
        while order and order[0][0] <= now:
            self._by_token.pop(order.popleft()[1], None)


def digest_of(request: Any) -> bytes:
    """Return a digest of a request; the order of members does not change it."""
    return blake2b(_encode(request), digest_size=16).digest()

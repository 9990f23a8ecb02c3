"""Faults: failures of the network and the service that calls meet.

`Faults` gives each kind a rate, and counts the faults in `taken`, so that a test can check whether
a kind was met at all. A *late* call is the worst: the caller sees a broken connection, and the
request arrives seconds afterwards.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import msgspec

from streamkit.aws import READ_SECONDS
from streamkit.local.errors import ApiError
from streamkit.local.transport import Call, Response
from streamkit.testing.sightings import WRITES

KINDS = (
    "throttle",
    "server_error",
    "lost_request",
    "lost_reply",
    "late",
    "conflict",
    "expired",
    "slow",
)
"""Every kind of fault; `Faults` explains each."""

LATE_KINDS = ("overdue", "late_reply")
"""A plan may have two more kinds. `overdue` is a write that arrives minutes later, mostly after its
client token is forgotten, so that it is a new request. With `late_reply`, the reply of a write
comes too late for its caller."""
OVERDUE_SECONDS = 900.0
"""How late an overdue write arrives at most."""

_ONLY = {"conflict": "TransactWriteItems", "expired": "GetRecords"}
_THROTTLES = {
    "dynamodb": ("ProvisionedThroughputExceededException", "ThrottlingException"),
    "s3": ("SlowDown", "ConditionalRequestConflict"),
    "dynamodbstreams": ("LimitExceededException", "ThrottlingException"),
}
_LATE_SECONDS = 20.0


class Interceptor(Protocol):
    """An object that stands between a process and the engine."""

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Answer a call, by calling `apply` or without it."""
        ...


def fits(kind: str, call: Call) -> bool:
    """Return whether a call can meet this kind of fault; some kinds belong to one operation."""
    if kind in LATE_KINDS:
        return call.operation in WRITES
    return _ONLY.get(kind, call.operation) == call.operation


async def inflict(
    kind: str, call: Call, apply: Callable[[], Response], rng: random.Random
) -> Response:
    """Carry out one call with one fault.

    Raises:
        TimeoutError, ConnectionResetError: the caller cannot know whether it was applied.
    """
    if kind == "slow":
        await anyio.sleep(rng.random())
        return apply()
    if kind == "late_reply":
        response = apply()
        await anyio.sleep(wait := rng.random() * 2 * READ_SECONDS)
        if wait < READ_SECONDS:
            return response
        raise TimeoutError("the reply came too late")
    if kind in ("lost_request", "lost_reply", "late", "overdue"):
        return _broken(kind, apply, rng)
    return Response.of_error(_refusal(kind, call, rng))


def _broken(kind: str, apply: Callable[[], Response], rng: random.Random) -> Response:
    if kind == "lost_reply":
        apply()
    elif kind != "lost_request":
        seconds = rng.random() * _LATE_SECONDS
        if kind == "overdue":
            seconds = rng.uniform(0.6, 1.0) * OVERDUE_SECONDS
        asyncio.get_running_loop().call_later(seconds, apply)
    if rng.random() < 0.5:
        raise TimeoutError("the reply never came")
    raise ConnectionResetError("the connection broke")


def _refusal(kind: str, call: Call, rng: random.Random) -> ApiError:
    if kind == "throttle":
        return ApiError(rng.choice(_THROTTLES[call.service]), "slow down")
    if kind == "server_error":
        return ApiError("InternalServerError", "try again", status=500)
    if kind == "expired":
        return ApiError("ExpiredIteratorException", "the iterator is too old")
    actions = len(msgspec.json.decode(call.payload)["TransactItems"])
    reasons = [{"Code": "None"} for _ in range(actions)]
    reasons[rng.randrange(actions)] = {"Code": "TransactionConflict"}
    return ApiError("TransactionCanceledException", "cancelled", CancellationReasons=reasons)


@dataclass(slots=True)
class Faults:
    """Rates from 0 to 1 of each kind of fault, while `active`; a call meets at most one.

    Attributes:
        throttle: the service answers that there are too many requests.
        server_error: the service answers 500, and has done nothing.
        lost_request: the connection breaks before the call is applied.
        lost_reply: the call is applied, and the connection breaks.
        late: the connection breaks, and the call is applied seconds later.
        conflict: a transaction is cancelled because another transaction holds an item.
        expired: a `GetRecords` is refused because its iterator has expired.
        slow: the call takes up to a second.
    """

    rng: random.Random
    throttle: float = 0.0
    server_error: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    conflict: float = 0.0
    expired: float = 0.0
    slow: float = 0.0
    active: bool = True
    taken: Counter[str] = field(default_factory=Counter)

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Let the call through, or not."""
        kind = self._choose(call)
        if kind is None:
            return apply()
        self.taken[kind] += 1
        return await inflict(kind, call, apply, self.rng)

    def _choose(self, call: Call) -> str | None:
        if not self.active:
            return None
        dice = self.rng.random()
        for kind in KINDS:
            rate: float = getattr(self, kind)
            if not fits(kind, call):
                continue
            if dice < rate:
                return kind
            dice -= rate
        return None

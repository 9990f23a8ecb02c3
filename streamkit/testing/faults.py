"""Faults: failures of the network and the service that calls meet, by rate or by plan.

`Faults` gives each kind a rate; `PlannedFaults` names the calls that meet a fault. Both count the
faults in `taken`, so that a test can check whether a kind was met at all. A *late* call is the
worst: the caller sees a broken connection, and the request arrives seconds afterwards.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
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
_AMBIGUOUS = ("lost_reply", "late", *LATE_KINDS)
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


@dataclass(slots=True)
class LateCalls:
    """Delay the requests or replies of writes by up to a quarter of an hour.

    That is longer than a client token lasts: a request that arrives then is new to the service, and
    its sender may be dead or replaced. For a late request the caller sees a broken connection; for
    a late reply the caller waits.

    Attributes:
        request: the share of writes that arrive late.
        reply: the share of writes that are applied at once and answered late.
        seconds: the longest delay.
    """

    rng: random.Random
    request: float = 0.0
    reply: float = 0.0
    seconds: float = 900.0
    active: bool = True
    taken: Counter[str] = field(default_factory=Counter)

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Pass the call on now, or later."""
        dice = self.rng.random()
        if not self.active or call.operation not in WRITES or dice >= self.request + self.reply:
            return apply()
        wait = self.rng.random() * self.seconds
        if dice < self.request:
            self.taken["late request"] += 1
            asyncio.get_running_loop().call_later(wait, apply)
            raise ConnectionResetError("the connection broke")
        self.taken["late reply"] += 1
        response = apply()
        await anyio.sleep(wait)
        return response


class PlannedFaults:
    """The faults that a process's calls meet, by the number of the call, while `active`.

    Args:
        planned: a call's number, from 0, a kind, and the only operation that shall meet it, or
            None. A fault that does not fit the call waits for the next call that it fits.
        rng: chooses between time-outs and broken connections, and durations.
        taken: counts the faults met; several processes may share it.
    """

    def __init__(
        self,
        planned: Iterable[tuple[int, str, str | None]],
        rng: random.Random,
        taken: Counter[str] | None = None,
    ) -> None:
        self.active = True
        self.taken: Counter[str] = Counter() if taken is None else taken
        self._rng = rng
        self._planned = sorted(planned, key=lambda one: one[0])
        self._calls = 0

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Let the call through, or not."""
        number, self._calls = self._calls, self._calls + 1
        kind = self._due(number, call) if self.active else None
        if kind is None:
            return apply()
        self.taken[kind] += 1
        if call.operation == "TransactWriteItems" and kind in _AMBIGUOUS:
            self.taken["ambiguous_commit"] += 1
        return await inflict(kind, call, apply, self._rng)

    def _due(self, number: int, call: Call) -> str | None:
        for index, (at, kind, operation) in enumerate(self._planned):
            if at > number:
                return None
            if fits(kind, call) and operation in (None, call.operation):
                del self._planned[index]
                return kind
        return None

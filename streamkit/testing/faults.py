"""Faults: what a network and a service do to calls, by a seeded plan.

Each kind has a rate; a call meets at most one. `taken` counts them, so that a test can tell whether
a kind was reached at all. A *late* call is the worst: the caller sees a broken connection, and the
request arrives seconds afterwards.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import msgspec

from streamkit.local.errors import ApiError
from streamkit.local.transport import Call, Response

_THROTTLES = {
    "dynamodb": ("ProvisionedThroughputExceededException", "ThrottlingException"),
    "dynamodbstreams": ("LimitExceededException", "ThrottlingException"),
}
_LATE_SECONDS = 20.0


@dataclass(slots=True)
class Faults:
    """Rates from 0 to 1 of each kind of fault, while `active`.

    Attributes:
        throttle: the service answers that it is asked too often.
        server_error: it answers 500, and has done nothing.
        lost_request: the connection breaks before the call is applied.
        lost_reply: the call is applied, and the connection breaks.
        late: the connection breaks, and the call is applied seconds later.
        conflict: a transaction is cancelled because another one holds an item.
        expired: a `GetRecords` finds its iterator expired.
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
        if kind == "slow":
            await anyio.sleep(self.rng.random())
            return apply()
        if kind in ("lost_request", "lost_reply", "late"):
            return self._broken(kind, apply)
        return Response.of_error(self._refusal(kind, call))

    def _choose(self, call: Call) -> str | None:
        if not self.active:
            return None
        dice = self.rng.random()
        for kind in ("throttle", "server_error", "lost_request", "lost_reply", "late", "slow"):
            rate: float = getattr(self, kind)
            if dice < rate:
                return kind
            dice -= rate
        if call.operation == "TransactWriteItems" and dice < self.conflict:
            return "conflict"
        if call.operation == "GetRecords" and dice < self.expired:
            return "expired"
        return None

    def _broken(self, kind: str, apply: Callable[[], Response]) -> Response:
        if kind == "lost_reply":
            apply()
        elif kind == "late":
            seconds = self.rng.random() * _LATE_SECONDS
            asyncio.get_running_loop().call_later(seconds, apply)
        if self.rng.random() < 0.5:
            raise TimeoutError("the reply never came")
        raise ConnectionResetError("the connection broke")

    def _refusal(self, kind: str, call: Call) -> ApiError:
        if kind == "throttle":
            return ApiError(self.rng.choice(_THROTTLES[call.service]), "slow down")
        if kind == "server_error":
            return ApiError("InternalServerError", "try again", status=500)
        if kind == "expired":
            return ApiError("ExpiredIteratorException", "the iterator is too old")
        actions = len(msgspec.json.decode(call.payload)["TransactItems"])
        reasons = [{"Code": "None"} for _ in range(actions)]
        reasons[self.rng.randrange(actions)] = {"Code": "TransactionConflict"}
        return ApiError("TransactionCanceledException", "cancelled", CancellationReasons=reasons)

"""Faults that are planned, call by call, and calls that arrive too late: for fleets and functions."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio

from streamkit.local.transport import Call, Response
from streamkit.testing.faults import LATE_KINDS, fits, inflict
from streamkit.testing.sightings import WRITES

AMBIGUOUS = ("lost_reply", "late", *LATE_KINDS)


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
        if call.operation == "TransactWriteItems" and kind in AMBIGUOUS:
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

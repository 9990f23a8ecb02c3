"""Limit the capacity that a migration uses, learned from what each call has consumed.

Buckets exist for reads, for writes, and for the writes of every global index. A call waits until
its buckets are out of debt, reserves what such a call usually costs, and is charged with what the
reply says, so that the rate holds for items of any size; until the first reply, one call is made at
a time. When the service throttles, or other consumers of the stream fall behind, the rate shrinks
by 30 % at once and grows back by 5 % a second.

In: `ConsumedCapacity` as DynamoDB returns it for `INDEXES`. Out: pauses. Limits are the whole
migration's; `share` is the part of them that this process may use (see `sharing`).
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from streamkit.migrate.book.limits import Limit, Share
from streamkit.progress.clock import Clock

_SHRINK, _GROW = 0.7, 1.05
_FLOOR = 0.02
"""The smallest part of its rate to which a migration shrinks."""
_WEIGHT = 0.2
"""The weight of the last call in the usual cost of one."""
_UNITS_MIN = 5.0
"""Units a second that are always left to a migration without a limit."""
_EASE_SECONDS = 1.0
"""Seconds between two reductions of the rate: many calls fail for one cause."""
_SAVED_SECONDS = 0.05
"""Seconds of its rate that a bucket holds at most: no burst makes up for a pause."""
_BESIDE_SECONDS = 10.0
"""At most so many seconds of its rate are paid off for writes that did not wait."""
_BUSY_SECONDS = 0.5
"""Seconds after a call in which more calls are expected."""
_LOOK_SECONDS = 0.1


Kind = Literal["read", "write"]
Reason = Literal["", "limit", "throttled", "lag", "index", "capture"]
Reserved = Mapping[str, float]
"""Units that are reserved for a call, by index; "" is the table."""


@dataclass
class _TokenBucket:
    """Units that may be spent now; below zero they are owed.

    `beside` is owed for writes that did not wait. At most half of the income pays it off: otherwise
    a limit below the migration's own writes would stop its work.
    """

    tokens: float = 0.0
    beside: float = 0.0
    at: float | None = None
    spent: float = 0.0
    speed: float = 0.0

    def refill(self, now: float, rate: float | None) -> None:
        passed, self.at = now - (now if self.at is None else self.at), now
        if rate is None:
            self.beside = 0.0
        else:
            paid = min(self.beside, rate * passed / 2)
            self.beside = min(self.beside - paid, _BESIDE_SECONDS * rate)
            self.tokens = min(self.tokens + rate * passed - paid, _SAVED_SECONDS * rate)
        if passed > 0:
            weight = min(1.0, passed / 5.0)
            self.speed += weight * (self.spent / passed - self.speed)
            self.spent = 0.0

    def take(self, units: float, *, beside: bool) -> None:
        if beside:
            self.beside += units
        else:
            self.tokens -= units
        self.spent += units


@dataclass
class Rate:
    """Paces one process; `reason` says why it waited last, for people.

    `behind` is the consumer that lags, where that is why.
    `limits` are the whole migration's, `most` this process's own, in addition to its share of
    those.
    """

    clock: Clock
    limits: Limit = field(default_factory=Limit)
    share: Share | None = None
    most: Limit = field(default_factory=Limit)
    reason: Reason = ""
    behind: str = ""
    reads: float = 0.0
    writes: dict[str, float] = field(default_factory=dict)
    _buckets: dict[tuple[Kind, str], _TokenBucket] = field(default_factory=dict)
    _usual: dict[tuple[Kind, str], float] = field(default_factory=dict)
    _turns: dict[Kind, anyio.Lock] = field(
        default_factory=lambda: {"read": anyio.Lock(), "write": anyio.Lock()}
    )
    _waiting: int = 0
    _asked_at: float = -1e9
    _factor: float = 1.0
    _ceiling: dict[Kind, float] = field(default_factory=dict)
    _eased_at: float = -1e9
    _grown_at: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a call waits, or one was made a moment ago."""
        return bool(self._waiting) or self.clock.monotonic() - self._asked_at < _BUSY_SECONDS

    def limit(self, limits: Limit) -> None:
        """Use these limits of the whole migration from now on."""
        self.limits = limits

    def take(self, share: Share) -> None:
        """Use this part of the limits from now on."""
        self.share = share

    def told(self) -> Reason:
        """Return why it waited; a limit counts only if it did so since the last call."""
        reason, self.reason = self.reason, "" if self.reason == "limit" else self.reason
        return reason

    async def ready(self, kind: Kind, units: float | None = None) -> Reserved:
        """Wait until units of this kind may be spent; return what is reserved for the call.

        That is what such a call usually costs, or `units`.
        """
        self._waiting += 1
        try:
            return await self._wait(kind, units)
        finally:
            self._waiting -= 1
            self._asked_at = self.clock.monotonic()

    async def _wait(self, kind: Kind, units: float | None) -> Reserved:
        if not self._turns[kind].locked() and self._look(kind)[0] is None:
            return {}
        async with self._turns[kind]:  # one task looks at the clock; the rest wait for it
            while True:
                limit, owed = self._look(kind)
                if limit is None:
                    return {}
                if limit > 0 and owed <= 0:
                    return self._set_aside(kind, limit, units)
                if not self.reason:
                    self.reason = "limit"
                pause = max(owed / limit, 0.01) if limit > 0 else _LOOK_SECONDS
                await anyio.sleep(min(pause, _LOOK_SECONDS))

    def _look(self, kind: Kind) -> tuple[float | None, float]:
        """Refill the buckets of a kind; return their limit, and the most that one of them owes."""
        now = self.clock.monotonic()
        self._grow(now)
        limit, owed = self._limit(kind), 0.0
        for (of, _), bucket in self._buckets.items():
            if of == kind:
                bucket.refill(now, limit)
                owed = max(owed, -bucket.tokens)
        return limit, owed

    def _set_aside(self, kind: Kind, limit: float, units: float | None) -> Reserved:
        """Reserve what a call will cost, so that not all waiting calls start at once.

        The cost of the first call is not known: the limit of a whole second is reserved for it.
        """
        known = {name: cost for (of, name), cost in self._usual.items() if of == kind}
        reserved = (known or {"": limit}) if units is None else {"": units}
        for name, cost in reserved.items():
            self._bucket(kind, name).tokens -= cost
        return reserved

    def settle(self, kind: Kind, reserved: Reserved, *, cost: bool = False) -> None:
        """Release what was reserved for a call, which is charged with what it has consumed.

        A write whose condition does not hold consumes units, but its reply does not say how many;
        with `cost` the usual cost of such a call is kept.
        """
        for name, units in reserved.items():
            kept = min(units, self._usual.get((kind, name), 1.0)) if cost else 0.0
            self._bucket(kind, name).tokens += units - kept
            if kept and kind == "write":
                self.writes[name] = self.writes.get(name, 0.0) + kept

    @contextmanager
    def held_by(self, reason: Reason) -> Iterator[None]:
        """Say what this process waits for, while it waits."""
        before, self.reason = self.reason, reason
        try:
            yield
        finally:
            self.reason = before

    @asynccontextmanager
    async def paced(self, units: float = 1.0) -> AsyncIterator[None]:
        """Wait until `units` may be written by a `Charged` client, whose debt this pays."""
        reserved = await self.ready("write", units)
        try:
            yield
        finally:
            for name in reserved:
                bucket = self._bucket("write", name)
                bucket.beside = max(bucket.beside - units, 0.0)

    def charge(self, consumed: Any, kind: Kind = "read", *, usual: bool = True) -> None:
        """Charge what a reply says was consumed: one entry, a list of them, or None.

        `kind` is that of units of which the reply does not say it. With `usual` the cost also
        counts for the usual cost of such a call.
        """
        entries = consumed if isinstance(consumed, list) else [consumed]
        costs = Counter[tuple[Kind, str]]()
        for entry in filter(None, entries):
            costs.update(_costs(entry, kind))
        for (of, name), units in costs.items():
            if of == "write":
                self.writes[name] = self.writes.get(name, 0.0) + units
            else:
                self.reads += units
            self._bucket(of, name).take(units, beside=not usual)
            if usual:
                known = self._usual.get((of, name), units)
                self._usual[of, name] = known + _WEIGHT * (units - known)

    def ease(self, reason: Reason, *, hold: float = 0.0, behind: str = "") -> None:
        """Reduce the rate, because the service throttles, or other consumers fall behind.

        It grows again after `hold` seconds: until the cause is looked at once more.
        """
        now = self.clock.monotonic()
        if now - self._eased_at < _EASE_SECONDS:
            return
        self._eased_at, self._grown_at = now, now + hold
        self.reason, self.behind = reason, behind
        self._factor = max(_FLOOR, self._factor * _SHRINK)
        for kind in ("read", "write"):
            if getattr(self.limits, f"max_{kind}s") is None:
                speed = max(
                    (b.speed for (of, _), b in self._buckets.items() if of == kind), default=0.0
                )
                known = self._ceiling.get(kind, speed)
                self._ceiling[kind] = max(_UNITS_MIN, min(known, speed or known) * _SHRINK)

    def _bucket(self, kind: Kind, name: str) -> _TokenBucket:
        if (kind, name) not in self._buckets:
            bucket = self._buckets[kind, name] = _TokenBucket()
            bucket.refill(self.clock.monotonic(), self._limit(kind))
        return self._buckets[kind, name]

    def _limit(self, kind: Kind) -> float | None:
        whole, limit = (getattr(of, f"max_{kind}s") for of in (self.limits, self.most))
        if whole is not None:
            part = whole * self._part
            limit = part if limit is None else min(limit, part)
        return self._ceiling.get(kind) if limit is None else limit * self._factor

    @property
    def _part(self) -> float:
        """The share of the limits that may be used now: none if the last look is too old."""
        if self.share is None:
            return 1.0
        return self.share.part if self.clock.monotonic() < self.share.until else 0.0

    def _grow(self, now: float) -> None:
        while now - self._grown_at >= 1.0 and (self._factor < 1.0 or self._ceiling):
            self._grown_at += 1.0
            self._factor = min(1.0, self._factor * _GROW)
            self._ceiling = {kind: limit * _GROW for kind, limit in self._ceiling.items()}
            if self._factor >= 1.0:
                self._ceiling.clear()
        if self._factor >= 1.0:
            self._grown_at = now
            if self.reason in ("throttled", "lag"):
                self.reason = ""


def _costs(entry: Mapping[str, Any], unknown: Kind) -> dict[tuple[Kind, str], float]:
    """Return the costs of a table and its indexes; units of unknown kind are of that kind."""
    found: dict[tuple[Kind, str], float] = {}
    parts = {"": entry.get("Table") or entry} | (entry.get("GlobalSecondaryIndexes") or {})
    for name, part in parts.items():
        told: dict[Kind, Any] = {
            "read": part.get("ReadCapacityUnits"),
            "write": part.get("WriteCapacityUnits"),
        }
        if not any(told.values()):
            told = {unknown: part.get("CapacityUnits")}
        found |= {(kind, name): float(units) for kind, units in told.items() if units}
    return found

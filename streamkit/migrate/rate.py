"""Rate: how much capacity a migration takes, learned from what each call has consumed.

Buckets for reads, for writes, and for the writes of every global index. A call waits until its
buckets are out of debt, and is charged with what the reply says, so that the rate holds whatever
items weigh. When the service throttles, or other consumers of the stream fall behind, the rate
shrinks by 30 % at once and grows back by 5 % a second.

In: `ConsumedCapacity` as DynamoDB returns it for `INDEXES`. Out: pauses. Limits are the whole
migration's; `processes` says among how many they are divided, and both may change at any time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from streamkit.clock import Clock

_SHRINK, _GROW = 0.7, 1.05
_FLOOR = 0.02
"""Of its rate, to which a migration shrinks at most."""
_WEIGHT = 0.2
"""Of the last call in what one usually costs."""
_UNITS_MIN = 5.0
"""Units a second that are always left to a migration without a limit."""
_EASE_SECONDS = 1.0
"""Between two times that the rate is taken back: many calls fail for one cause."""

Kind = Literal["read", "write"]
Reason = Literal["", "limit", "throttled", "lag"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Units a second that the whole migration may take; None is as much as there is."""

    reads: float | None = None
    writes: float | None = None


@dataclass
class _Bucket:
    """Units that may be spent now; below zero they are owed."""

    tokens: float = 0.0
    at: float | None = None
    spent: float = 0.0
    speed: float = 0.0

    def refill(self, now: float, rate: float | None) -> None:
        if self.at is None:
            self.at = now
            self.tokens = rate or 0.0
            return
        passed, self.at = now - self.at, now
        if rate is not None:
            self.tokens = min(self.tokens + rate * passed, max(rate, 1.0))
        if passed > 0:
            weight = min(1.0, passed / 5.0)
            self.speed += weight * (self.spent / passed - self.speed)
            self.spent = 0.0

    def take(self, units: float) -> None:
        self.tokens -= units
        self.spent += units


@dataclass
class Rate:
    """Paces one process. `reason` says why it waited last, for people."""

    clock: Clock
    limits: Limits = field(default_factory=Limits)
    processes: int = 1
    reason: Reason = ""
    reads: float = 0.0
    writes: dict[str, float] = field(default_factory=dict)
    _buckets: dict[tuple[Kind, str], _Bucket] = field(default_factory=dict)
    _usual: dict[Kind, float] = field(default_factory=lambda: {"read": 1.0, "write": 1.0})
    _factor: float = 1.0
    _ceiling: dict[Kind, float] = field(default_factory=dict)
    _eased_at: float = -1e9
    _grown_at: float = 0.0

    async def ready(self, kind: Kind) -> None:
        """Wait until something of this kind may be spent."""
        while True:
            now = self.clock.monotonic()
            self._grow(now)
            limit = self._limit(kind)
            owed = 0.0
            for (of, _), bucket in self._buckets.items():
                if of == kind:
                    bucket.refill(now, limit)
                    owed = max(owed, -bucket.tokens)
            if limit is None:
                return
            if owed <= 0:  # what it will cost is set aside, or all who wait would go at once
                self._bucket(kind, "").tokens -= self._usual[kind]
                return
            if not self.reason:
                self.reason = "limit"
            await anyio.sleep(min(max(owed / limit, 0.01), 5.0))

    def charge(self, consumed: Any) -> None:
        """Account for what a reply says was consumed: one entry, a list of them, or None."""
        entries = consumed if isinstance(consumed, list) else [consumed]
        for entry in entries:
            if entry:
                self._charge(entry)

    def ease(self, reason: Reason) -> None:
        """Take the rate back: the service throttles, or others fall behind."""
        now = self.clock.monotonic()
        if now - self._eased_at < _EASE_SECONDS:
            return
        self._eased_at = self._grown_at = now
        self.reason = reason
        self._factor = max(_FLOOR, self._factor * _SHRINK)
        for kind in ("read", "write"):
            if getattr(self.limits, f"{kind}s") is None:
                speed = max(
                    (b.speed for (of, _), b in self._buckets.items() if of == kind), default=0.0
                )
                known = self._ceiling.get(kind, speed)
                self._ceiling[kind] = max(_UNITS_MIN, min(known, speed or known) * _SHRINK)

    def _charge(self, entry: Mapping[str, Any]) -> None:
        parts = [("", entry.get("Table") or entry)]
        parts += list((entry.get("GlobalSecondaryIndexes") or {}).items())
        for name, part in parts:
            reads, writes = part.get("ReadCapacityUnits"), part.get("WriteCapacityUnits")
            if reads is None and writes is None:
                reads = part.get("CapacityUnits", 0.0)  # of a read; writes are told apart below
            if reads:
                self.reads += reads
                self._take("read", name, float(reads))
            if writes:
                self._write(name, float(writes))

    def charge_write(self, consumed: Any) -> None:
        """Account for a single write, whose reply does not tell reads from writes."""
        if not consumed:
            return
        self._write("", float((consumed.get("Table") or consumed).get("CapacityUnits", 0.0)))
        for name, part in (consumed.get("GlobalSecondaryIndexes") or {}).items():
            self._write(name, float(part.get("CapacityUnits", 0.0)))

    def _write(self, name: str, units: float) -> None:
        self.writes[name] = self.writes.get(name, 0.0) + units
        self._take("write", name, units)

    def _take(self, kind: Kind, name: str, units: float) -> None:
        bucket = self._bucket(kind, name)
        if not name:  # of the table, whose cost was set aside when the call was let through
            if self._limit(kind) is not None:
                bucket.tokens += self._usual[kind]
            self._usual[kind] += _WEIGHT * (units - self._usual[kind])
        bucket.take(units)

    def _bucket(self, kind: Kind, name: str) -> _Bucket:
        if (kind, name) not in self._buckets:
            bucket = self._buckets[kind, name] = _Bucket()
            bucket.refill(self.clock.monotonic(), self._limit(kind))
        return self._buckets[kind, name]

    def _limit(self, kind: Kind) -> float | None:
        limit = self.limits.reads if kind == "read" else self.limits.writes
        if limit is not None:
            return max(0.1, limit * self._factor / max(1, self.processes))
        return self._ceiling.get(kind)

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

"""Prices: what a fleet costs a month, from its settings. Pure; prices and arithmetic only.

In: how often a worker does what, how many shards and workers. Out: units an hour, and dollars a
month. The prices are those of us-east-1, on demand, as of August 2026; check them before quoting
them. How many units an hour each activity takes is measured by the tests on the engine's own
accounting, and must agree with what is computed here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, exp, expm1
from typing import Protocol

PRICED = "us-east-1, on demand, August 2026; check before quoting"
"""Where and when the prices were read."""
HOURS = 730.0
"""In a month, as AWS counts."""
FREE_STREAM_READS = 2_500_000.0
"""A month, for the whole account in a Region; what other readers use is not known here."""

DOLLARS = {"write": 0.625e-6, "read": 0.125e-6, "stream": 0.02e-5}
"""For a write request unit, a read request unit, and a call of `GetRecords`."""

DIRECTORIES = 16
"""Directory items that list a consumer's cursors; one that is missing costs a unit, too."""
MEMBER_BYTES = 360
"""A heartbeat item, roughly; the looks at it grow with the fleet."""
NAME_BYTES = 40
"""A shard's name in a directory, and what a set adds to it."""
SHARD_HOURS = 4.0
"""After about so long a shard ends and goes on in another; measured by users, not documented."""
SHARD_END_WRITES = 10.0
"""Units of one shard's end: its cursor and its child's, the directory, the lease, the tidying."""
_READ_BYTES = 4096
_FLOOR_SECONDS = 0.01
"""A round trip; with a floor of 0 it is all that is between two polls."""


class Rates(Protocol):
    """How often a worker does what, in seconds; `Settings` has these."""

    @property
    def heartbeat(self) -> float:
        """Between two heartbeats."""

    @property
    def lease(self) -> float:
        """After which a silent worker counts as gone; one that is alone looks by it."""

    @property
    def look_interval(self) -> float:
        """Between two looks at the other workers."""

    @property
    def list_interval(self) -> float:
        """Between two listings, and between two readings of the directories."""

    @property
    def checkpoint_interval(self) -> float:
        """Until a position without effects is written."""

    @property
    def poll_floor(self) -> float:
        """After a page with changes."""

    @property
    def poll_ceiling(self) -> float:
        """On a quiet shard."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one activity takes: units an hour, of a kind: `read`, `write` or `stream`.

    `per` says of what: `worker`, `shard` or `fleet`. `count` is how many of these there are.
    """

    what: str
    per: str
    kind: str
    units: float
    count: int = 1

    @property
    def dollars_each(self) -> float:
        """A month, for one of them, the free tier left out."""
        return self.units * HOURS * DOLLARS[self.kind]

    @property
    def dollars(self) -> float:
        """A month, for all of them, the free tier left out."""
        return self.dollars_each * self.count


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a fleet costs. It leaves out what handlers write and read."""

    shards: int
    workers: int
    costs: tuple[Cost, ...]

    def each(self, per: str) -> float:
        """Return the dollars a month for one `worker`, one `shard`, or the `fleet` as such."""
        return sum(cost.dollars_each for cost in self.costs if cost.per == per)

    @property
    def dollars(self) -> float:
        """A month, all in all, before the free tier."""
        return sum(cost.dollars for cost in self.costs)

    @property
    def dollars_a_day(self) -> float:
        """The same for a day."""
        return self.dollars * 24 / HOURS

    @property
    def free(self) -> float:
        """What the free tier takes off, in dollars a month, if nobody else uses it."""
        calls = sum(c.units * c.count for c in self.costs if c.kind == "stream") * HOURS
        return min(calls, FREE_STREAM_READS) * DOLLARS["stream"]


def estimate(rates: Rates, *, shards: int, workers: int, changes: float = 0.0) -> Estimate:
    """Say what a fleet costs.

    Args:
        rates: the settings of its workers.
        shards: open shards of the stream: one for each partition of the table.
        workers: that run.
        changes: a second, over all shards, each with an effect; 0 is an idle table.
    """
    costs = (
        *_of_a_worker(rates, shards, workers),
        *_of_a_shard(rates, shards, changes / shards),
        _of_the_leader(rates, shards),
    )
    return Estimate(shards, workers, costs)


def _of_a_worker(rates: Rates, shards: int, workers: int) -> Iterable[Cost]:
    yield Cost("heartbeats", "worker", "write", 3600 / rates.heartbeat, workers)
    look = _read_units(workers * MEMBER_BYTES)
    pause = rates.look_interval if workers > 1 else max(rates.look_interval, rates.lease / 4)
    yield Cost("looks at the others", "worker", "read", 3600 / pause * look, workers)
    reading = _directory_units(shards)
    yield Cost("directories", "worker", "read", 3600 / rates.list_interval * reading, workers)


def _of_a_shard(rates: Rates, shards: int, changes: float) -> Iterable[Cost]:
    # What the effect of a change writes comes back as a record, and wakes a shard, too.
    polls = polls_a_second(rates, 2 * changes)
    yield Cost("polls", "shard", "stream", 3600 * polls, shards)
    yield Cost("is it still mine", "shard", "read", 3600 / rates.list_interval, shards)
    positions = 2.0 + SHARD_END_WRITES / SHARD_HOURS  # one position an hour, at most
    yield Cost("positions, shard ends", "shard", "write", positions, shards)
    if changes:
        commits = polls * -expm1(-changes / polls)
        yield Cost("cursors of commits", "shard", "write", 3600 * commits * 2, shards)


def _of_the_leader(rates: Rates, shards: int) -> Cost:
    # It reads the directories twice, once to tidy them, each shard's cursor, and its own lease.
    reading = 2 * _directory_units(shards) + shards + 1
    return Cost("the leader's audit", "fleet", "read", 3600 / rates.list_interval * reading)


def polls_a_second(rates: Rates, records: float) -> float:
    """Return how often a shard is polled that gets so many of the application's records a second.

    After a page with records comes the floor; then the pauses grow by half until the ceiling.
    Records are taken to come independently of each other.
    """
    if not records:
        return 1 / rates.poll_ceiling
    pause, unlucky, polls, seconds = max(rates.poll_floor, _FLOOR_SECONDS), 1.0, 0.0, 0.0
    while pause < rates.poll_ceiling:
        polls, seconds = polls + unlucky, seconds + unlucky * pause
        unlucky *= exp(-records * pause)
        pause *= 1.5
    pause = rates.poll_ceiling
    at_ceiling = unlucky / -expm1(-records * pause)
    return (polls + at_ceiling) / (seconds + at_ceiling * pause)


def _read_units(size: int) -> int:
    return max(1, ceil(size / _READ_BYTES))


def _directory_units(shards: int) -> int:
    return DIRECTORIES * _read_units(ceil(shards / DIRECTORIES) * NAME_BYTES)

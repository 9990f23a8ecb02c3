"""Compute what a fleet costs a month from its settings. Pure: prices and arithmetic only.

In: the intervals of a worker, the number of shards and of workers. Out: units an hour, and dollars
a month. The prices are those of us-east-1, on demand, as of August 2026; check them before you
quote them. Tests measure with the local engine's accounting how many units an hour each activity
takes; the result must agree with what is computed here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, exp, expm1
from typing import Protocol

PRICED = "us-east-1, on demand, August 2026; check before quoting"
"""The Region and the date of the prices."""
HOURS = 730.0
"""Hours in a month, as AWS counts."""
FREE_STREAM_READS = 2_500_000.0
"""Free calls a month, for an account in a Region; what other readers use is not known here."""

DOLLARS = {"write": 0.625e-6, "read": 0.125e-6, "stream": 0.02e-5}
"""Dollars for one write request unit, one read request unit, and one call of `GetRecords`."""
_PRICES = DOLLARS | {"put": 5e-6}
"""The same, with one `PutObject` of an archive, which workers do not count."""
STORED_DOLLARS = 0.023
"""Dollars a month for a GB in a bucket."""

DIRECTORIES = 16
"""Directory items that list a consumer's cursors; reading a missing one costs a unit, too."""
DIRECTORIES_EACH = 10
"""Workers read the directories once in so many listing intervals."""
ALONE_SECONDS, ALONE_LOOKS = 4.0, 10
"""The longest pause between two looks of a worker that is alone, in seconds and in usual pauses."""
MEMBER_BYTES = 360
"""The size of a heartbeat item, roughly; reading all of them costs more in a larger fleet."""
NAME_BYTES = 40
"""The size of a shard's name in a directory, with what its set adds."""
SHARD_HOURS = 4.0
"""A shard ends after about this time and continues in another; measured by users, undocumented."""
SHARD_END_WRITES = 10.0
"""Units at a shard's end: its cursor and its child's, the directory, the lease, cleaning up."""
ARCHIVED_BYTES = 200
"""The compressed size of an archived record: 1.6 KB, at 8 to 1."""
ENDS_STORED = 3.0
"""Objects beside the usual ones at a shard's end: its last link, and its child's lineage."""
_FLOOR_SECONDS = 0.01
"""A round trip takes about this long; with a floor of 0 nothing else separates two polls."""


class Rates(Protocol):
    """The intervals of a worker's activities, in seconds; `Settings` has these."""

    @property
    def heartbeat(self) -> float:
        """Return the seconds between two heartbeats."""

    @property
    def look_interval(self) -> float:
        """Return the seconds between two readings of the other workers' heartbeats."""

    @property
    def list_interval(self) -> float:
        """Return the seconds between two listings; directories are read once in ten of them."""

    @property
    def checkpoint_interval(self) -> float:
        """Return the seconds until a position without effects is written."""

    @property
    def poll_floor(self) -> float:
        """Return the pause after a page with changes."""

    @property
    def poll_ceiling(self) -> float:
        """Return the longest pause, on a quiet shard."""


class Flushes(Protocol):
    """When the writer of an archive stores what it has read; `Flush` has these."""

    @property
    def seconds(self) -> float:
        """Return the seconds after which a link is stored although it is not full."""

    @property
    def size(self) -> int:
        """Return the compressed bytes after which it is stored at once."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one activity in units an hour, of a kind: `read`, `write`, `stream` or `put`.

    `per` names what it is counted by: `worker`, `shard` or `fleet`. `count` is how many of these
    there are.
    """

    what: str
    per: str
    kind: str
    units: float
    count: int = 1

    @property
    def dollars_each(self) -> float:
        """Return the dollars a month for one of them, without the free tier."""
        return self.units * HOURS * _PRICES[self.kind]

    @property
    def dollars(self) -> float:
        """Return the dollars a month for all of them, without the free tier."""
        return self.dollars_each * self.count


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a fleet costs, without what handlers write and read."""

    shards: int
    workers: int
    costs: tuple[Cost, ...]

    def each(self, per: str) -> float:
        """Return the dollars a month for one `worker`, one `shard`, or the `fleet` as a whole."""
        return sum(cost.dollars_each for cost in self.costs if cost.per == per)

    @property
    def dollars(self) -> float:
        """Return the dollars a month in total, before the free tier."""
        return sum(cost.dollars for cost in self.costs)

    @property
    def dollars_a_day(self) -> float:
        """Return the dollars a day in total, before the free tier."""
        return self.dollars * 24 / HOURS

    @property
    def free(self) -> float:
        """Return the dollars a month that the free tier saves, if nothing else uses it."""
        calls = sum(c.units * c.count for c in self.costs if c.kind == "stream") * HOURS
        return min(calls, FREE_STREAM_READS) * DOLLARS["stream"]


def estimate(
    rates: Rates,
    *,
    shards: int,
    workers: int,
    changes: float = 0.0,
    archive: Flushes | None = None,
) -> CostEstimate:
    """Return what a fleet costs.

    Args:
        rates: the settings of its workers.
        shards: open shards of the stream: one for each partition of the table.
        workers: the number of workers that run.
        changes: changes a second, over all shards, each with an effect; 0 is an idle table.
        archive: when the writer of an archive in a bucket stores what it has read, if there is one.
    """
    costs = (
        *_of_a_worker(rates, shards, workers),
        *_of_a_shard(rates, shards, changes / shards),
        _of_the_leader(rates, shards, workers),
        *(() if archive is None else _of_an_archive(archive, shards, changes / shards)),
    )
    return CostEstimate(shards, workers, costs)


def _of_a_worker(rates: Rates, shards: int, workers: int) -> Iterable[Cost]:
    yield Cost("heartbeats", "worker", "write", 3600 / rates.heartbeat, workers)
    # While nothing happens, a look is eventually consistent, for half the price.
    look = read_units(workers * MEMBER_BYTES) / 2
    pause = rates.look_interval
    if workers == 1:
        pause = max(pause, min(ALONE_SECONDS, ALONE_LOOKS * pause))
    yield Cost("looks at the others", "worker", "read", 3600 / pause * look, workers)
    reading = _directory_units(shards) / DIRECTORIES_EACH / 2
    yield Cost("directories", "worker", "read", 3600 / rates.list_interval * reading, workers)


def _of_a_shard(rates: Rates, shards: int, changes: float) -> Iterable[Cost]:
    # The write of a change's effect comes back as a record and wakes a shard, too.
    polls = polls_a_second(rates, 2 * changes)
    yield Cost("polls", "shard", "stream", 3600 * polls, shards)
    yield Cost("is it still mine", "shard", "read", 3600 / rates.list_interval / 2, shards)
    positions = 2.0 + SHARD_END_WRITES / SHARD_HOURS  # one position an hour, at most
    yield Cost("positions, shard ends", "shard", "write", positions, shards)
    if changes:
        commits = polls * -expm1(-changes / polls)
        yield Cost("cursors of commits", "shard", "write", 3600 * commits * 2, shards)


def _of_the_leader(rates: Rates, shards: int, workers: int) -> Cost:
    # The leader reads its lease, and the cursors that other workers own.
    reading = shards - shards / workers + 1
    return Cost("the leader's audit", "fleet", "read", 3600 / rates.list_interval * reading)


def _of_an_archive(archive: Flushes, shards: int, changes: float) -> Iterable[Cost]:
    # The effect of a change comes back as a record, and is archived, too.
    links = 1.0  # one an hour on a quiet shard
    if changes:
        full = 2 * changes * ARCHIVED_BYTES / archive.size
        links = 3600 * max(min(2 * changes, 1 / archive.seconds), full)
    yield Cost("archive: objects", "shard", "put", links + ENDS_STORED / SHARD_HOURS, shards)
    positions = links + SHARD_END_WRITES / SHARD_HOURS
    yield Cost("archive: positions, shard ends", "shard", "write", positions, shards)


def polls_a_second(rates: Rates, records: float) -> float:
    """Return the polls a second of a shard that gets `records` of the app's records a second.

    After a page with records comes the floor; then the pauses grow by half until the ceiling.
    Records are assumed to arrive independently of each other.
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


def write_units(size: int) -> int:
    """Return the units of writing so many bytes."""
    return max(1, ceil(size / 1024))


def read_units(size: int) -> int:
    """Return the units of reading so many bytes at once, strongly consistent."""
    return max(1, ceil(size / 4096))


def _directory_units(shards: int) -> int:
    return DIRECTORIES * read_units(ceil(shards / DIRECTORIES) * NAME_BYTES)

"""Read some segments of a table, chosen at random, and estimate the whole from them.

In: a table, and how much of it to read: a share, or a number of items. Out: all items of each
segment that was read, and estimates with the interval that holds the truth 19 times in 20. The
segments of a scan are parts by the hash of the partition key, so items that share one come
together; the interval is computed from differences between segments, not between items. Reads are
eventually consistent, for half the price; nothing is written.
"""

import math
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import stdev

from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.refusals import SEGMENTS_MOST
from streamkit.progress.actions import Wire
from streamkit.progress.fetch import pages_of
from streamkit.progress.scan.pages import PAGE_ITEMS, Reply

Scan = Callable[..., Awaitable[Reply]]
"""A client's `scan`, or what answers like it."""

_NORMAL = 1.96
_AT_LEAST = 20
"""Segments of a sample: with fewer it is not known how much they differ."""
_FINER = 8
_PATIENCE = 4
"""A sample may read so many times the items asked for before it is cut finer."""


@dataclass(frozen=True, slots=True)
class SampleEstimate:
    """A number of the whole table, and how far it may be off, 19 times in 20."""

    value: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much to read: a share of the table, or about so many items."""

    share: float | None = None
    items: int | None = None


def read_wanted(text: str) -> Wanted:
    """Return the amount for `5%` or `1000`.

    Raises:
        ConfigurationError: it is neither.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    if match is None or not 0 < float(match[1]) <= (100 if match[2] else math.inf):
        raise ConfigurationError(
            f"{text!r} is no sample; give a share such as 5%, or a number of items"
        )
    if match[2]:
        return Wanted(share=float(match[1]) / 100)
    return Wanted(items=max(1, int(float(match[1]))))


@dataclass(frozen=True, slots=True)
class Part:
    """One segment: its items, of so many that were `scanned`."""

    items: list[dict[str, Wire]]
    scanned: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The segments that were read, of `total` that exist."""

    total: int
    parts: tuple[Part, ...] = field(default=())

    @property
    def share(self) -> float:
        """The share of the table that was read."""
        return len(self.parts) / self.total

    @property
    def scanned(self) -> int:
        """The number of items that were read."""
        return sum(part.scanned for part in self.parts)

    def total_of(self, amounts: Sequence[float]) -> SampleEstimate:
        """Return the amount of the whole table, from the amounts of the parts."""
        mean = sum(amounts) / len(amounts)
        return SampleEstimate(self.total * mean, self.total * self._error(amounts))

    def ratio_of(self, parts: Sequence[float], wholes: Sequence[float]) -> SampleEstimate:
        """Return the share of a part in a whole, such as items of an entity in all items."""
        whole = sum(wholes)
        if not whole:
            return SampleEstimate(0.0, 0.0)
        ratio = sum(parts) / whole
        rest = [part - ratio * all_ for part, all_ in zip(parts, wholes, strict=True)]
        return SampleEstimate(ratio, min(1.0, self._error(rest) * len(wholes) / whole))

    def _error(self, amounts: Sequence[float]) -> float:
        """Return the error of a mean over the parts; none if all parts were read."""
        count = len(amounts)
        if count == self.total:
            return 0.0
        if count < 2:
            return abs(amounts[0]) if amounts else 0.0
        return _NORMAL * stdev(amounts) / math.sqrt(count) * math.sqrt(1 - count / self.total)


async def sample_of(aws: Aws, table: str, wanted: Wanted, rng: random.Random) -> Sample:
    """Read a sample of a table, whose size is known as far as AWS tells it."""
    described = (await aws.dynamodb.describe_table(TableName=table))["Table"]
    items = int(described.get("ItemCount", 0))
    return await take_sample(aws.dynamodb.scan, table, wanted, rng, items=items)


async def take_sample(
    scan: Scan, table: str, wanted: Wanted, rng: random.Random, *, items: int = 0
) -> Sample:
    """Read a sample of a table that has so many `items`, as far as is known.

    The number of `DescribeTable` is hours old, so that a sample that turns out too large is taken
    again, of smaller segments.
    """
    if wanted.share is not None:
        total, chosen = random_segments(wanted.share, _AT_LEAST, rng)
        return Sample(total, tuple(await _parts(scan, table, total, chosen)))
    count = wanted.items or 1
    total = min(SEGMENTS_MOST, max(_AT_LEAST, _AT_LEAST * items // count))
    while True:
        chosen = rng.sample(range(total), _AT_LEAST)
        found = await _parts(scan, table, total, chosen, _PATIENCE * count)
        if len(found) == _AT_LEAST or total == SEGMENTS_MOST:
            return Sample(total, tuple(found))
        total = min(SEGMENTS_MOST, total * _FINER)


def random_segments(share: float, least: int, rng: random.Random) -> tuple[int, list[int]]:
    """Return into how many segments to cut a table, `least` or more, and a share of them."""
    total = max(least, min(SEGMENTS_MOST, round(least / share)))
    return total, rng.sample(range(total), max(1, round(total * share)))


async def _parts(
    scan: Scan, table: str, total: int, chosen: Sequence[int], items_max: float = math.inf
) -> list[Part]:
    """Read segments, one after the other, until there are too many items in them."""
    found: list[Part] = []
    for number in chosen:
        left = items_max - sum(part.scanned for part in found)
        part = await read_part(scan, table, number, total, left)
        if part.scanned > left:
            break
        found.append(part)
    return found


async def read_part(
    scan: Scan, table: str, number: int, total: int, items_max: float = math.inf
) -> Part:
    """Read a segment until there are too many items in it: eventually, for half the price."""
    items, scanned = list[dict[str, Wire]](), 0
    place = {"TableName": table, "Segment": number, "TotalSegments": total}
    reads = pages_of(scan, **place, Limit=PAGE_ITEMS, ConsistentRead=False)
    async with aclosing(reads) as pages:
        async for page in pages:
            items += page["Items"]
            scanned += page["ScannedCount"]
            if scanned > items_max:
                break
    return Part(items, scanned)

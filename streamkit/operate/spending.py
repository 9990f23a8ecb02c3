"""Compute what a fleet will cost a month, and what its calls use and cost a day, as counted.

In: an app with its listeners, and clients. Out: a `CostEstimate`, which follows from settings and
from the stream as it is now: open shards are counted by listing it, which is free, and workers by
their heartbeats. And one `Spending` for each consumer, from the counters of its workers: units a
day by kind, at the average rate of the workers that run now, each since it began or since a while
ago, and how far that average may be off. The units include what handlers write and read. They leave
out cancelled transactions (AWS does not report their units), workers that have ended, and functions
on Lambda.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from streamkit.app import App, consumers_of
from streamkit.archive.bucket import BucketArchive
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.fleet.members import Member, MemberList
from streamkit.observe.pricing import DOLLARS, CostEstimate, estimate
from streamkit.observe.usage import Usage, UsageMark
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from streamkit.stream.listing import list_shards

_DAY = 86_400.0
_SURE = 2.0
"""Standard errors: the true rate is within so many in 95 of 100 cases."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What one consumer uses; `units` are units a day, by kind: `read`, `write` and `stream`.

    `seconds` is the length of the longest sample of a worker. `error` is the share
    by which the dollars may be off, as the parts of the samples differ; None if there is one part.
    """

    consumer: str
    workers: int
    seconds: int
    units: dict[str, float]
    error: float | None = None

    @property
    def dollars(self) -> float:
        """Return the dollars a day, without the free tier."""
        return sum(units * DOLLARS[kind] for kind, units in self.units.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {**asdict(self), "dollars": self.dollars}


async def read_estimate(
    app: App, aws: Aws, settings: Settings, *, workers: int | None = None, changes: float = 0.0
) -> CostEstimate:
    """Return what an app's fleet costs a month.

    Args:
        app: the app whose consumer is priced.
        aws: open clients.
        settings: the settings of its workers.
        workers: how many workers run; by default as many as have a heartbeat item now, or one.
        changes: changes a second, over all shards, each with an effect.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    listing = await list_shards(aws, tables.table.stream_arn or "")
    shards = sum(shard.ending is None for shard in listing.shards)
    if workers is None:
        workers = len(await MemberList(store).read())
    archive = app.archive.flush if isinstance(app.archive, BucketArchive) else None
    return estimate(
        settings,
        shards=max(1, shards),
        workers=max(1, workers),
        changes=changes,
        archive=archive,
    )


async def read_spending(app: App, aws: Aws, *, since: float | None = None) -> tuple[Spending, ...]:
    """Return what an app and its listeners use a day.

    Args:
        app: the app.
        aws: open clients.
        since: take only what was counted in the last so many seconds, or a little more, as far
            as the workers remember; None takes all that they have counted.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    tables = await survey(app, aws)
    consumers = consumers_of([app])
    return tuple([await spending_at(tables.store(one, aws), since) for one in consumers])


async def spending_at(store: CursorStore, since: float | None = None) -> Spending:
    """Return what the consumer of these control items uses a day."""
    members = (await MemberList(store).read()).values()
    return spending_of(store.space.consumer, members, since)


def spending_of(consumer: str, members: Iterable[Member], since: float | None = None) -> Spending:
    """Return the sum of what a consumer's workers report in their heartbeats."""
    samples = [
        sample
        for member in members
        if (used := Usage.of(member.used))
        if (sample := _sample(used.marks(member.lately, member.at), since))[-1].at > sample[0].at
    ]
    units = {kind: sum(_rate(sample, kind) for sample in samples) for kind in DOLLARS}
    longest = max((sample[-1].at - sample[0].at for sample in samples), default=0)
    spent = Spending(consumer, len(samples), longest, units)
    errors = [_error(sample) for sample in samples]
    known = [error for error in errors if error is not None]
    if not known or len(known) < len(errors) or not spent.dollars:
        return spent
    off = _SURE * math.hypot(*known) / spent.dollars
    return replace(spent, error=off)


def _sample(marks: Sequence[UsageMark], since: float | None) -> list[UsageMark]:
    """Return the sums since the newest moment that is old enough; else since the first one."""
    if since is None:
        return list(marks)
    old = [number for number, mark in enumerate(marks) if marks[-1].at - mark.at >= since]
    return list(marks[old[-1] if old else 0 :])


def _rate(sample: Sequence[UsageMark], kind: str) -> float:
    """Return the units a day of a sample."""
    first, last = sample[0], sample[-1]
    used: float = getattr(last, kind) - getattr(first, kind)
    return used * _DAY / (last.at - first.at)


def _error(sample: Sequence[UsageMark]) -> float | None:
    """Return the standard error of the dollars a day, from how the sample's parts differ."""
    parts = [pair for pair in pairwise(sample) if pair[1].at > pair[0].at]
    if len(parts) < 2:
        return None
    weights = [(last.at - first.at) / (sample[-1].at - sample[0].at) for first, last in parts]
    rates = [_dollars(part) for part in parts]
    mean = _dollars(sample)
    spread = sum((w * (rate - mean)) ** 2 for w, rate in zip(weights, rates, strict=True))
    return math.sqrt(spread * len(parts) / (len(parts) - 1))


def _dollars(sample: Sequence[UsageMark]) -> float:
    return sum(_rate(sample, kind) * price for kind, price in DOLLARS.items())

"""Report on a worker from its own memory, for gauges, probes and the status page.

In: a worker's coordinator and shards. Out: one `WorkerReport`. AWS is not asked, so callers may ask
as often as they like. `status` reports on the whole fleet.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from streamkit.fleet.lag import Lag, bound, time_to_loss
from streamkit.fleet.leadership import Leadership
from streamkit.observe.memory import used_bytes
from streamkit.observe.meters import Meters
from streamkit.worker.pipeline import ShardPipeline
from streamkit.worker.shardset import ShardSet

SAMPLE_SECONDS = 5.0
"""The pause between two updates of the gauges."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The state of one worker of this process.

    `state` is `starting`, what the worker tells the other workers (`joining`, `waiting`: it stands
    by for a newer roll-out, `active`, `unfit`: the stream does not answer it, `leaving`), `ended`,
    or `taken over`: its app runs its handler. `lags` are those of the shards that it reads, in
    seconds, NaN where nothing is known yet. `paused` is since when it reads nothing, in epoch
    seconds. Only the leader knows which shards no worker reads: `unread` counts them, and
    `unread_lag` is at most how far the oldest one is behind. `oldest` is since when a handler has
    parked changes, in epoch seconds. A worker `catches_up` while it reads what was there when a
    handler with a start of its own began.
    """

    consumer: str
    state: str
    lags: Mapping[str, float] = field(default_factory=dict)
    parked: int = 0
    stuck: int = 0
    unread: int = 0
    unread_lag: float = 0.0
    paused: int = 0
    leads: bool = False
    oldest: Mapping[str, int] = field(default_factory=dict)
    catches_up: bool = False

    @property
    def lag(self) -> float:
        """Return the largest lag that is known, 0 without shards; NaN if none is known."""
        lags = [*self.lags.values(), *([self.unread_lag] if self.unread else [])]
        known = [lag for lag in lags if not math.isnan(lag)]
        return max(known) if known else (math.nan if lags else 0.0)

    @property
    def time_to_loss(self) -> float:
        """Return the seconds until the oldest unread change is trimmed; NaN if unknown."""
        left = time_to_loss(Lag(self.lag, "measured"))
        return math.nan if left is None or math.isnan(self.lag) else left


class Reporting(Protocol):
    """The parts of a worker that are read here."""

    @property
    def meters(self) -> Meters:
        """Return the instruments of the worker."""

    @property
    def report(self) -> WorkerReport:
        """Return the state of the worker."""


def report_of(consumer: str, leadership: Leadership, shards: ShardSet) -> WorkerReport:
    """Return the state of a worker that is running; it has a lister if it leads."""
    coordinator, lister = leadership.coordinator, leadership.lister
    me, joined = coordinator.me, coordinator.rollout.joined
    unread = coordinator.sharing.unread.late if lister else ()
    now, founded = coordinator.clock.time(), joined.founded if joined else 0
    ages = [bound(cursor, now, founded).seconds for cursor in unread]
    lags = {name: _lag(pipeline) for name, pipeline in sorted(shards.running.items())}
    started = joined is not None and coordinator.rollout.founding.exact
    return WorkerReport(
        consumer=consumer,
        state=me.state if coordinator.looked else "starting",
        lags=lags,
        parked=shards.retries.parked,
        stuck=shards.retries.stuck,
        unread=len(unread) + (len(lister.waiting) if lister else 0),
        unread_lag=max((age for age in ages if age is not None), default=math.nan),
        paused=coordinator.paused,
        leads=me.leads,
        oldest=shards.retries.oldest,
        catches_up=started and any(now - lag < founded for lag in lags.values()),
    )


def _lag(pipeline: ShardPipeline) -> float:
    """Return how far a shard is behind, in seconds; NaN if that is not known yet."""
    waiting = (change.record for change in pipeline.stage.pending if change.record is not None)
    oldest = next(waiting, None)
    return pipeline.behind.lag(None if oldest is None else oldest.created_at)


def sample(workers: Iterable[Reporting]) -> None:
    """Set every worker's gauges to the current values; those of an ended worker are not known.

    A listener may end alone. If its gauges said that it is not behind, no alarm would tell of it.
    """
    memory = used_bytes()
    for worker in workers:
        report, meters = worker.report, worker.meters
        for gauge, value in (
            (meters.memory, memory),
            (meters.lag, report.lag),
            (meters.time_to_loss, report.time_to_loss),
            (meters.parked, report.parked),
            (meters.stuck, report.stuck),
            (meters.shards, len(report.lags)),
            (meters.unread, report.unread),
        ):
            gauge.set(math.nan if report.state == "ended" else value)


async def sample_for_ever(workers: Iterable[Reporting]) -> None:
    """Set the gauges every few seconds, for hooks that are told instead of asking."""
    while True:
        sample(workers)
        await anyio.sleep(SAMPLE_SECONDS)

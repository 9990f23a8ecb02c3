"""Rebuild an aggregate over all that its table holds, while the table is written to.

In: an app, and an aggregate's name. Out: a report. `steps` says what is done, and why a command
that is killed at any instant can be given again, on any machine. During a rebuild the aggregate's
values are too low. Its handler's parked changes are dropped: what they have done is in the items
that are counted.

On failure: another deployment, or a second command that starts a new build, ends this one with an
error, and changes may be lost to the stream's retention meanwhile: then it needs to be rebuilt
again.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio

from streamkit.aws import Aws
from streamkit.core.consumer import Consumer
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.fleet.hosting import FUNCTION_SECONDS
from streamkit.kinds.aggregate.backfill import BackfillCounts
from streamkit.kinds.aggregate.facts import aggregate_named
from streamkit.kinds.aggregate.steps import RebuildSteps, Width
from streamkit.model.builds import BuildState
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.machine import Machine
from streamkit.progress.scan.scan import LEASE_SECONDS

SEGMENTS = 16
"""How many segments a scan has by default."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild; the counts are of this process alone, except `left_out`.

    `left_out` items, of all processes, are not in the aggregate: they do not fit their entity, or
    cannot be added up, for the `reasons` met here; or the item of `onto=` does not exist, with
    `missing="park"`. The aggregate is not complete until they are fixed and it is rebuilt once
    more.

    `state` is `counting` or `live` when the aggregate is right; else this process was stopped.
    `items` of the source were read, `counted` of them by the scan: changes had counted the others,
    or they contribute nothing. The `unreadable` do not fit their entity, or cannot be added up.
    `missing` items of `onto=` did not exist.
    """

    aggregate: str
    build: int
    state: BuildState
    items: int
    counted: int
    unreadable: int
    missing: int
    reasons: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    @property
    def done(self) -> bool:
        """Whether all items are counted; workers count what is still in the stream."""
        return self.state in ("counting", "live")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {"done": self.done, **asdict(self)}


async def rebuild_aggregate(  # noqa: PLR0913 - each says one thing of the rebuild
    app: Consumer,
    aws: Aws,
    name: str,
    *,
    segments: int = SEGMENTS,
    at_once: int = 4,
    lease_seconds: float = LEASE_SECONDS,
    in_flight: float = FUNCTION_SECONDS,
    stopping: anyio.Event | None = None,
    progress: Callable[[BuildState, BackfillCounts], object] | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Rebuilt:
    """Count an aggregate again, or continue a rebuild; return when the whole table is counted.

    It reads the table twice, strongly consistent: for what is stored of the aggregate, and for what
    is counted. Each item that is counted costs two write units and a read unit, and two more
    when the ledger is deleted; its group is written once for up to 98 of them.

    Args:
        app: the app whose consumer keeps the aggregate; its workers run, or its functions.
        aws: open clients.
        name: the aggregate's class name.
        segments: into how many segments the scan is cut; a process that joins a scan takes the
            segments that exist.
        at_once: segments that this process scans at a time.
        lease_seconds: seconds of silence after which a process loses its segment to another.
        in_flight: the longest time-out of the functions, where functions run the consumer.
        stopping: an event that ends it early, in order.
        progress: called with the state and the counts, at each step and during the scan.
        clock: time, for simulations.
        rng: random numbers, for simulations.

    Raises:
        ConfigurationError: the aggregate cannot be rebuilt at all, with this code, or any more.
    """
    aggregate = aggregate_named(app, name)
    if aggregate.__options__.approximate:
        raise ConfigurationError(
            f"{aggregate.__declaration__}: it is approximate, and what is written outside of"
            " transactions cannot be counted again exactly; leave out approximate= first"
        )
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    # The end of the scan is compared with when changes were made: a late clock counts them twice.
    time = await store.clock(clock or SystemClock())
    steps = RebuildSteps(
        app,
        Machine(aws, time, rng or random.Random()),
        tables,
        store,
        aggregate,
        stopping or anyio.Event(),
        progress or (lambda *_: None),
        Width(segments, at_once, lease_seconds, in_flight),
    )
    build, left = await steps.run()
    counts = asdict(steps.counts)
    return Rebuilt(steps.name, build.number, build.state, **counts, left_out=left)


__all__ = ["Rebuilt", "rebuild_aggregate"]

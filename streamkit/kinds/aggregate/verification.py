"""Compare an aggregate with its source, while both are being written.

In: an app, clients, and an aggregate's name. Out: a report: which groups hold something else than
their items say, and which could not be judged. `comparison` says when a difference counts. On
failure: a table that cannot be read raises.
"""

from dataclasses import replace

from streamkit.aws import Aws
from streamkit.core.consumer import Consumer
from streamkit.core.parked.queues import parked_queues
from streamkit.core.tables import survey
from streamkit.fleet.catching_up import CatchUp
from streamkit.kinds.aggregate.comparison import GroupComparison, Verification
from streamkit.kinds.aggregate.facts import aggregate_named
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.recount import Place
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.pacing import Turn
from streamkit.progress.scan.pages import ScanPages, patient
from streamkit.table import Table

_EXPIRING_SECONDS = 900.0
"""Time buckets that end within these seconds are left out: they may vanish while this runs."""
_SEGMENTS = 16
"""Into how many segments the table is cut, of which some are read at once."""


async def verify_aggregate(
    app: Consumer,
    aws: Aws,
    name: str,
    *,
    looks: int = 5,
    patience: float = 60.0,
    segments: int = _SEGMENTS,
    repair: bool = False,
    clock: Clock | None = None,
) -> Verification:
    """Recompute every group of an aggregate from its source, and compare.

    With `repair` an aggregate with a wrong group is rebuilt, and compared with its source once
    more.

    It reads the table twice (both times completely, strongly consistent), then, for what differs,
    the items of those groups for each further look, and the whole source again where there is no
    `members`, or too many groups. All groups are held in memory at once.

    Args:
        app: the app whose consumer keeps the aggregate.
        aws: open clients.
        name: the aggregate's class name.
        looks: how often at most a difference is looked at again.
        patience: seconds that the consumer may take each time to process what was written.
        segments: into how many segments the table is cut, of which some are read at once.
        repair: rebuild the aggregate if a group is wrong.
        clock: tells when things were read.

    Raises:
        ConfigurationError: the app has no such aggregate, or its table cannot be used; or a repair
            is asked for and the aggregate cannot be rebuilt, for example because no worker runs.
    """
    about = app, aws, name, looks, patience, segments
    found = await _verification(*about, clock)
    if not (repair and found.different):
        return found
    await rebuild_aggregate(app, aws, name, segments=segments, clock=clock)
    after = await _verification(*about, clock)
    return replace(after, repaired=len(_groups(found) - _groups(after)))


def _groups(found: Verification) -> set[Place]:
    return {(one.pk, one.sk) for one in found.different}


async def _verification(
    app: Consumer,
    aws: Aws,
    name: str,
    looks: int,
    patience: float,
    segments: int,
    clock: Clock | None,
) -> Verification:
    aggregate = aggregate_named(app, name)
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    clock = await store.clock(clock or SystemClock())  # this machine's may be hours wrong
    comparison = GroupComparison(
        aggregate,
        Table(aws.dynamodb, tables.table, tables=tables.schemas, counting=True),
        CatchUp(app, aws, store, tables.table, patience, clock),
        clock.time() + _EXPIRING_SECONDS,
        ScanPages(patient(aws.dynamodb), tables.table.name),
        segments,
        Turn(clock),
    )
    await comparison.run(looks)
    queues = [queue for queue in await parked_queues(store) if queue.handler == name]
    return comparison.report(len(queues), retried=any(not queue.stuck for queue in queues))

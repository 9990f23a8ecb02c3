"""Compute what an app's fleet will cost a month, on its stream as it is now.

In: an app, clients and settings. Out: a `CostEstimate`. Open shards are counted by listing the
stream, which is free, and workers by their heartbeats, unless the caller gives the numbers. Nothing
is written.
"""

from streamkit.app import App
from streamkit.archive.bucket import BucketArchive
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.fleet.members import MemberList
from streamkit.observe.pricing import CostEstimate, estimate
from streamkit.settings import Settings
from streamkit.stream.listing import list_shards


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

"""Make a consumer from a KCL's leases, before any worker has run.

In: an app that has never run, and the lease table. Out: the consumer, whose cursors are at the
KCL's checkpoints. On failure: nothing has changed, or the same call again finishes it; no worker
begins before it is complete.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables, survey
from streamkit.fleet.founding import founding_of
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import FROM_KCL, WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.operate.moves.fence import MoveFence
from streamkit.operate.moves.leases import LeasePositions, positions, read_leases
from streamkit.operate.moves.moved import OVERTAKEN, Imported, MoveRefused
from streamkit.operate.moves.positions import replace_cursors
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.listing import is_gone, list_shards
from streamkit.stream.loss import Losses
from streamkit.table import Table

WATCH_SECONDS = 12.0
"""A KCL renews its leases every few seconds, by default."""
_SHARD_MIN = 28
"""Least length of a shard's id (API reference of `GetShardIterator`); an id of Kinesis has 20."""


async def import_leases(
    app: App,
    aws: Aws,
    leases: str,
    *,
    caught_up_at: datetime | None = None,
    watch: float = WATCH_SECONDS,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Imported:
    """Let an app that has never run continue where a KCL has stopped.

    What the KCL had processed after its last checkpoints is delivered again. Aggregates are marked
    *needs rebuild*: they have not seen earlier changes.

    Args:
        app: the app whose consumer is made.
        aws: open clients.
        leases: the KCL's lease table.
        caught_up_at: a moment at which the KCL was at the tip of every shard: shards without a
            checkpoint (LATEST) count from there, and checkpoints older than a day are no loss.
        watch: for how many seconds to look whether a KCL worker is alive.
        dry_run: only report what would be done.
        clock: for simulations.

    Raises:
        MoveRefused: the result would be wrong; nothing has changed.
        ConfigurationError: a table is missing or may not be read, or `leases` holds no leases.
    """
    clock = clock or SystemClock()
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    newest = await newest_generation(store)
    if newest is not None and newest.host != FROM_KCL:
        raise MoveRefused(
            [f"{app.name} has run on this stream; leases are only for a new consumer"]
        )
    if caught_up_at is not None and caught_up_at.tzinfo is None:
        raise MoveRefused([f"{caught_up_at.isoformat()} has no time zone; add one, as in +00:00"])
    caught_up = 0 if caught_up_at is None else int(caught_up_at.timestamp())
    arn = tables.table.stream_arn or ""
    await _require_stopped(aws, leases, arn, watch)

    async def read(generation: int) -> LeasePositions:
        return await _read(aws, leases, arn, generation, caught_up, int(clock.time()))

    found = await read(1)
    MoveRefused.raise_for(found.reasons)
    if dry_run:
        return _report(app, found)
    fence = await _begun(app, aws, tables, store, clock)
    number = fence.began.number
    found = await read(number)
    MoveRefused.raise_for(found.reasons)
    await replace_cursors(fence, found.cursors, number)
    await fence.turn(WORKERS)
    return _report(app, found)


async def _require_stopped(aws: Aws, table: str, arn: str, watch: float) -> None:
    """Read the leases twice, `watch` seconds apart.

    Raises:
        MoveRefused: a KCL worker renews some of them.
    """
    before = await read_leases(aws, table, arn)
    await anyio.sleep(watch)
    after = await read_leases(aws, table, arn)
    alive = [name for name, lease in after.items() if lease != before.get(name)]
    if alive:
        raise MoveRefused([f"{len(alive)} leases are still renewed; stop the KCL's workers first"])


async def _read(
    aws: Aws, table: str, arn: str, generation: int, caught_up: int, now: int
) -> LeasePositions:
    leases = await read_leases(aws, table, arn)
    listing = await list_shards(aws, arn)
    listed = {shard.id for shard in listing.shards}
    unlisted = leases.keys() - listed
    gone = [
        name for name in sorted(unlisted) if len(name) < _SHARD_MIN or await is_gone(aws, arn, name)
    ]
    return positions(
        listing.shards,
        leases,
        gone=frozenset(gone),
        generation=generation,
        caught_up=caught_up,
        now=now,
    )


async def _begun(
    app: App, aws: Aws, tables: AppTables, store: CursorStore, clock: Clock
) -> MoveFence:
    """Make the consumer, which no host may run yet; its aggregates begin in the middle."""
    aggregates = frozenset(handler.name for handler in app.handlers if handler.is_aggregate)
    losses = Losses(app.on_loss, Table(aws.dynamodb, tables.table), store, aggregates)
    founding = replace(founding_of(app, tables, clock, losses), start="trim_horizon")
    await join_generation(
        store, app.fingerprint(), app.handlers, take_over=True, founding=founding, host=FROM_KCL
    )

    def unfit(now: Generation | None) -> Iterator[str]:
        if now is None or now.host != FROM_KCL:
            yield OVERTAKEN

    return await MoveFence.raised(store, clock, unfit, needs_rebuild=aggregates)


def _report(app: App, found: LeasePositions) -> Imported:
    states = Counter(map(_state, found.cursors))
    counts = states["finished"], states["position"], states["unread"]
    return Imported(app.name, *counts, found.notes)


def _state(cursor: Cursor) -> str:
    if cursor.finished:
        return "finished"
    return "position" if cursor.position.isdecimal() else "unread"

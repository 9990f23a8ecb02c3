"""Measure how fast the application writes, because a migration's budget may be too small for it.

In: a migration whose consumer is behind. Out: writes a second, by the times of the changes that it
has not read; None if too few are there, or the stream does not answer. The migration's own writes
and items of other entities are left out. It costs some `GetRecords` calls for each shard, of which
a shard takes five a second in all: so only commands call it, and no running migration.
"""

import random
from collections.abc import Callable

import anyio

from streamkit.app import App
from streamkit.aws import Aws, AwsError
from streamkit.errors import RetentionLost
from streamkit.fleet.lag import listens
from streamkit.fleet.taken import is_over
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.state import State
from streamkit.migrate.run.capture import capture_app, leave
from streamkit.model.origin import read_origin
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record
from streamkit.stream.reader import ShardReader, StreamPages

_SHARDS_MAX = 8
"""The most shards that are read; the average of these is assumed for all others."""
_PAGES_MAX = 5
_SPAN_LEAST = 5.0
"""Seconds that the changes of a shard have to span: their times have whole seconds."""


async def write_speed(
    app: App,
    aws: Aws,
    migration: Migration,
    state: State,
    schema: TableSchema,
    store: CursorStore,
    clock: Clock,
) -> float | None:
    """Return how many items the application writes a second, as far as the stream shows it."""
    wants = listens(capture_app(app, migration, state, leave), schema)

    def counts(record: Record) -> bool:
        origin = read_origin(record.old_image, record.new_image)
        return origin is not None and origin.writer != "migration" and wants(record)

    cursors = [cursor for cursor in (await store.read_all()).values() if not is_over(cursor)]
    oldest = sorted(cursors, key=lambda cursor: cursor.seen)[:_SHARDS_MAX]
    speeds = [await _speed(aws, schema.stream_arn or "", each, counts, clock) for each in oldest]
    known = [speed for speed in speeds if speed is not None]
    return sum(known) * len(cursors) / len(oldest) if known else None


async def _speed(
    aws: Aws, stream_arn: str, cursor: Cursor, counts: Callable[[Record], bool], clock: Clock
) -> float | None:
    """Return the writes a second behind a shard's cursor; None if too little is there."""
    reader = ShardReader(StreamPages(aws), stream_arn, cursor, clock, random.Random())
    times, found = list[float](), 0
    try:
        for _ in range(_PAGES_MAX):
            page = await reader.read()
            if page is None:
                await anyio.sleep(reader.wait)
                continue
            times += (record.created_at for record in page.records)
            found += sum(map(counts, page.records))
            if reader.ended or (times and times[-1] - times[0] >= 2 * _SPAN_LEAST):
                break
    except (*AwsError, RetentionLost):
        return None
    span = times[-1] - times[0] if times else 0.0
    return found / span if span >= _SPAN_LEAST else None

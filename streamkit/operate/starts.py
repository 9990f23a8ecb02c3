"""Findings of `check` on where a consumer starts, and whether it could begin there.

In: an app and its consumer's control items. Out: findings. A consumer that exists has begun; one
that does not is asked what its first worker would ask. On failure: what the archive refuses.
"""

from dataclasses import replace
from functools import partial

from streamkit.app import App
from streamkit.archive.completeness import beginning
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.still_streamed import StillStreamed
from streamkit.aws import Aws
from streamkit.core.tables import AppTables
from streamkit.errors import ConfigurationError
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.founding import Founding, founding_of
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import LAMBDA
from streamkit.kinds.finding import Finding
from streamkit.progress.clock import SystemClock
from streamkit.progress.cursor import CursorStore
from streamkit.stream.loss import Losses
from streamkit.stream.start import start_text
from streamkit.table import Table


async def start_findings(app: App, aws: Aws, tables: AppTables) -> list[Finding]:
    """Return the findings of `check` on an app's consumer: its start, and what it cannot do."""
    store = tables.store(app, aws)
    generation = await newest_generation(store)
    losses = Losses(app.on_loss, Table(store.dynamodb, store.space.schema), store)
    founding = founding_of(app, tables, SystemClock(), losses)
    try:
        await founding.require_none_apart(store, app.handlers)
        await founding.counted_before(store, generation, app.handlers)
        if generation is None:
            await founding.require_not_elsewhere(store)
            origin = await _of_origin(app, aws, tables, store, founding)
            return [*origin, *_of_start(app, generation)]
    except ConfigurationError as error:
        return [Finding("error", str(error))]
    found = _of_start(app, generation)
    if generation.host == LAMBDA and app.on_loss != "halt":
        text = (
            f"{app.declared}: Lambda functions run it, and AWS does not tell them what was trimmed"
            " unread: on_loss hears of a replaced stream alone; alarm on the mapping's IteratorAge"
        )
        found.insert(0, Finding("warning", text))
    return found


async def _of_origin(
    app: App, aws: Aws, tables: AppTables, store: CursorStore, founding: Founding
) -> list[Finding]:
    """Return why the first worker of a consumer could not begin at its start.

    Raises:
        ConfigurationError: its start is in the future.
    """
    now = int(await store.time(founding.clock))
    if app.archive is None:
        origin = await founding.origin(store, now)
    else:
        async with app.archive.opened() as objects:
            shards = ArchivedShards(objects, f"{app.table}/{store.space.label}")
            arn, clock = tables.table.stream_arn or "", await store.clock(founding.clock)
            still, written = StillStreamed(aws, arn, shards, clock), tables.store(app.writer, aws)
            past = partial(beginning, still, partial(every_cursor, written))
            origin = await replace(founding, past=past).origin(store, now)
    if origin.lost is None:
        return []
    text = f"{app.declared}: {origin.lost}"
    return [Finding("error" if app.on_loss == "halt" else "warning", text)]


def _of_start(app: App, generation: Generation | None) -> list[Finding]:
    """Return the findings of `check` on where an app starts."""
    declared = start_text(app.start)
    if generation is not None and generation.start != declared:
        text = (
            f"{app.declared}: start={declared} has no effect: the consumer exists, and started at"
            f" {generation.start}; `streamkit rewind` reads again"
        )
        return [Finding("warning", text)]
    if declared == "trim_horizon" or app.exact:
        return []
    return [
        Finding(
            "warning",
            f"{handler.declared}: it counts from {declared} only, and needs a rebuild if the table"
            " held items then",
        )
        for handler in app.handlers
        if handler.is_aggregate
    ]

"""Joining: a worker or a function joins the newest generation, or starts one.

The first generation is the consumer's founding: its start is resolved then, and is in the table
before anything is read. A consumer whose stream was replaced is founded again under the new
stream's label, with what it knew under the old one; changes in between may be lost.

In: the consumer's control items, and the handlers that are to run. Out: the generation; None for an
older roll-out, which must stand by. On failure: an error says what people must decide.
"""

import random
import uuid
from collections.abc import Iterable
from dataclasses import replace

import anyio

from streamkit.core.handler import Handler
from streamkit.errors import LeaseLost, RetentionLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.directory import enter, note_halt, predecessors
from streamkit.fleet.founding import Founding
from streamkit.fleet.generation import (
    Generation,
    newest_generation,
    next_generation,
    transition,
    write_generation,
)
from streamkit.fleet.hosting import TAKEN, TAKING_OVER, check_host
from streamkit.fleet.rewinding import finish_rewind, withdraw_rewind
from streamkit.fleet.taken import marks_of
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import transact
from streamkit.stream.start import start_text


async def join_generation(
    store: CursorStore,
    fingerprint: str,
    handlers: Iterable[Handler],
    *,
    take_over: bool,
    founding: Founding | None = None,
    host: str = "",
) -> Generation | None:
    """Join the newest generation or start one; None for an old roll-out or a consumer taken over.

    Args:
        store: the consumer's control items.
        fingerprint: the handlers' fingerprint.
        handlers: the handlers that the app registers.
        take_over: let a known older fingerprint start a generation, because no worker of the newest
            is alive or an operator said so. If another process starts one meanwhile, this
            permission no longer holds: then the worker stands by.
        founding: what to do if there is no generation yet; without it all existing records count.
        host: what will run the consumer; empty if nothing will.

    Raises:
        RetentionLost: the stream was replaced, and the app's policy is to halt.
        ConfigurationError: the app's start is in the future, the consumer has another host, a
            handler has run as a consumer of its own, or another app counts an aggregate.
    """
    handlers = list(handlers)
    while True:
        newest = await newest_generation(store)
        _require_fit(store, newest, host, handlers, founding)
        if newest is not None and newest.host == TAKEN:
            return None
        if newest is not None and newest.rewinding:
            await finish_rewind(store, newest)
            continue
        if newest is not None and newest.asks:
            await withdraw_rewind(store, newest)
            continue
        if newest is not None and newest.fingerprint == fingerprint:
            return newest
        if newest is not None and fingerprint in newest.known and not take_over:
            return None
        started = await _started(store, newest, fingerprint, handlers, host, founding)
        if newest is None and founding is not None:
            found = await _found(store, started, handlers, founding)
            if found is not None:
                return found
            continue
        try:
            # If the process dies after this, the next worker with these handlers joins it.
            await write_generation(store, newest, started)
        except LeaseLost:
            # Another process wrote at the same moment: look again. The workers of its generation
            # were not checked, and may be alive, so the permission to take over has ended.
            take_over = False
            continue
        return started


async def _started(
    store: CursorStore,
    newest: Generation | None,
    fingerprint: str,
    handlers: list[Handler],
    host: str,
    founding: Founding | None,
) -> Generation:
    """Return the generation that these handlers start; a join that is under way goes on in it.

    Raises:
        ConfigurationError: another consumer runs a handler, or counts an aggregate.
    """
    started = next_generation(newest, fingerprint, handlers)
    if founding is not None:
        await founding.require_none_apart(store, handlers)
        counted = await founding.counted_before(store, newest, handlers)
        started = replace(started, rebuild=started.rebuild | counted)
    return started if started.host == TAKING_OVER or not host else replace(started, host=host)


def _require_fit(
    store: CursorStore,
    newest: Generation | None,
    host: str,
    handlers: Iterable[Handler],
    founding: Founding | None,
) -> None:
    if newest is not None:
        check_host(store.space.consumer, newest.host, host)
        if founding is not None:
            founding.require_not_taken(marks_of(newest.joins), handlers)


async def _found(
    store: CursorStore, first: Generation, handlers: list[Handler], founding: Founding
) -> Generation | None:
    """Found the consumer of this stream; None if another worker was faster, or a hook failed."""
    # Use the clock that stamps changes: if this machine's is ahead, "latest" would skip some.
    now = int(await store.time(founding.clock))
    first = replace(first, incarnation=uuid.uuid4().hex[:8])
    aggregates = frozenset(handler.name for handler in handlers if handler.is_aggregate)
    before = await _predecessor(store, founding.table, now)
    if before is None:
        await founding.require_not_elsewhere(store)
        origin = await founding.origin(store, now)
        if origin.lost is not None and not await _settled(store, founding, origin.lost, now):
            return None
        started = replace(first, start=start_text(founding.start), since=origin.since, founded=now)
        started = replace(started, begins=origin.begins, rewinding=bool(origin.begins))
        if origin.lost is not None:
            started = replace(started, rebuild=aggregates, lost=now)
        elif origin.since and not founding.exact:
            # Aggregates count from the start only; the table may have held items before. Where a
            # handler's own start= says so, that is what is meant.
            started = replace(started, rebuild=aggregates)
    else:
        old, lost = before
        if not await _settled(store, founding, lost, now):
            return None
        started = next_generation(old, first.fingerprint, handlers)
        started = replace(started, rebuild=aggregates, founded=now, lost=now, builds={})
        started = replace(started, joins=frozenset())  # they concern cursors of the other stream
        started = replace(started, host=first.host, incarnation=first.incarnation)
    actions = [transition(store, None, started), enter(store.space, founding.table)]
    schemas = {store.space.schema.name: store.space.schema}
    # One transaction: a consumer that is in no directory would be found by no command, and could
    # not be deleted. If two workers found it at once, one of them is refused and joins the other.
    refused = await transact(store.dynamodb, schemas, actions, random.Random())
    # Where it begins in an archive, the cursors are created next, as those of a rewind are.
    return started if refused is None and not started.rewinding else None


async def _settled(store: CursorStore, founding: Founding, lost: RetentionLost, now: int) -> bool:
    """Settle what a consumer lacks at its beginning; return False after a hook that failed.

    Raises:
        RetentionLost: the app's policy is to halt; the directory says so to people who ask later.
    """
    try:
        pause = await founding.losses.settle(lost)
    except RetentionLost:
        await note_halt(store, founding.table, now, str(lost))
        raise
    if pause is not None:
        await anyio.sleep(pause)
    return pause is None


async def _predecessor(
    store: CursorStore, table: str, now: int
) -> tuple[Generation, RetentionLost] | None:
    """Return the generation under the table's last stream, and what that stream may have lost."""
    for old in await predecessors(store, table):
        generation = await newest_generation(old)
        if generation is not None:
            cursors = await every_cursor(old)
            seen = [c.seen for c in cursors.values() if not c.finished]
            lost = RetentionLost(
                f"possible loss: the stream of table {table} is a new one; changes that were not"
                f" read from {old.space.label}, or were made while there was none, are lost; begin"
                " with the new one with --accept-loss",
                since=min(seen, default=0),
                until=now,
            )
            return generation, lost
    return None

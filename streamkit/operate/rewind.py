"""Let a consumer read again from a moment within the stream's retention, or its archive.

In: an app, and the moment. Out: a new generation, in which every shard is read again from its
oldest record, and records created before the moment are dropped; parents before children, as
always. On failure: a refusal that lists every reason; then nothing has changed.

A rewind is refused where its result would be wrong: handlers that count twice, parked changes (they
would be delivered again), workers that are alive, code other than the consumer's. A worker may only
seem to be dead, and its last commit, which parks a change, may be late. So the rewind first raises
every cursor to a new generation, and only then looks for parked changes. The decision is one
conditional write; a worker that began meanwhile makes it fail. A crash before that write leaves the
old state, a crash after it the new one: the next worker, or the same command, deletes the old
cursors, and no commit under them is accepted then.

Lambda functions have no cursors: high-water marks of items say what is done. The new generation has
another incarnation, so that earlier marks do not count, and a mapping that is created again
delivers the stream again. Until that mapping exists functions must do nothing: the consumer has to
be paused for as long as an invocation may run.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from streamkit.app import App
from streamkit.archive.completeness import beginning
from streamkit.archive.still_streamed import StillStreamed
from streamkit.aws import Aws
from streamkit.core.handler import Handler
from streamkit.core.parked.queues import parked_queues
from streamkit.core.tables import AppTables, survey
from streamkit.effects import AddToSet, Check, Completed, Delete, Effect, Put, RemoveFromSet, Set
from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import Generation, consumer_operation
from streamkit.fleet.hosting import FUNCTION_SECONDS, LAMBDA, WORKERS
from streamkit.fleet.liveness import live_workers
from streamkit.fleet.rewinding import ask_rewind, begin_rewind, finish_rewind, withdraw_rewind
from streamkit.model.json_fields import JsonFields
from streamkit.operate.past.past import open_archive
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Refusal, said_of
from streamkit.stream.start import REACH_SECONDS
from streamkit.table import Table
from streamkit.worker.joined_app import joined_app

_MARGIN_SECONDS = 60.0
"""The extra wait for functions to end, because clocks differ."""

_REPEATABLE = (Put, Set, Delete, Check, AddToSet, RemoveFromSet, Completed)
"""Effects that end at the same item if all changes of their source run again, in order."""


@dataclass(frozen=True, slots=True)
class Rewound(JsonFields):
    """What a rewind has done; `since` is in epoch seconds, 0 for all that the stream holds.

    `parked` is how many parked queues it has dropped.
    """

    consumer: str
    generation: int
    since: int
    cursors: int
    host: str = WORKERS
    parked: int = 0


@dataclass(frozen=True, slots=True)
class Despite:
    """What a rewind accepts: gaps of the archive (`loss`), and that `parked` changes are dropped.

    A parked change that was made before the moment is gone then.
    """

    loss: bool = False
    parked: bool = False


class RewindRefused(Refusal):
    """The result of a rewind would be wrong; nothing was changed. `reasons` are for people."""


async def rewind(
    app: App,
    aws: Aws,
    to: datetime | None,
    *,
    allow: Collection[str] = (),
    lease_seconds: float = 7.0,
    in_flight: float = FUNCTION_SECONDS,
    clock: Clock | None = None,
    despite: Despite = Despite(),
) -> Rewound:
    """Let the app's consumer read again.

    Args:
        app: the app whose consumer is rewound; all its handlers run again.
        aws: open clients.
        to: an aware datetime; None is everything that the stream holds.
        allow: names of handlers that may run twice for a change, although their annotations do not
            show it. Aggregates never may.
        lease_seconds: how long silent workers are watched before they count as dead.
        in_flight: the longest time-out of the functions, where functions run the consumer.
        clock: for simulations.
        despite: what would refuse the rewind, and is accepted.

    Raises:
        RewindRefused: the result would be wrong.
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    clock = await store.clock(clock or SystemClock())  # this machine's may be hours wrong
    app, now = await joined_app(app, store), clock.time()
    newest = await _unless_paused(store)
    begins: frozenset[str] = frozenset()
    reasons = [*_too_far(app, newest, to, now), *_of_handlers(app, allow), *_of_code(app, newest)]
    if newest is None or reasons:
        raise RewindRefused(reasons)
    # Functions do not say in what generation they park.
    drops = despite.parked and newest.host != LAMBDA
    if not newest.rewinding:
        reasons = [] if drops else _of_parked(await _parked(store), newest.host)
        reasons += _of_workers(await live_workers(store, clock, lease_seconds))
        reasons += _of_functions(newest, now, in_flight) if newest.host == LAMBDA else ()
        RewindRefused.raise_for(reasons)
    since = 0 if to is None else int(to.timestamp())
    if since and now - since > REACH_SECONDS and not newest.rewinding:
        begins = await _in_archive(app, aws, tables, since, clock, allow_loss=despite.loss)
    parked = 0
    try:
        if not newest.rewinding:
            newest, parked = await _sealed(store, newest, clock, drops=drops)
        said = said_of(clock, f"rewind: to {'trim-horizon' if to is None else to.isoformat()}")
        newest = await begin_rewind(store, newest, since, int(now), said, begins)
    except LeaseLost:
        raise RewindRefused(
            ["a worker began meanwhile, or another command changed the consumer; try again"]
        ) from None
    dropped = await finish_rewind(store, newest)
    return Rewound(app.name, newest.number, since, dropped, newest.host or WORKERS, parked)


async def _unless_paused(store: CursorStore) -> Generation | None:
    """Read the consumer's generation, once its rewind is not paused."""
    return await consumer_operation(store, "rewind").resumed()


async def _sealed(
    store: CursorStore, newest: Generation, clock: Clock, *, drops: bool
) -> tuple[Generation, int]:
    """Make late commits of workers that seem to be dead fail; then look for parked changes.

    Returns:
        The generation in which the rewind may be decided, and how many queues it will drop.

    Raises:
        RewindRefused: changes are parked.
        LeaseLost: the consumer has changed since it was read.
    """
    asked = await ask_rewind(store, newest, said_of(clock, "rewind: asked for"))
    if asked.host != LAMBDA:
        await capture(store, asked, read=False, stopped=True)
    queues = await _parked(store)
    if queues and not drops:
        await withdraw_rewind(store, asked)
        raise RewindRefused(_of_parked(queues, asked.host))
    return asked, queues


async def _parked(store: CursorStore) -> int:
    return len(await parked_queues(store, await every_cursor(store)))


def _of_parked(queues: int, host: str) -> list[str]:
    text = f"changes are parked (queues: {queues}); redrive or discard them first"
    if host == LAMBDA:
        text += (
            " (`streamkit parked redrive`, `streamkit parked discard`): functions park without a"
            " generation, so --drop-parked could not tell old changes from those read again"
        )
    else:
        text += ", or --drop-parked"
    return [text] if queues else []


async def _in_archive(
    app: App, aws: Aws, tables: AppTables, since: int, clock: Clock, *, allow_loss: bool
) -> frozenset[str]:
    """Return the shards of the archive where reading begins.

    Raises:
        RewindRefused: neither the archive nor the stream has every change since the moment.
    """
    async with open_archive(app, tables) as archive:
        still = StillStreamed(aws, tables.table.stream_arn or "", archive, clock)
        written = partial(every_cursor, tables.store(app.writer, aws))
        found = await beginning(still, written, since)
    if found.lacks and not allow_loss:
        raise RewindRefused([*found.lacks, "--allow-loss begins nevertheless"])
    return found.begins


def _too_far(app: App, newest: Generation | None, to: datetime | None, now: float) -> Iterator[str]:
    if to is None:
        return
    if to.tzinfo is None:
        yield f"{to.isoformat()} has no time zone; add one, as in +00:00"
    elif int(to.timestamp()) > now:
        yield f"{to.isoformat()} is in the future"
    elif now - to.timestamp() > REACH_SECONDS:
        text = f"{to.isoformat()} is more than 23 hours ago"
        if app.archive is None:
            yield f"{text}; trim-horizon is all that is left"
        elif newest is not None and newest.host == LAMBDA:
            yield (
                f"{text}, and functions read no archive: let workers run it"
                " (`streamkit consumers to-workers`), and rewind it then"
            )


def _of_code(app: App, newest: Generation | None) -> Iterator[str]:
    if app.copies:
        yield f"{app.name} writes an archive, in which everything has its place already"
    elif newest is None:
        yield f"{app.name} has never run on this stream; a new consumer starts with App(start=...)"
    elif newest.host not in ("", WORKERS, LAMBDA):
        yield f"{app.name} is not to be rewound now ({newest.host}); wait until that has ended"
    elif newest.fingerprint != app.fingerprint():
        yield f"{app.name} is deployed with other handlers; rewind with the code that is deployed"


def _of_workers(alive: Collection[str]) -> Iterator[str]:
    if alive:
        yield f"workers are alive, stop them first: {', '.join(alive)}"


def _of_functions(hosted: Generation, now: float, in_flight: float) -> Iterator[str]:
    if not hosted.paused:
        yield "Lambda functions run it: pause it first (`streamkit consumers pause`)"
    elif (left := hosted.paused + in_flight + _MARGIN_SECONDS - now) > 0:
        yield (
            f"a function that began before the pause may still run: try again in {math.ceil(left)}"
            " seconds, or say what its time-out is (--in-flight)"
        )


def _of_handlers(app: App, allow: Collection[str]) -> Iterator[str]:
    names = {handler.name for handler in app.handlers}
    for name in sorted(set(allow) - names):
        yield f"there is no handler {name!r}"
    for handler in app.handlers:
        reason = counts_twice(handler)
        if reason is not None and (handler.is_aggregate or handler.name not in allow):
            yield f"{handler.declared}: {reason}"


def counts_twice(handler: Handler) -> str | None:
    """Return why a handler must not run twice for the same changes; None if it may run twice."""
    if handler.shadow or handler.is_mirror:
        return None  # a mirror writes the latest state, checked (model `rewound`)
    if handler.is_aggregate:
        return "an aggregate counts every change once more"
    if Table in handler.needs.values():
        return "it reads the table, and may build on what it wrote the first time"
    named = effects_named(handler)
    if named is None:
        return "its annotation does not say which effects it returns"
    for effect in named:
        if effect not in (*_REPEATABLE, NoneType):
            name = getattr(effect, "__name__", str(effect))
            return f"it may return {name}, which may have another effect when it is done twice"
    return None


def effects_named(handler: Handler) -> list[Any] | None:
    """Return the effects that a handler's annotation says it returns; None if it says nothing."""
    hints = get_type_hints(handler.run)
    return list(_leaves(hints["return"])) if "return" in hints else None


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the effects that a return annotation names, out of unions and collections."""
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Effect):
        yield origin
    elif origin is None:
        yield annotation
    else:
        for part in get_args(annotation):
            if part is not ...:
                yield from _leaves(part)

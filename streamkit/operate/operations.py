"""List which commands in several phases are under way for a consumer, and their phases.

In: an app, its consumer's generation, and clients. Out: one `OperationStatus` for each migration,
rebuild, move, rewind, deletion or replay to the end that has not ended. The same command continues
it, on any machine.
A consumer that began in the past catches up by itself, and is listed until it has.
On failure: the errors of a read of the table.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables
from streamkit.fleet.directory import entries
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import DELETING, FROM_KCL, JOINING, TO_LAMBDA, TO_WORKERS
from streamkit.fleet.taken import is_over, marks_of
from streamkit.kinds.migration import rank
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.operate.status import numbers_of
from streamkit.model.builds import pass_name
from streamkit.operate.remaining import catches_up_in
from streamkit.operate.replay.progress import share_of
from streamkit.operate.replay.report import replay_name
from streamkit.progress.clock import utc
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan.places import strided

Kind = Literal["migration", "rebuild", "move", "rewind", "deletion", "catch-up", "replay", "join"]

_SEGMENTS_SEEN = 256
"""Segments of a scan that are read to say how far it is."""
_MINUTE = 60.0
_OVER = frozenset({"new", "done", "rolled back"})


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """One operation that is under way; `name` is a migration's number, or an aggregate.

    `paused`: a person has told it to wait, and it waits. `share` is how much of a rebuild's scan,
    or of the time to catch up with, is done, 0 to 1, and `left` about how many seconds the rest
    takes; None where that is not known.
    """

    kind: Kind
    name: str
    phase: str
    paused: bool = False
    share: float | None = None
    left: float | None = None


async def operations(
    app: App,
    aws: Aws,
    tables: AppTables,
    newest: Generation | None,
    now: float,
    lag: float | None = None,
    cursors: Mapping[str, Cursor] = MappingProxyType({}),
) -> tuple[OperationStatus, ...]:
    """Return what is under way for an app's consumer, as `newest` and its migrations say.

    `now` is in epoch seconds; `lag` is how many seconds it is behind, if that is known; `cursors`
    say which handlers have joined and are ahead of the app.
    """
    book = StateBook(aws.dynamodb, tables.control, app.name)
    states = await book.read_all(sorted({*numbers_of(app), *await book.begun()}, key=rank))
    migrations = [
        OperationStatus("migration", state.id, state.does, state.waits)
        for state in states
        if state.phase not in _OVER
    ]
    if newest is None:
        return tuple(migrations)
    store = CursorStore(aws.dynamodb, tables.space(app))
    found = [await _measured(store, newest, one, now) for one in _of_consumer(app, newest)]
    replays = await _replays(app, store, now)
    return (
        *migrations,
        *found,
        *replays,
        *_joins(cursors, newest.joins),
        *catching_up(app, newest, now, lag),
    )


def _joins(cursors: Mapping[str, Cursor], joins: frozenset[str]) -> Iterator[OperationStatus]:
    """Return the handlers that join the app, or have joined and are ahead of it somewhere."""
    reading = [cursor for cursor in cursors.values() if not is_over(cursor)]
    for name, mark in sorted(marks_of(joins).items()):
        runs = sum(mark in cursor.live for cursor in reading)
        phase = f"the app runs it on {runs} of {len(reading)} shards"
        yield OperationStatus("join", name, phase, share=runs / max(1, len(reading)))
    marks = [mark for cursor in reading for mark in cursor.joined_after(cursor.position)]
    ahead = Counter(mark.partition(":")[2] for mark in marks)
    for name, shards in sorted((one, ahead[one]) for one in ahead.keys() - marks_of(joins)):
        yield OperationStatus("join", name, f"ahead of the app in {shards} shards")


async def _replays(app: App, store: CursorStore, now: float) -> list[OperationStatus]:
    """Return the replay to the end that is under way, if there is one, and how far it is."""
    name, mine = replay_name(app.name), store.space
    there = [
        one
        for one in await entries(store.dynamodb, mine.schema)
        if (one.table, one.consumer, one.label) == (app.table, name, mine.label)
    ]
    if not there or any(child.name == name for child in app.listeners.values()):
        return []
    own = CursorStore(store.dynamodb, replace(mine, consumer=name))
    newest, cursors = await newest_generation(own), await own.read_all()
    replayed = OperationStatus("replay", app.name, "to the end")
    upto = _run_up_to(cursors.values())
    if newest is None or not newest.founded or not upto:
        return [replayed]
    behind = [(newest.founded, newest.founded - newest.since), (now, now - upto)]
    share = share_of(newest.since, upto, now)
    return [replace(replayed, share=share, left=catches_up_in(behind))]


def _run_up_to(cursors: Collection[Cursor]) -> int:
    """Return up to when all changes of a replay have run, in epoch seconds; 0 if none is known."""
    reading = [max(c.seen, c.dated) for c in cursors if not is_over(c)]
    known = [at for at in reading if at]
    return min(known) if known else max((c.dated for c in cursors), default=0)


async def _measured(
    store: CursorStore, newest: Generation, one: OperationStatus, now: float
) -> OperationStatus:
    """Add how far the scan of a rebuild is, by its segments, or a regular choice of them."""
    build = newest.builds.get(one.name) if one.kind == "rebuild" else None
    if build is None or build.state != "scanning" or not build.segments:
        return one
    numbers = list(strided(build.segments))[:_SEGMENTS_SEEN]
    cursors = await store.read_many([f"{pass_name(one.name, build.number)}.{n}" for n in numbers])
    share = sum(cursor.finished for cursor in cursors.values()) / len(numbers)
    left = (now - build.begun) * (1 - share) / share if share and build.begun else None
    return replace(one, share=share, left=left)


def catching_up(
    app: App, newest: Generation, now: float, lag: float | None
) -> Iterator[OperationStatus]:
    """Return how far a consumer is that began in the past, until it reaches its founding."""
    since, founded = newest.since, newest.founded
    if not 0 < since < founded - _MINUTE or lag is None or now - lag >= founded - _MINUTE:
        return
    done = max(0.0, now - lag - since)  # so many seconds of changes, since it was founded
    gained = done - (now - founded)
    left = lag * (now - founded) / gained if gained > 0 else None
    phase = f"reads since {utc(since).isoformat()}"
    yield OperationStatus("catch-up", app.name, phase, share=done / (now - since), left=left)


def _of_consumer(app: App, newest: Generation) -> Iterator[OperationStatus]:
    for name, build in sorted(newest.builds.items()):
        if build.under_way:
            held = newest.is_held(f"rebuild {name}")
            yield OperationStatus("rebuild", name, build.state, held)
    held = newest.is_held("move")
    if newest.host in (TO_WORKERS, TO_LAMBDA, FROM_KCL) or held:
        yield OperationStatus("move", app.name, newest.host, held)
    if newest.host == JOINING:
        yield OperationStatus("join", app.name, newest.host)
    if newest.host == DELETING:
        yield OperationStatus("deletion", app.name, newest.host)
    if newest.rewinding or newest.asks:
        phase, held = "decided" if newest.rewinding else "asked for", newest.is_held("rewind")
        yield OperationStatus("rewind", app.name, phase, held)

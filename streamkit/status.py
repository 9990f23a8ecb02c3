"""Status: where a consumer stands, for people and programs.

In: an app and clients. Out: one `Status`: generation, workers, the shards as a tree with owner,
position and lag, and what is parked. Control items are read through their directories, never by a
scan. It is a snapshot of things that move: a shard may change hands while it is read.

Ages are differences of two machines' clocks and label things for people; nothing decides by them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.control import Cursor
from streamkit.cursor import CursorStore
from streamkit.fleet.generation import read_generation
from streamkit.lag import Lag, bound, listens, measure
from streamkit.parked import HeldLane, held_lanes, list_parked
from streamkit.parking import Parked
from streamkit.preflight import Surroundings, survey
from streamkit.source.lister import NAME as LISTER

_SHARDS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker whose heartbeat item is there; one that was killed leaves it behind."""

    name: str
    beats: int
    last_beat: int
    beat_age_seconds: float
    leads: bool


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard's cursor.

    `depth` is its generation in the tree of splits that is still known. `held_lanes` includes the
    lanes that its parents held; `parked` counts by handler what was parked here.
    """

    name: str
    parent: str | None
    depth: int
    state: str
    owner: str | None
    epoch: int
    generation: int
    position: str
    lag_seconds: float | None
    lag: str
    held_lanes: int
    parked: dict[str, int]


@dataclass(frozen=True, slots=True)
class Status:
    """One consumer. `shards` stand in the order of their tree, parents before their children."""

    consumer: str
    table: str
    stream: str
    generation: int | None
    current: bool
    needs_rebuild: tuple[str, ...]
    workers: tuple[WorkerStatus, ...]
    shards: tuple[ShardStatus, ...]
    parked: dict[str, int]
    held_lanes: int
    lag_seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)


async def read_status(
    app: App, aws: Aws, *, clock: Clock | None = None, look_into_stream: bool = True
) -> Status:
    """Read where an app's consumer stands.

    Args:
        app: whose consumer.
        aws: open clients.
        clock: labels ages.
        look_into_stream: measure the lag with a few `GetRecords` calls a shard; without them it
            is an upper bound that grows by an hour on a quiet shard.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    clock = clock or SystemClock()
    around = await survey(app, aws)
    store = CursorStore(aws.dynamodb, around.space(app))
    cursors = await store.read_all()
    lags = await _lags(app, aws, around, cursors, clock, look_into_stream=look_into_stream)
    lanes = await held_lanes(store, cursors)
    parked = await list_parked(store, lanes)
    item = await store.item("consumer")
    generation = None if item is None else read_generation(item)
    return Status(
        consumer=app.name,
        table=app.table,
        stream=around.table.stream_arn or "",
        generation=generation.number if generation else None,
        current=generation is not None and generation.fingerprint == app.fingerprint(),
        needs_rebuild=tuple(sorted(generation.rebuild)) if generation else (),
        workers=await _workers(store, clock.time()),
        shards=tuple(_shards(cursors, lags, lanes, parked)),
        parked=_by_handler(parked),
        held_lanes=len(lanes),
        lag_seconds=_worst(cursors, lags),
    )


async def _lags(
    app: App,
    aws: Aws,
    around: Surroundings,
    cursors: Mapping[str, Cursor],
    clock: Clock,
    *,
    look_into_stream: bool,
) -> dict[str, Lag]:
    now = clock.time()
    lags = {name: bound(cursor, now) for name, cursor in cursors.items()}
    if not look_into_stream:
        return lags
    wants = listens(app, around.table)
    limiter = anyio.Semaphore(_SHARDS_AT_ONCE)

    async def look(cursor: Cursor) -> None:
        async with limiter:
            arn = around.table.stream_arn or ""
            lags[cursor.name] = await measure(aws, arn, cursor, wants, clock)

    async with anyio.create_task_group() as group:
        for cursor in cursors.values():
            if not cursor.finished:
                group.start_soon(look, cursor)
    return lags


async def _workers(store: CursorStore, now: float) -> tuple[WorkerStatus, ...]:
    roster = await store.item("members")
    names = [] if roster is None else sorted(roster.get("names", {"SS": []})["SS"])
    lister = await store.read(LISTER)
    leader = None if lister is None else lister.owner
    found = []
    for name in names:
        item = await store.item("member", name)
        if item is None:
            continue
        at = int(item["at"]["N"])
        beats = int(item["counter"]["N"])
        found.append(WorkerStatus(name, beats, at, max(0.0, now - at), leads=name == leader))
    return tuple(found)


def _shards(
    cursors: Mapping[str, Cursor],
    lags: Mapping[str, Lag],
    lanes: Sequence[HeldLane],
    parked: Sequence[Parked],
) -> Iterator[ShardStatus]:
    lanes_of = Counter(lane.chunk for lane in lanes)
    for depth, cursor in in_tree_order(cursors):
        yield ShardStatus(
            name=cursor.name,
            parent=cursor.parent,
            depth=depth,
            state=cursor.state,
            owner=cursor.owner,
            epoch=cursor.epoch,
            generation=cursor.generation,
            position=cursor.position,
            lag_seconds=lags[cursor.name].seconds,
            lag=lags[cursor.name].measure,
            held_lanes=sum(lanes_of[chunk] for chunk in cursor.holds),
            parked=_by_handler(change for change in parked if change.shard == cursor.name),
        )


def in_tree_order(cursors: Mapping[str, Cursor]) -> Iterator[tuple[int, Cursor]]:
    """Yield each cursor after its parent, with its depth; siblings and roots by name."""
    children: dict[str | None, list[Cursor]] = {}
    for name in sorted(cursors):
        cursor = cursors[name]
        parent = cursor.parent if cursor.parent in cursors else None
        children.setdefault(parent, []).append(cursor)
    todo = [(0, cursor) for cursor in reversed(children.get(None, []))]
    while todo:
        depth, cursor = todo.pop()
        yield depth, cursor
        todo += [(depth + 1, child) for child in reversed(children.get(cursor.name, []))]


def _by_handler(parked: Iterable[Parked]) -> dict[str, int]:
    return dict(sorted(Counter(change.handler for change in parked).items()))


def _worst(cursors: Mapping[str, Cursor], lags: Mapping[str, Lag]) -> float | None:
    """Return the largest lag; None if there is no shard, or one of which nothing is known."""
    seconds = [lags[name].seconds for name, cursor in cursors.items() if not cursor.finished]
    known = [value for value in seconds if value is not None]
    return max(known) if known and len(known) == len(seconds) else None
